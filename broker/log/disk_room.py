"""A probe for room on the data directory's file system: it writes a little, because no figure of a disk shows a quota.

Descriptors are a kind of room too: without one no file is written, and they come back as those of a disk do.

Used by whoever has met a full disk and wants to know when to go on, and before what must not fail half-way.
"""

import errno
import os
from pathlib import Path
from typing import Final

#: This process, or the system, has no descriptors left.
NO_DESCRIPTOR: Final = frozenset({errno.EMFILE, errno.ENFILE})

#: Writes that fail with these succeed again when something has been removed: no space, a quota, a limit of file sizes.
NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG}) | NO_DESCRIPTOR

#: What must be free before records are taken again.
LEAST_BYTES: Final = 256 * 1024
#: How many descriptors must be there too: opening a log takes a few at a time.
LEAST_DESCRIPTORS: Final = 16


def has_room(directory: Path, size_bytes: int = LEAST_BYTES) -> bool:
    """Return whether `size_bytes` can be had now in a file of `directory`, and the descriptors that a write takes."""
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
    """Return a descriptor of a file that is gone when it is closed. Raises OSError."""
    try:
        return os.open(directory, os.O_TMPFILE | os.O_WRONLY | os.O_CLOEXEC, 0o600)
    except IsADirectoryError:
        pass  # a kernel that does not know such files
    except OSError as error:
        if error.errno != errno.EOPNOTSUPP:
            raise
    path = directory / f".room-{os.getpid()}.tmp"
    fd = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    path.unlink()
    return fd
