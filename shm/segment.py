"""Segments of shared memory: created and unlinked by the supervisor, inherited by children, attached by others.

A segment is a `posix_ipc.SharedMemory` mapping with a header (layout.SEGMENT_HEADER) before its usable bytes. Every
byte is allocated before use: a store to a page that does not fit /dev/shm would be a SIGBUS. Memory for later can be
left out as a hole, which is not allocated until `Segment.allocate` fills it. The ready word is stored last. Names are
`/rotunda-<instance>-<purpose>`; the instance names its owner (`new_instance`), so that the remains of a crashed run,
named semaphores included, can be distinguished from a living one's.
"""

from __future__ import annotations

import errno
import mmap
import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import posix_ipc

from rotunda.shm.layout import LAYOUT_VERSION, SEGMENT_HEADER, SEGMENT_MAGIC

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

_SHM_DIRECTORY = Path("/dev/shm")  # noqa: S108  where Linux keeps POSIX shared memory, not a temporary file of ours
_SEMAPHORE_PREFIX = "sem."
_START_TICKS_FIELD = 19  # of /proc/<pid>/stat, counted after the command name's closing parenthesis
_MAGIC = SEGMENT_HEADER.word("magic")
_VERSION = SEGMENT_HEADER.word("layout_version")
_READY = SEGMENT_HEADER.word("ready")
_NO_ROOM = {errno.ENOSPC, errno.EFBIG, errno.ENOMEM, errno.EDQUOT}


class SegmentError(Exception):
    """A segment cannot be used; the subclass is the reason."""


class SegmentAbsent(SegmentError):  # noqa: N818  named for what is the case
    """No segment of that name exists."""


class SegmentExists(SegmentError):  # noqa: N818  named for what is the case
    """A segment of that name exists already."""


class SegmentNotReady(SegmentError):  # noqa: N818  named for what is the case
    """Its creator has not finished it (or died before it could)."""


class SegmentWrongVersion(SegmentError):  # noqa: N818  named for what is the case
    """Its layout is not that of this version of the package."""


class SharedMemoryTooSmall(SegmentError):  # noqa: N818  named for what is the case
    """The file system of shared memory is too small for a segment."""

    def __init__(self, name: str, needed_bytes: int, available_bytes: int) -> None:
        self.needed = needed_bytes
        self.available = available_bytes
        self.hint = (
            "give /dev/shm more room (docker run --shm-size, or mount -o remount,size=), or lower "
            "queued.max.request.bytes, num.network.threads or num.io.threads"
        )
        super().__init__(f"shared memory {name} needs {needed_bytes} bytes, {available_bytes} are left: {self.hint}")


class Segment:
    """One mapping. `view` is the usable bytes (without the header), `words` the same as 64-bit words."""

    __slots__ = ("_header", "_mapping_view", "name", "size", "view", "words")

    def __init__(self, name: str, mapping: mmap.mmap) -> None:
        self.name = name
        self._mapping_view = memoryview(mapping)
        self._header = self._mapping_view[: SEGMENT_HEADER.size].cast("q")
        self.view = self._mapping_view[SEGMENT_HEADER.size :]
        self.size = self.view.nbytes
        self.words = self.view.cast("q")

    def close(self) -> None:
        """Close the mapping in this process; it ends with the last view made of it."""
        for view in (self.words, self.view, self._header, self._mapping_view):
            view.release()

    def allocate(self, start: int, size: int) -> None:
        """Fill a hole: allocate usable bytes, zeroed if new. Raises SharedMemoryTooSmall.

        For the segment's creator.
        """
        memory = posix_ipc.SharedMemory(self.name)
        try:
            _allocate(memory.fd, self.name, SEGMENT_HEADER.size + start, size)
        finally:
            memory.close_fd()

    def unlink(self) -> None:
        """Remove the name; existing mappings stay valid. Not an error when it does not exist."""
        with suppress(posix_ipc.ExistentialError):
            posix_ipc.unlink_shared_memory(self.name)

    def _mark_ready(self) -> None:
        # SYNC: the contents before the ready word; pairs with the load in attach.
        self._header[_READY] = 1


def create(
    name: str,
    size: int,
    initialise: Callable[[memoryview], None] | None = None,
    holes: Iterable[tuple[int, int]] = (),
) -> Segment:
    """Make, zero and map a segment with `size` usable bytes (a multiple of 8), all allocated but (start, size) holes.

    `initialise(view)` fills in its contents before another process can attach. Raises SharedMemoryTooSmall (after
    removing the segment), SegmentExists, ValueError for an invalid size.
    """
    if size <= 0 or size % 8:
        raise ValueError(f"segment size {size} is not a positive multiple of 8")
    total = SEGMENT_HEADER.size + size
    try:
        memory = posix_ipc.SharedMemory(name, posix_ipc.O_CREX, mode=0o600)
    except posix_ipc.ExistentialError:
        raise SegmentExists(name) from None
    except posix_ipc.PermissionsError:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), f"{_SHM_DIRECTORY}{name}") from None
    try:
        os.ftruncate(memory.fd, total)
        for start, length in _between(holes, total):
            _allocate(memory.fd, name, start, length)
        header = SEGMENT_HEADER.struct.pack(
            SEGMENT_MAGIC, LAYOUT_VERSION, os.getpid(), start_ticks(os.getpid()) or 0, size, 0
        )
        os.pwrite(memory.fd, header, 0)
        segment = Segment(name, mmap.mmap(memory.fd, total))
        if initialise is not None:
            initialise(segment.view)
    except BaseException:
        posix_ipc.unlink_shared_memory(name)
        raise
    finally:
        memory.close_fd()
    segment._mark_ready()
    return segment


