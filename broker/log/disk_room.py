"""Probes the data directory's file system for free space by a small write, because disk statistics omit quotas.

File descriptors count as space too: without one no file can be written, and a shortage passes like one of disk space.
Used after a write that failed for lack of space, to detect when to resume, and before operations that must not fail
half-way.
"""

import errno
import os
from pathlib import Path
from typing import Final

#: This process, or the system, is out of descriptors.
NO_DESCRIPTOR: Final = frozenset({errno.EMFILE, errno.ENFILE})

#: Writes that fail with these errors succeed again after a deletion: disk full, quota, file size limit.
NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG}) | NO_DESCRIPTOR

#: Bytes that must be free before appends are accepted again.
LEAST_BYTES: Final = 256 * 1024
#: Descriptors that must be free too: opening a log uses several at a time.
LEAST_DESCRIPTORS: Final = 16


def has_room(directory: Path, size_bytes: int = LEAST_BYTES) -> bool:
    """Return whether a file in `directory` can allocate `size_bytes` now, and a write has enough descriptors."""
    fds: list[int] = []
    try:
        fds.append(_nameless(directory))
        os.posix_fallocate(fds[0], 0, size_bytes)
        while len(fds) < LEAST_DESCRIPTORS:
            fds.append(os.dup(fds[0]))
    except OSError:
        return False
    finally:
        for fd in fds:
            os.close(fd)
    return True


def _nameless(directory: Path) -> int:
    """Return a descriptor of an unnamed file, which is deleted when it is closed. Raises OSError."""
    try:
        return os.open(directory, os.O_TMPFILE | os.O_WRONLY | os.O_CLOEXEC, 0o600)
    except IsADirectoryError:
        pass  # a kernel without O_TMPFILE
    except OSError as error:
        if error.errno != errno.EOPNOTSUPP:
            raise
    path = directory / f".room-{os.getpid()}.tmp"
    fd = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    path.unlink()
    return fd
