"""The time that processes and threads have had on processors, in user mode and in the kernel, read from /proc.

Unlike a rate it does not depend on how busy the machine is otherwise.
"""

import os
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

SETTLE_SECONDS = 2.0
_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
#: Places in a `stat` file after the name, which may itself contain spaces.
_USER, _SYSTEM = 11, 12


class Spent(NamedTuple):
    """Processor time in seconds."""

    user: float
    system: float

    def plus(self, other: "Spent") -> "Spent":
        return Spent(self.user + other.user, self.system + other.system)

    def minus(self, other: "Spent") -> "Spent":
        """Return the difference, at least zero: a thread that has ended is no longer counted."""
        return Spent(max(self.user - other.user, 0.0), max(self.system - other.system, 0.0))


NOTHING = Spent(0.0, 0.0)


def of_process(pid: int) -> Spent:
    """Return the processor time of a process with all its threads, ended ones included; zero once it has ended.

    The recorder is replaced by a new process now and then, which frees memory.
    """
    try:
        return _read(Path(f"/proc/{pid}/stat"))
    except (FileNotFoundError, ProcessLookupError):
        return NOTHING


def of_threads(pid: int, threads: Iterable[int]) -> Spent:
    """Return the processor time of some threads of a process; those that have ended count as zero."""
    total = NOTHING
    for thread in threads:
        try:
            total = total.plus(_read(Path(f"/proc/{pid}/task/{thread}/stat")))
        except (FileNotFoundError, ProcessLookupError):
            continue
    return total


def total(each: Iterable[Spent]) -> Spent:
    found = NOTHING
    for spent in each:
        found = found.plus(spent)
    return found


def since(before: Mapping[str, Spent], after: Mapping[str, Spent]) -> dict[str, Spent]:
    """Return the processor time of each part between two readings."""
    return {part: spent.minus(before[part]) for part, spent in after.items()}


def added(one: Mapping[str, Spent], other: Mapping[str, Spent]) -> dict[str, Spent]:
    return {part: one.get(part, NOTHING).plus(other.get(part, NOTHING)) for part in {**one, **other}}


def nanoseconds(pids: Iterable[int]) -> int:
    """Return the time on a processor of all the living threads of some processes, more exactly than the others."""
    tasks = (task for pid in pids for task in Path(f"/proc/{pid}/task").iterdir())
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks)


def idle_percent(pids: Iterable[int], seconds: float) -> float:
    """Return the percentage of one core that processes use over `seconds`, once things have settled."""
    time.sleep(SETTLE_SECONDS)
    before_ns, begin = nanoseconds(pids), time.monotonic_ns()
    time.sleep(seconds)
    return 100.0 * (nanoseconds(pids) - before_ns) / (time.monotonic_ns() - begin)


def _read(stat: Path) -> Spent:
    fields = stat.read_text().rpartition(")")[2].split()
    return Spent(int(fields[_USER]) / _TICKS_PER_SECOND, int(fields[_SYSTEM]) / _TICKS_PER_SECOND)
