"""Shared memory of a size that a test chooses: what it does, and whom it starts, sees another /dev/shm than all others.

It takes root. The mount belongs to a thread, and is gone when that and all processes that it has started have ended.
"""

import ctypes
import os
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - one of the caller's own
_CLONE_NEWNS = 0x00020000


def may_mount() -> bool:
    """Return whether this machine lets a test have mounts of its own."""
    return subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False).returncode == 0


def with_shared_memory(size_bytes: int, do: Callable[[], None]) -> None:
    """Call ``do`` in a thread for which /dev/shm is a file system of its own, of that size, and empty."""

    def inside() -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.unshare(_CLONE_NEWNS):
            raise OSError(ctypes.get_errno(), "unshare")
        of_size = ["-t", "tmpfs", "-o", f"size={size_bytes}", "tmpfs", str(SHARED_MEMORY)]
        for arguments in (["--make-rprivate", "/"], of_size):
            subprocess.run(["mount", *arguments], check=True)
        do()

    with ThreadPoolExecutor(1) as pool:
        pool.submit(inside).result()


def fill(leave_bytes: int = 0) -> Path:
    """Take all of the caller's shared memory but so much; return the file that has it."""
    path = SHARED_MEMORY / "filler"
    with path.open("wb") as file:
        space = os.fstatvfs(file.fileno())
        os.posix_fallocate(file.fileno(), 0, space.f_bavail * space.f_frsize - leave_bytes)
    return path


def held() -> dict[str, int]:
    """Return what is there, and how much of the memory each has."""
    return {path.name: path.stat().st_blocks * 512 for path in SHARED_MEMORY.iterdir()}
