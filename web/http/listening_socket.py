"""The socket that the page listens on: without descriptors or memory it fails once a second, and is logged once.

asyncio 3.11 tries to accept as often as it may in a turn, and plans another such turn for each failure: without this,
failures multiply until nothing else is done. After the first failure the system's queue keeps who comes.
"""

from __future__ import annotations

import errno
import socket
import time
from collections.abc import Callable
from typing import Final

#: This process, or the machine, has no descriptors or no memory for another connection, or another file.
EXHAUSTED: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})

#: Below the second after which asyncio tries again.
_REST_S: Final = 0.5


def is_exhausted(failure: object) -> bool:
    """Return whether a failure passes when there are descriptors or memory again."""
    return isinstance(failure, OSError) and failure.errno in EXHAUSTED


class ListeningSocket(socket.socket):
    """Takes over the descriptor of a socket that listens."""

    def __init__(self, listening: socket.socket, now_s: Callable[[], float] = time.monotonic) -> None:
        super().__init__(listening.family, listening.type, listening.proto, fileno=listening.detach())
        self.setblocking(False)
        self._now_s = now_s
        self._rests_until_s = 0.0

    def accept(self) -> tuple[socket.socket, object]:
        """Return a connection. Raises OSError; after a failure for want of a resource BlockingIOError for a moment."""
        now_s = self._now_s()
        if now_s < self._rests_until_s:
            raise BlockingIOError
        try:
            return super().accept()
        except OSError as failure:
            if is_exhausted(failure):
                self._rests_until_s = now_s + _REST_S
            raise
