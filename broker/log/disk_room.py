"""A probe for room on the data directory's file system: it writes a little, because no figure of a disk shows a quota.

Used by whoever has met a full disk and wants to know when to go on, and before what must not fail half-way.
"""

import errno
import os
from pathlib import Path
from typing import Final

#: Writes that fail with these succeed again when something has been removed: no space, a quota, a limit of file sizes.
NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})

#: What must be free before records are taken again.
LEAST_BYTES: Final = 256 * 1024


def has_room(directory: Path, size_bytes: int = LEAST_BYTES) -> bool:
    """Return whether `size_bytes` can be had now in a file of `directory`."""
    try:
        fd = _nameless(directory)
    except OSError:
        return False
    try:
        os.posix_fallocate(fd, 0, size_bytes)
    except OSError:
        return False
    finally:
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
    fd = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o600)
    path.unlink()
    return fd