def _between(holes: Iterable[tuple[int, int]], total: int) -> Iterator[tuple[int, int]]:
    """Yield the parts before, between and after the holes as (start in the file, bytes)."""
    at = 0
    for start, size in sorted(holes):
        if SEGMENT_HEADER.size + start > at:
            yield at, SEGMENT_HEADER.size + start - at
        at = SEGMENT_HEADER.size + start + size
    if total > at:
        yield at, total - at


def _allocate(fd: int, name: str, start: int, size: int) -> None:
    """Allocate every page. The free space is checked first: filling /dev/shm would harm other programs."""
    space = os.fstatvfs(fd)
    available = space.f_bavail * space.f_frsize
    if size > available:
        raise SharedMemoryTooSmall(name, size, available)
    try:
        os.posix_fallocate(fd, start, size)
    except OSError as error:
        if error.errno in _NO_ROOM:
            raise SharedMemoryTooSmall(name, size, available) from None
        raise


def attach(name: str, writable: bool = False) -> Segment:
    """Map a segment that another process made; read-only unless `writable`.

    Raises SegmentAbsent, SegmentNotReady or SegmentWrongVersion.
    """
    try:
        memory = posix_ipc.SharedMemory(name, read_only=not writable)
    except posix_ipc.ExistentialError:
        raise SegmentAbsent(name) from None
    try:
        total = os.fstat(memory.fd).st_size
        if total <= SEGMENT_HEADER.size:
            raise SegmentNotReady(name)
        access = mmap.ACCESS_WRITE if writable else mmap.ACCESS_READ
        segment = Segment(name, mmap.mmap(memory.fd, total, access=access))
    finally:
        memory.close_fd()
    # SYNC: the ready word before the rest; pairs with the store in Segment._mark_ready.
    ready = segment._header[_READY]
    magic, version = segment._header[_MAGIC], segment._header[_VERSION]
    if ready and magic == SEGMENT_MAGIC and version == LAYOUT_VERSION:
        return segment
    segment.close()
    if magic == SEGMENT_MAGIC and version != LAYOUT_VERSION:
        raise SegmentWrongVersion(f"{name}: layout {version}, this is {LAYOUT_VERSION}")
    if magic and magic != SEGMENT_MAGIC:
        raise SegmentWrongVersion(f"{name}: not one of our segments")
    raise SegmentNotReady(name)


def start_ticks(pid: int) -> int | None:
    """Return the clock ticks since boot at which the process started; None when it does not exist."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return int(stat[stat.rindex(b")") + 2 :].split()[_START_TICKS_FIELD])


def new_instance() -> str:
    """Return a name for a run of the broker with its owner: the caller's `<pid>.<start ticks>`."""
    return f"{os.getpid()}.{start_ticks(os.getpid())}"


def remove_stale(prefix: str = "rotunda-") -> list[str]:
    """Remove segments and semaphores whose owner is dead; return the removed names, as files of /dev/shm.

    The owner of a name `<prefix><instance>-<purpose>` is in its instance when `new_instance` made that, else in the
    segment's header; a semaphore of another kind of instance is stale when no living segment of that instance exists.
    Names of other users are skipped.
    """
    names = sorted(os.listdir(_SHM_DIRECTORY))
    segments = [name for name in names if name.startswith(prefix)]
    semaphores = [name for name in names if name.startswith(_SEMAPHORE_PREFIX + prefix)]
    stale = [name for name in segments if not _owner_lives(name, prefix)]
    living = {_instance(name, prefix) for name in segments if name not in stale}
    for name in semaphores:
        instance = _instance(name.removeprefix(_SEMAPHORE_PREFIX), prefix)
        if not (_named_owner_lives(instance) or instance in living):
            stale.append(name)
    removed = []
    for name in stale:
        with suppress(FileNotFoundError, PermissionError):
            (_SHM_DIRECTORY / name).unlink()
            removed.append(name)
    return removed


def _instance(name: str, prefix: str) -> str:
    return name.removeprefix(prefix).partition("-")[0]


def _named_owner_lives(instance: str) -> bool | None:
    """Return whether the owner in the instance's name is alive; None without one."""
    pid, _, ticks = instance.partition(".")
    if not (pid.isdecimal() and ticks.isdecimal()):
        return None
    return start_ticks(int(pid)) == int(ticks)


def _owner_lives(name: str, prefix: str) -> bool:
    named = _named_owner_lives(_instance(name, prefix))
    if named is not None:
        return named
    try:
        with open(_SHM_DIRECTORY / name, "rb") as file:
            header = file.read(SEGMENT_HEADER.size)
    except (FileNotFoundError, PermissionError):
        return True
    if len(header) < SEGMENT_HEADER.size:
        return True  # may be in creation at this moment; it uses no memory
    magic, _, pid, ticks, _, _ = SEGMENT_HEADER.struct.unpack(header)
    return bool(magic != SEGMENT_MAGIC or start_ticks(pid) == ticks)
