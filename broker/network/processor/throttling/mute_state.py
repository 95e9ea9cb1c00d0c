"""The causes for which a channel is not read: independent, each set and cleared by its own mechanism.

Runs in processor processes. A channel is read only without any cause (``B11``-``B13``); causes overlap freely and
clearing one never clears another, which is the whole rule. Each setting of a cause is counted (``D23``).
"""

from __future__ import annotations

from enum import IntFlag


class MuteCause(IntFlag):
    """The causes for which a channel is not read."""

    NONE = 0
    PIPELINE = 1
    """As many requests are in flight as ``pipeline.max`` allows; ends below ``pipeline.resume`` (``B10``, ``D10``)."""
    RING_FULL = 2
    """The target's request ring has no room for the next frame; ends when the frame has gone in (``B32``)."""
    ARENA = 4
    """No block of shared memory is free for a large request; ends when one is (``B14``)."""
    OUTPUT = 8
    """``output.max.bytes`` of answers wait for the client, which reads too slowly, or for an earlier one (``B27``)."""
    ORDER = 16
    """Its next Produce names several partitions; it goes on when nothing is in flight that it could overtake."""
    REFUSED = 32
    """It is closed as soon as its earlier requests are answered: what it sent next is no request (``D12``)."""
    DRAINING = 64
    """Its broker, processor or listener ends and takes no new requests (``A28``, ``A30``)."""
    PIPELINE_BYTES = 128
    """Its unanswered requests take ``pipeline.max.bytes``, or there is no room; ends as they are answered (``D10``)."""
    THROTTLED = 256
    """Its client has used up a quota; ends when the throttle time of its last such answer is over (``B11``)."""

    UNAUTHENTICATED = 512
    """Its authentication has failed: it is answered and closed after a delay, and what comes is ignored (``B23``)."""


#: A channel with one of these closes when its client disconnects; with another, its input is processed first (``B19``).
ENDED_BY_HANGING_UP = MuteCause.DRAINING | MuteCause.PIPELINE_BYTES | MuteCause.UNAUTHENTICATED
