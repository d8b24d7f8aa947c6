"""Everything a scripted upstream can be told at once: what a script file holds."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from tidegate.domain.units import Secret
from tidegate.mock.engine import EngineSettings
from tidegate.mock.script import Fault, Script, Scripts, Time

Seconds = Annotated[float, Meta(ge=0, le=31_536_000)]


class Window(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A time of trouble, in seconds since the start."""

    from_s: Seconds = 0.0
    to_s: Seconds | None = None
    """None: it does not end."""
    ratio: Annotated[float, Meta(ge=0, le=1)] = 1.0
    """The share of calls that it befalls."""
    model: str = "*"
    """Model name or pattern."""
    play: object = None
    """What a marker may say; over the script that the call would have got."""

    def open_at(self, elapsed_s: float) -> bool:
        return self.from_s <= elapsed_s and (self.to_s is None or elapsed_s < self.to_s)


class ColdStart(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Trouble of a server that has just been started."""

    for_s: Seconds
    how: Literal["loading", "slow", "refuse"] = "loading"
    extra_s: Time = 5.0
    """For `slow`: added before each first token."""


class MockSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A script file. Every default together is `ScriptedUpstream()`."""

    seed: int = 0
    models: tuple[str, ...] = ("scripted",)
    api_key: Secret | None = None
    default: Script = Script()
    scripts: Scripts = {}
    failures: tuple[Window, ...] = ()
    cold_start: ColdStart | None = None
    engine: EngineSettings | None = None
    bytes_per_token: Annotated[int, Meta(ge=1)] = 1
    context_tokens: Annotated[int, Meta(ge=1)] = 4_096


def refuses(window: Window) -> bool:
    """Tell whether a window closes the port instead of befalling calls."""
    play = window.play
    fault = play.get("fault") if isinstance(play, dict) else play
    if isinstance(fault, dict):
        fault = fault.get("kind")
    return fault == "refuse" or (isinstance(fault, Fault) and fault.kind == "refuse")
