"""Open segment files, found by path and inode, for reading byte ranges of them.

Processors send ranges to sockets, handlers read short ones into the answer. Neither knows more of a segment than the
path, inode and range that the log's reader named. The inode is what makes a path safe: a segment that was deleted,
compacted or re-created under the same name is another file.
"""

from __future__ import annotations

import os
import resource
from collections import OrderedDict
from pathlib import Path

#: Files kept open, an eighth of the limit of open files where that is less. A file that falls out stays open while an
#: unfinished answer refers to it.
MAX_OPEN_FILES = 512

#: The inode that names a file made for one answer only: opened once and unlinked.
ONE_ANSWER = -1

#: What the log appends to the name of a segment that is about to be removed; behind the inode, if another has its name.
DELETED_SUFFIX = ".deleted"


class OpenFile:
    """A file descriptor that is closed with its last reference."""

    __slots__ = ("fd",)

    def __init__(self, path: str) -> None:
        self.fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)

    def __del__(self) -> None:
        # The attribute is missing when opening failed.
        fd = getattr(self, "fd", -1)
        if fd >= 0:
            os.close(fd)


class SegmentFiles:
    """A least-recently-used set of open files, keyed by inode.

    A file that is open here keeps its inode from being used again, and its room on the disk from being freed: a process
    that owns a set calls ``forget_removed`` now and then.
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
        """Return the file with this inode. Raises FileNotFoundError when it is at none of its possible names."""
        file = self.known(inode)
        if file is not None:
            return file
        if inode == ONE_ANSWER:
            file = OpenFile(path)
            Path(path).unlink()
            return file
        file = self._open_exactly(path, inode)
        self._files[inode] = file
        if len(self._files) > self._most:
            self._files.popitem(last=False)
        return file

    def forget_removed(self) -> None:
        """Let go of files that have been deleted, so that their room on the disk is free again."""
        removed = [inode for inode, file in self._files.items() if os.fstat(file.fd).st_nlink == 0]
        for inode in removed:
            del self._files[inode]

    @staticmethod
    def discard(path: str, inode: int) -> None:
        """Remove what was made for an answer that nobody takes; files of the log stay where they are."""
        if inode == ONE_ANSWER:
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
        raise FileNotFoundError(f"{path}: no file with inode {inode} there any more")
