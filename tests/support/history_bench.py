"""A recorder that records the history, over byte arrays: the test plays the processes that it watches."""

from pathlib import Path
from typing import Any

from rotunda.broker.ipc.listener_table import ListenerEntry
from rotunda.broker.request_log.history.events import EventSources, EventWatch
from rotunda.broker.request_log.history.minutes import History, HistorySources
from rotunda.shm.storage import StorageReading, StorageState
from rotunda.shm.tables.partitions import PartitionTable
from tests.support.roles_bench import RolesBench

MINUTE_MS = 60_000
#: Rows of the partition table.
ROWS = 8


class HistoryBench(RolesBench):
    """One processor and one handler; it begins in the middle of an hour. There is no metadata file."""

    def __init__(self, root: Path, **settings: object) -> None:
        super().__init__(root, **settings)
        self.table = PartitionTable(memoryview(bytearray(PartitionTable.bytes_needed(ROWS, 1))), 0, ROWS, 1)
        self.storage = StorageReading(StorageState.ROOM, 1 << 40, {})
        self.listeners = [ListenerEntry("PLAINTEXT", "PLAINTEXT", "here", 9092)]
        self.metadata = root / "no-metadata"
        self.metadata_version = 0
        self.record()

    def record(self, *, is_first: bool = True) -> History:
        """Have the recorder record the history, as it does from its start on; for a later one of the same broker."""
        pages = self.metrics.readers_by_process()
        events = EventSources(
            self.slots,
            pages["processor", 0],
            lambda: self.storage,
            self.listeners,
            self.metadata,
            lambda: self.metadata_version,
        )
        watch = EventWatch(events, replaces_killed=not is_first)
        sources = HistorySources(pages, self.slots, self.table, self.roles.peaks, self.root)
        self.watched = History(sources, watch, self.clock.wall_ms() * 1000, is_first=is_first)
        self.recorder.record_history(self.watched)
        return self.watched

    def finish_requests(self, api: int, count: int, us: int = 10, error: int = 0, size: int = 100) -> None:
        """Have the processor count finished requests of a duration, spent in the handler; the recorder notices."""
        self.count(self.processor, "requests_received", count)
        for _ in range(count):
            for phase in ("local", "total"):
                self.processor.record(self.processor.phase(api, phase), us * 1000)
            self.processor.record(self.processor.histogram("request_bytes", api), size)
        self.processor.table("request_errors").add((api, error), count)
        self.run_once()

    def history(self, kind: str) -> list[dict[str, Any]]:
        """Return the rows of a kind in the finished files, by time and name."""
        found = [row for row in self.read("history") if row["kind"] == kind]
        return sorted(found, key=lambda row: (row["time"], row["name"]))

    def minute(self, kind: str) -> list[dict[str, Any]]:
        """End the minute, in which there is at least one request; return all rows of a kind."""
        self.finish_requests(18, 1)
        self.run_once(MINUTE_MS)
        return self.history(kind)
