"""The size of the shared memory for large requests where it is not configured. Queries the system."""

from __future__ import annotations

import os

DEFAULT_ARENA_BYTES = 32 * 1024 * 1024
#: Minimum where everything else uses up the memory: larger requests then use their processor's spill area.
LEAST_ARENA_BYTES = 1024 * 1024
_SHARED_MEMORY_FILES = "/dev/shm"  # noqa: S108 - where the system keeps shared memory; no file is made here


def arena_bytes(wanted_bytes: int, others_bytes: int = 0) -> int:
    """Return the size of the shared memory, all processors together. ``wanted_bytes`` is `queued.max.request.bytes`.

    ``others_bytes`` is the need of everything else; many processes on a small machine use nearly all of it.
    """
    if wanted_bytes != -1:
        return wanted_bytes
    free_bytes = free_shared_memory_bytes()
    return max(LEAST_ARENA_BYTES, min(DEFAULT_ARENA_BYTES, free_bytes // 2, free_bytes - others_bytes))


def free_shared_memory_bytes() -> int:
    try:
        state = os.statvfs(_SHARED_MEMORY_FILES)
    except OSError:
        return 2 * DEFAULT_ARENA_BYTES
    return state.f_bavail * state.f_frsize
