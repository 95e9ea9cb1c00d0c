"""Mounts private to a test: shared memory of a chosen size, and read-only directories.

It requires root. The mounts belong to a thread, and end when that and all processes that it has started have ended.
"""

import ctypes
import os
import subprocess
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - one of the caller's own
_CLONE_NEWNS = 0x00020000


def may_mount() -> bool:
    """Return whether this machine allows private mounts for a test."""
    return subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False).returncode == 0


def with_shared_memory(size_bytes: int, do: Callable[[], None]) -> None:
    """Call ``do`` in a thread for which /dev/shm is a file system of its own, of that size, and empty."""
    with_mounts([small(SHARED_MEMORY, size_bytes)], do)


def small(path: Path, size_bytes: int) -> list[str]:
    """Return the arguments of mount that put an empty file system of that size at a path."""
    return ["-t", "tmpfs", "-o", f"size={size_bytes}", "tmpfs", str(path)]


def read_only(path: Path) -> list[list[str]]:
    """Return the arguments of two mount calls that make a directory read-only."""
    return [["--bind", str(path), str(path)], ["-o", "remount,bind,ro", str(path)]]


def with_mounts(mounts: Sequence[Sequence[str]], do: Callable[[], None]) -> None:
    """Call ``do`` in a thread that has these mounts for itself; each is the arguments of a call of mount."""

    def inside() -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.unshare(_CLONE_NEWNS):
            raise OSError(ctypes.get_errno(), "unshare")
        for arguments in (["--make-rprivate", "/"], *mounts):
            subprocess.run(["mount", *arguments], check=True)
        do()

    with ThreadPoolExecutor(1) as pool:
        pool.submit(inside).result()


def fill(directory: Path = SHARED_MEMORY, leave_bytes: int = 0) -> Path:
    """Fill the file system except for so many bytes; return the file that fills it."""
    path = directory / "filler"
    with path.open("wb") as file:
        space = os.fstatvfs(file.fileno())
        os.posix_fallocate(file.fileno(), 0, space.f_bavail * space.f_frsize - leave_bytes)
    return path


def held() -> dict[str, int]:
    """Return the objects there, with the memory each has."""
    return {path.name: path.stat().st_blocks * 512 for path in SHARED_MEMORY.iterdir()}
