"""The scripted upstream: a model server without a model that takes its time and misbehaves exactly as told.

Shipped as `tidegate mock`, which uses what is exported here; tests in Python find all of it in `tidegate.testing`. Reading order: `script`
(what can be asked for), `chooser` (which script a call gets), `answers` and `staging` (script to bytes, pauses and ending), `connection`
(plays them), `engine` (how load slows it), `server`. It shares no code with `tidegate.http` and knows nothing of the gateway, which knows
nothing of it.
"""

from tidegate.mock.received import ReceivedRequest
from tidegate.mock.script_file import describe, read_settings
from tidegate.mock.server import ScriptedUpstream
from tidegate.mock.settings import MockSettings

__all__ = ["MockSettings", "ReceivedRequest", "ScriptedUpstream", "describe", "read_settings"]
