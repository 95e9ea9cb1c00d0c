"""The cost of an idle broker: processor time and memory, read from /proc."""

import time
from pathlib import Path

SETTLE_SECONDS = 2.0


def idle_cpu_percent(pids: tuple[int, ...], seconds: float) -> float:
    """Return the percentage of one core that the processes use over `seconds`, once things have settled."""
    time.sleep(SETTLE_SECONDS)
    before_ns, begin = cpu_ns(pids), time.monotonic_ns()
    time.sleep(seconds)
    return 100.0 * (cpu_ns(pids) - before_ns) / (time.monotonic_ns() - begin)


def cpu_ns(pids: tuple[int, ...]) -> int:
    """Return the time on a processor of all the processes together (every thread of each)."""
    total = 0
    for pid in pids:
        for task in Path(f"/proc/{pid}/task").iterdir():
            total += int((task / "schedstat").read_text().split()[0])
    return total


def memory_mb(pids: tuple[int, ...]) -> float:
    """Return the proportional set size of all the processes together, shared pages counted once."""
    total_kb = 0
    for pid in pids:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                total_kb += int(line.split()[1])
    return total_kb / 1024
