"""The line that keeps a silent stream alive: an SSE comment, which every parser skips.

It has exactly one line end. Followed by a blank line it would be a block of its own, and one widely used parser dispatches an empty event
for such a block; as it is, it becomes the first line of whatever event comes next. So it may be sent only between two events.
"""

from __future__ import annotations


def heartbeat(epoch_s: float, sequence: int) -> bytes:
    """Write one heartbeat: when it was sent (seconds since the epoch, to the millisecond) and its number in the stream, from 1.

    A client that sees a number missing, or a time far from its own clock's, knows that something in between held the stream back.
    """
    return b": heartbeat %.3f %d\n" % (epoch_s, sequence)
