"""The identity of a client connection: processor, its generation and a counter, packed into one integer.

Created by processors; handlers and logs only read it. It contains the generation, so a response to a connection of a
processor that has died has no owner in the replacement (`B18`, `B33`). The text form is for log lines only: nothing
parses it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

_PROCESSOR_SHIFT = 48
_GENERATION_SHIFT = 32
_PROCESSOR_MASK = 0x7FFF
GENERATION_MASK = 0xFFFF
_COUNTER_MASK = 0xFFFF_FFFF

#: Most used ids that are skipped in a row.
MOST_PASSED_OVER = 64


def make(processor: int, generation: int, counter: int) -> int:
    """Return the id as a non-negative 63-bit integer; generation wraps at 2^16, counter at 2^32."""
    return (
        (processor & _PROCESSOR_MASK) << _PROCESSOR_SHIFT
        | (generation & GENERATION_MASK) << _GENERATION_SHIFT
        | counter & _COUNTER_MASK
    )


def id_allocator(processor: int, generation: int, is_used: Callable[[int], bool]) -> Callable[[], int]:
    """Return a function that returns consecutive ids and skips used ones, unless nearly all are in use."""
    counter = itertools.count()

    def new_id() -> int:
        identity = make(processor, generation, next(counter))
        for _ in range(MOST_PASSED_OVER):
            if not is_used(identity):
                break
            identity = make(processor, generation, next(counter))
        return identity

    return new_id


def processor_of(connection_id: int) -> int:
    """Return the index of the processor that owns the connection."""
    return connection_id >> _PROCESSOR_SHIFT


def generation_of(connection_id: int) -> int:
    """Return the (wrapped) generation of that processor."""
    return connection_id >> _GENERATION_SHIFT & GENERATION_MASK


def counter_of(connection_id: int) -> int:
    """Return the processor's own running number of the connection."""
    return connection_id & _COUNTER_MASK


def text(connection_id: int) -> str:
    """Return the id as `processor-generation-counter`, for log lines."""
    return f"{processor_of(connection_id)}-{generation_of(connection_id)}-{counter_of(connection_id)}"
