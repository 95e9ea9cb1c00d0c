"""Open segment files, found by path and inode, for reading byte ranges.

Processors send ranges to sockets; handlers read short ones into the response. Neither knows more of a segment than the
path, inode and range from the log's reader. The inode makes the path safe: a segment that was deleted, compacted or
re-created under the same name is another file.
"""

from __future__ import annotations

import os
import resource
from collections import OrderedDict
from pathlib import Path

#: Cached files, or an eighth of the limit of open files if that is lower. An evicted file stays open while an
#: unfinished response refers to it.
MAX_OPEN_FILES = 512

#: The inode of a file made for one response only: opened once and unlinked.
ONE_RESPONSE = -1

#: Suffix of the name of a segment about to be removed; after the inode, if another file has the plain name.
DELETED_SUFFIX = ".deleted"


class OpenFile:
    """A file descriptor that is closed with its last reference."""

    __slots__ = ("fd",)

    def __init__(self, path: str) -> None:
        self.fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)

    def __del__(self) -> None:
        # The attribute is missing if opening failed.
        fd = getattr(self, "fd", -1)
        if fd >= 0:
            os.close(fd)


class SegmentFiles:
    """A least-recently-used cache of open files, keyed by inode.

    An open file keeps its inode from being reused, and its space on the disk from being freed: a process that owns a
    cache calls ``forget_removed`` periodically.
    """

    def __init__(self) -> None:
        self._files: OrderedDict[int, OpenFile] = OrderedDict()
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        self._most = MAX_OPEN_FILES if limit < 0 else min(MAX_OPEN_FILES, max(1, limit // 8))

    def known(self, inode: int) -> OpenFile | None:
        """Return the file with this inode if it is open. HOT."""
        file = self._files.get(inode)
        if file is not None:
            self._files.move_to_end(inode)
        return file

    def open(self, path: str, inode: int) -> OpenFile:
        """Return the file with this inode. Raises FileNotFoundError if none of its possible names has it."""
        file = self.known(inode)
        if file is not None:
            return file
        if inode == ONE_RESPONSE:
            file = OpenFile(path)
            Path(path).unlink()
            return file
        file = self._open_exactly(path, inode)
        self._files[inode] = file
        if len(self._files) > self._most:
            self._files.popitem(last=False)
        return file

    def forget_removed(self) -> None:
        """Close deleted files, to free their space on the disk."""
        removed = [inode for inode, file in self._files.items() if os.fstat(file.fd).st_nlink == 0]
        for inode in removed:
            del self._files[inode]

    @staticmethod
    def discard(path: str, inode: int) -> None:
        """Remove the file of a response that is never sent; files of the log are not touched."""
        if inode == ONE_RESPONSE:
            Path(path).unlink(missing_ok=True)

    @staticmethod
    def _open_exactly(path: str, inode: int) -> OpenFile:
        for name in (path, path + DELETED_SUFFIX, f"{path}.{inode}{DELETED_SUFFIX}"):
            try:
                file = OpenFile(name)
            except FileNotFoundError:
                continue
            if os.fstat(file.fd).st_ino == inode:
                return file
        raise FileNotFoundError(f"{path}: no longer the file with inode {inode}")
