"""One reading of everything: plain copies, made without disturbing the writers.

The only module of the page that touches shared memory and the process table. Values are raw; `web.facts.snapshot`
interprets them.
"""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import psutil

from rotunda.web.sources import PartitionFacts, TopicFacts

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from rotunda.broker.metrics.broker_reading import BrokerReading
    from rotunda.shm.metrics.process_metrics import MetricsReading
    from rotunda.shm.tables.recent_requests import Recent
    from rotunda.web.sources import Sources

#: Least time between two reads of PSS: adding up a process's pages holds its memory map for a moment.
PSS_INTERVAL_NS = 5_000_000_000

#: After a reading, processes continue for this long to publish their on-demand data.
WANTED_NS = 5_000_000_000


class Usage(NamedTuple):
    """A process's usage: CPU time since its start, and its share of memory (None: unknown)."""

    cpu_s: float
    pss_bytes: int | None
    threads: int
    descriptors: int


@dataclass(frozen=True, slots=True)
class Reading:
    """All values at one time. `pages` by role and index, `usage` by process id, `connections` by processor."""

    broker: BrokerReading
    pages: dict[tuple[str, int], MetricsReading]
    topics: list[TopicFacts]
    connections: dict[int, dict[str, Any]]
    usage: dict[int, Usage]
    recent: Recent | None
    disk_free_bytes: int
    disk_bytes: int

    @property
    def time_ns(self) -> int:
        """The monotonic time of the reading."""
        return self.broker.time_ns

    def wall_time_ms(self, monotonic_ns: int) -> int:
        """Return a monotonic time of this machine as wall-clock time."""
        return self.broker.wall_ms - (self.time_ns - monotonic_ns) // 1_000_000


class ProcessTable:
    """CPU and memory of the broker's processes, from the system."""

    def __init__(self) -> None:
        self._known: dict[int, psutil.Process] = {}
        self._pss: dict[int, int] = {}
        self._pss_read_ns = 0

    def read(self, pids: list[int], now_ns: int) -> dict[int, Usage]:
        """Return the usage of the existing processes."""
        self._known = {pid: process for pid, process in self._known.items() if pid in pids}
        fresh = now_ns - self._pss_read_ns >= PSS_INTERVAL_NS
        if fresh:
            self._pss_read_ns = now_ns
        usage = {}
        for pid in pids:
            with suppress(psutil.Error, OSError):
                process = self._known.setdefault(pid, psutil.Process(pid))
                if fresh or pid not in self._pss:
                    self._pss[pid] = process.memory_full_info().pss
                with process.oneshot():
                    cpu = process.cpu_times()
                    used_s = cpu.user + cpu.system
                    usage[pid] = Usage(used_s, self._pss.get(pid), process.num_threads(), process.num_fds())
        return usage


class Reader:
    """Makes readings."""

    def __init__(self, sources: Sources, look: Callable[[int], None]) -> None:
        """Prepare; `look` publishes the monotonic time until which a reader needs data."""
        self._sources = sources
        self._look = look
        self._looks_until_ns = 0
        self._process_table = ProcessTable()

    def look(self, for_ns: int) -> None:
        """Publish that a viewer needs data for this long from now on."""
        self._looks_until_ns = max(self._looks_until_ns, time.monotonic_ns() + for_ns)
        self._look(self._looks_until_ns)

    def read(self) -> Reading:
        """Return all values at this moment."""
        sources = self._sources
        self.look(WANTED_NS)
        broker = sources.reader.read()
        free_bytes, all_bytes = _disk(sources.disk)
        return Reading(
            broker=broker,
            pages={(page.role, page.index): page for page in broker.pages},
            topics=[
                TopicFacts(name, internal, tuple(PartitionFacts(*each) for each in partitions))
                for name, internal, partitions in sources.reader.topics()
            ],
            connections=sources.reader.connections(),
            usage=self._process_table.read([each.pid for each in broker.processes if each.pid], broker.time_ns),
            recent=sources.recent.read(),
            disk_free_bytes=free_bytes,
            disk_bytes=all_bytes,
        )


def _disk(path: Path) -> tuple[int, int]:
    """Return the free bytes and the size of a disk; zeros if the path does not exist."""
    try:
        usage = psutil.disk_usage(str(path))
    except OSError:
        return 0, 0
    return usage.free, usage.total
