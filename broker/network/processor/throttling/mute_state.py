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
    """``pipeline.max`` requests are in flight; ends below ``pipeline.resume`` (``B10``, ``D10``)."""
    RING_FULL = 2
    """The target's request ring has no room for the next frame; ends when the frame is in (``B32``)."""
    ARENA = 4
    """No free block of shared memory for a large request; ends when there is one (``B14``)."""
    OUTPUT = 8
    """``output.max.bytes`` of responses wait for a slow client or for an earlier response (``B27``)."""
    ORDER = 16
    """Its next Produce has several partitions; ends when no request is in flight that it could overtake."""
    REFUSED = 32
    """It is closed after its earlier responses: its next frame is invalid (``D12``)."""
    DRAINING = 64
    """Its broker, processor or listener ends and takes no new requests (``A28``, ``A30``)."""
    PIPELINE_BYTES = 128
    """Its unanswered requests have ``pipeline.max.bytes``, or memory is full; ends with responses (``D10``)."""
    THROTTLED = 256
    """Its client has exceeded a quota; ends with the throttle time of its last response (``B11``)."""

    UNAUTHENTICATED = 512
    """Its authentication has failed: it gets a response, is closed after a delay, and is not read (``B23``)."""


#: A channel with one of these closes when its client disconnects; with another, its input is processed first (``B19``).
ENDED_BY_HANGING_UP = MuteCause.DRAINING | MuteCause.PIPELINE_BYTES | MuteCause.UNAUTHENTICATED
