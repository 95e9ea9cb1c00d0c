"""How many connections a processor may have for want of descriptors, and how many are kept back. Pure.

Each connection takes one of its processor, which needs others for the files that it sends from, and for connections of
the protected listener: so administrators get in, and are answered, when all the others are taken.
"""

from __future__ import annotations

from typing import NamedTuple

from rotunda.broker.ipc.segment_file_cache import MAX_OPEN_FILES
from rotunda.broker.network.acceptor.connection_rate import UNLIMITED
from rotunda.broker.network.acceptor.parked_sockets import MOST_PARKED

#: What is said when there are no more.
RAISE = "raise the limit of open files (ulimit -n), or set max.connections"

#: Of a processor, for itself: files to send from, memory, bells, sockets to others. A quarter where there are few.
_OWN = MAX_OPEN_FILES + 64
_FOR_PROTECTED = 128


class Descriptors(NamedTuple):
    """How many connections a processor may have before an ordinary one waits, and one of the protected listener."""

    ordinary: int = UNLIMITED
    protected: int = UNLIMITED
    #: How many connections may wait in the acceptor to be closed.
    parked: int = MOST_PARKED


def descriptors_of(limit: int) -> Descriptors:
    """Return what the limit of open files of each process allows; -1: there is no limit."""
    if limit < 0:
        return Descriptors()
    protected = limit - min(_OWN, limit // 4)
    return Descriptors(protected - min(_FOR_PROTECTED, limit // 8), protected, min(MOST_PARKED, limit // 2))
