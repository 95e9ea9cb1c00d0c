"""The maximum connections of a processor by its file descriptors, and the number reserved. Pure; used by the acceptor.

Each connection uses one descriptor of its processor, which needs others for the files that it sends from, and for
connections of the protected listener: administrators can then connect when all other descriptors are in use.
"""

from __future__ import annotations

from typing import NamedTuple

from rotunda.broker.ipc.segment_file_cache import MAX_OPEN_FILES
from rotunda.broker.network.acceptor.connection_rate import UNLIMITED
from rotunda.broker.network.acceptor.parked_sockets import MOST_PARKED

#: The advice logged when descriptors run out.
RAISE = "raise the limit of open files (ulimit -n), or set max.connections"

#: Reserved for the processor itself: files to send from, memory, bells, peer sockets. A quarter if there are few.
_OWN = MAX_OPEN_FILES + 64
_FOR_PROTECTED = 128


class Descriptors(NamedTuple):
    """The most connections of a processor for ordinary listeners, and for the protected listener."""

    ordinary: int = UNLIMITED
    protected: int = UNLIMITED
    #: The most connections that may wait in the acceptor to be closed.
    parked: int = MOST_PARKED


def descriptors_of(limit: int) -> Descriptors:
    """Return the maxima for this limit of open files per process; -1: unlimited."""
    if limit < 0:
        return Descriptors()
    protected = limit - min(_OWN, limit // 4)
    return Descriptors(protected - min(_FOR_PROTECTED, limit // 8), protected, min(MOST_PARKED, limit // 2))
