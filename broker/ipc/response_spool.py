"""The spool of one long response: in memory while it fits a response ring, then in a file of the run directory.

Runs in handler processes and the controller. That file is passed to the processor, which unlinks it as it opens it
(`response_writer`). So a response of any size needs no more memory here than `_MOST_IN_MEMORY_BYTES`.
"""

from __future__ import annotations

import os
from pathlib import Path

_MOST_IN_MEMORY_BYTES = 256 * 1024


class ResponseSpool:
    """The bytes of one response, appended in parts. ``size``: their number."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fd = -1
        self._in_file = 0
        self._tail = bytearray()
        self.size = 0

    def append(self, data: bytes) -> None:
        """Append bytes. Raises OSError."""
        self._tail += data
        self.size += len(data)
        if len(self._tail) > _MOST_IN_MEMORY_BYTES:
            self._spill()

    def cut(self, size: int) -> None:
        """Truncate to the first ``size`` bytes. Raises OSError."""
        if size < self._in_file:
            os.ftruncate(self._fd, size)
            self._in_file = size
            self._tail.clear()
        else:
            del self._tail[size - self._in_file :]
        self.size = size

    def put_size(self, size_bytes: bytes) -> None:
        """Overwrite the first bytes. Raises OSError."""
        self.overwrite(0, size_bytes)

    def overwrite(self, at: int, data: bytes) -> None:
        """Overwrite bytes near the beginning; nothing if ``at`` is negative. Raises OSError."""
        if at < 0:
            return
        if self._fd < 0:
            self._tail[at : at + len(data)] = data
        else:
            os.pwrite(self._fd, data, at)

    def payload(self) -> bytes | None:
        """Return the whole response if it is in memory, else None."""
        return None if self._fd >= 0 else bytes(self._tail)

    def finish(self) -> Path:
        """Write all of it to the file, and return the path. Raises OSError."""
        self._spill()
        os.close(self._fd)
        self._fd = -1
        return self._path

    def discard(self) -> None:
        """Close and remove the file, if there is one."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
            self._path.unlink(missing_ok=True)

    def _spill(self) -> None:
        if self._fd < 0:
            self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        view = memoryview(self._tail)
        written = 0
        while written < len(view):
            written += os.pwrite(self._fd, view[written:], self._in_file + written)
        view.release()
        self._in_file += written
        self._tail.clear()
