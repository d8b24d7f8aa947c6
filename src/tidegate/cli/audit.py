"""`tidegate audit`: what is kept of the bodies of one request, out of the files beside its record."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec

from tidegate.adapters.records.audit import KeptBody
from tidegate.adapters.records.lines import masked
from tidegate.node.exits import Exit


def show(directory: Path, request_id: str, *, as_json: bool) -> int:
    """Print the bodies of a request, the older first; 1 when there are none."""
    bodies = sorted(find(directory, masked(request_id)), key=lambda body: (body.started_at, body.kind))
    if not bodies:
        sys.stderr.write(
            f"tidegate: nothing is kept of {masked(request_id)} in {directory}. The policy for its tenant and route may keep nothing "
            "(`tidegate explain` shows it), its files may have been rotated away, or it is not written yet.\n"
        )
        return Exit.FAILED
    for body in bodies:
        if as_json:
            print(msgspec.json.encode(body).decode())
        else:
            cut = ", truncated" if body.truncated else ""
            print(f"{body.kind}  {body.policy}, {body.bytes:,} bytes{cut}, sha256 {body.sha256}\n{_harmless(body.body)}\n")
    return Exit.OK


def find(directory: Path, request_id: str) -> Iterator[KeptBody]:
    """Look through every worker's files, the rotated ones too; what is no line of ours is passed over."""
    named = msgspec.json.encode(request_id)
    seen: set[tuple[int, int]] = set()
    for path in sorted(directory.glob("audit-*.jsonl*")):
        try:
            with path.open("rb") as file:
                for line in file:
                    if named in line and (body := _read(line)) is not None and body.request_id == request_id:
                        key = (hash(line), len(line))
                        if key not in seen:  # a file may be rotated while it is read, and so met twice
                            seen.add(key)
                            yield body
        except FileNotFoundError:
            continue


def _read(line: bytes) -> KeptBody | None:
    try:
        return msgspec.json.decode(line, type=KeptBody)
    except (msgspec.DecodeError, RecursionError):
        return None


def _harmless(text: str) -> str:
    """Keep what a client sent from commanding the terminal."""
    return "".join([char if char.isprintable() or char in "\n\t" else f"\\u{ord(char):04x}" for char in text])
