"""The usage of a process by the system's counters: CPU time, time in the run queue, memory.

Runs in the recorder. Values that cannot be read, for a dead process or an unsupported system, are None.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final, NamedTuple

_US_PER_TICK: Final = 1_000_000 // os.sysconf("SC_CLK_TCK")

#: Fields of /proc/<pid>/stat after the command name's closing parenthesis: user ticks; system ticks follow.
_USER_TICKS: Final = 11

_ROLLUP_UNIT_BYTES: Final = 1024


class Usage(NamedTuple):
    """Usage of one process since its start, in microseconds, and its pid."""

    pid: int
    cpu_us: int | None = None
    run_queue_us: int | None = None


def cpus() -> int:
    """Return the number of CPUs that this process, and so the broker, may use."""
    return len(os.sched_getaffinity(0))


def usage_of(pid: int) -> Usage:
    """Return the usage of a process so far; a pid of 0 is no process."""
    if not pid:
        return Usage(0)
    return Usage(pid, _cpu_us(pid), _run_queue_us(pid))


def growth(before: int | None, after: int | None, *, is_same: bool) -> int | None:
    """Return the usage between two readings; for a process started between them, all its usage."""
    if after is None or not is_same:
        return after
    return None if before is None else max(0, after - before)


def pss_bytes(pid: int) -> int | None:
    """Return the proportional memory of a process: shared pages count in equal parts for all their processes."""
    for line in _read(pid, "smaps_rollup").splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * _ROLLUP_UNIT_BYTES
    return None


def _cpu_us(pid: int) -> int | None:
    fields = _read(pid, "stat").rpartition(")")[2].split()
    if len(fields) <= _USER_TICKS + 1:
        return None
    return (int(fields[_USER_TICKS]) + int(fields[_USER_TICKS + 1])) * _US_PER_TICK


def _run_queue_us(pid: int) -> int | None:
    fields = _read(pid, "schedstat").split()
    return int(fields[1]) // 1000 if len(fields) > 1 else None


def _read(pid: int, name: str) -> str:
    """Return a file of a process; empty when it cannot be read."""
    if not pid:
        return ""
    try:
        return Path(f"/proc/{pid}/{name}").read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""
