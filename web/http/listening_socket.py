"""The page's listening socket: without descriptors or memory it fails once a second, and is logged once.

asyncio 3.11 accepts up to its backlog in one pass, and schedules another such pass for each failure: without this
class, failures multiply until they use the whole loop. After the first failure new connections wait in the system's
queue.
"""

from __future__ import annotations

import errno
import socket
import time
from collections.abc import Callable
from typing import Final

#: Errors of a process, or machine, without descriptors or memory for another connection or file.
EXHAUSTED: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})

#: Less than the second after which asyncio retries.
_REST_S: Final = 0.5


def is_exhausted(failure: object) -> bool:
    """Return whether a failure ends when descriptors or memory are free again."""
    return isinstance(failure, OSError) and failure.errno in EXHAUSTED


class ListeningSocket(socket.socket):
    """Adopts the descriptor of a listening socket."""

    def __init__(self, listening: socket.socket, now_s: Callable[[], float] = time.monotonic) -> None:
        super().__init__(listening.family, listening.type, listening.proto, fileno=listening.detach())
        self.setblocking(False)
        self._now_s = now_s
        self._rests_until_s = 0.0

    def accept(self) -> tuple[socket.socket, object]:
        """Return a connection. Raises OSError; for a moment after a resource failure, BlockingIOError."""
        now_s = self._now_s()
        if now_s < self._rests_until_s:
            raise BlockingIOError
        try:
            return super().accept()
        except OSError as failure:
            if is_exhausted(failure):
                self._rests_until_s = now_s + _REST_S
            raise
