"""The file as it was read: its lines, where each setting stands, and which parts must not be shown."""

from __future__ import annotations

import msgspec

from tidegate.config.document import Place, TextSpan, lines_of
from tidegate.config.problem import Path, Problem, Severity, path_text

_MASK = "****"
_LONGEST_EXCERPT = 200
"""Characters shown of a line: more does not fit a terminal."""


class Source(msgspec.Struct, frozen=True):
    """Where settings come from. A path that is not in the file takes the place of the nearest section around it that is."""

    name: str
    """The file's name as given; empty when there is none."""
    lines: tuple[str, ...] = ()
    keys: dict[Path, Place] = {}
    values: dict[Path, Place] = {}
    hidden: tuple[TextSpan, ...] = ()
    """Secrets written in the file, and everything whose meaning is not known."""

    def mentions(self, path: Path) -> bool:
        """Tell whether the file itself sets this."""
        return path in self.values

    def problem(
        self, path: Path, message: str, hint: str | None = None, *, severity: Severity = Severity.ERROR, at_key: bool = False
    ) -> Problem:
        """Make a problem that points at a setting's value, or at its key."""
        return self.problem_at(self._place(path, at_key=at_key), path, message, hint, severity=severity)

    def problem_at(
        self, place: Place | None, path: Path, message: str, hint: str | None = None, *, severity: Severity = Severity.ERROR
    ) -> Problem:
        """Make a problem that points at a place of the file."""
        if place is None:
            return Problem(0, 0, path_text(path), message, hint, severity)
        excerpt, caret = self._excerpt(place)
        return Problem(place.line, place.column, path_text(path), message, hint, severity, excerpt, caret)

    def _place(self, path: Path, *, at_key: bool) -> Place | None:
        places = self.keys if at_key else self.values
        if path in places:
            return places[path]
        for length in range(len(path), 0, -1):
            around = path[:length]
            if around in self.keys:
                return self.keys[around]
            if around in self.values:
                return self.values[around]
        return None

    def _excerpt(self, place: Place) -> tuple[str | None, int]:
        if place.line > len(self.lines):
            return None, 0
        line = self.lines[place.line - 1]
        column = min(place.column - 1, len(line))
        shown, caret, position = "", column, 0
        for start, end in _covered(self.hidden, place.line, len(line)):
            if not line[start:end].strip() or start < position:
                continue
            shown += line[position:start] + _MASK
            if end <= column:
                caret += len(_MASK) - (end - start)
            elif start < column:
                caret = len(shown) - len(_MASK)
            position = end
        shown += line[position:]
        return shown[:_LONGEST_EXCERPT].rstrip(), min(caret, _LONGEST_EXCERPT)


def syntax_problem(text: str, place: Place, message: str, hint: str | None) -> Problem:
    """Make a problem of a text that cannot be read as YAML: which parts are secret is not known, so values are not shown."""
    lines = lines_of(text)
    if place.line > len(lines):
        return Problem(place.line, place.column, "", message, hint)
    line = lines[place.line - 1]
    key, colon, _ = line.partition(":")
    excerpt = f"{key[:_LONGEST_EXCERPT]}: …" if colon else ("…" if line.strip() else "")
    return Problem(place.line, place.column, "", message, hint, Severity.ERROR, excerpt, min(place.column - 1, len(excerpt)))


def _covered(hidden: tuple[TextSpan, ...], line: int, width: int) -> list[tuple[int, int]]:
    """Give the parts of a line, as positions from 0, that lie in a hidden span; the widest first where two begin together."""
    parts = [
        (span.start.column - 1 if span.start.line == line else 0, span.end.column - 1 if span.end.line == line else width)
        for span in hidden
        if span.start.line <= line <= span.end.line
    ]
    return sorted(parts, key=lambda part: (part[0], -part[1]))
