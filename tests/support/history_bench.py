"""A recorder that records the history, over byte arrays: the test plays the processes that it watches."""

from pathlib import Path
from typing import Any

from rotunda.broker.request_log.history import History, HistorySources
from tests.support.roles_bench import RolesBench

MINUTE_MS = 60_000


class HistoryBench(RolesBench):
    """One processor and one handler; it begins on a whole minute."""

    def __init__(self, root: Path, **settings: object) -> None:
        super().__init__(root, **settings)
        self.record()

    def record(self) -> None:
        """Have the recorder record the history, as it does from its start on."""
        sources = HistorySources(self.metrics.readers_by_process())
        self.recorder.record_history(History(sources, self.clock.wall_ms() * 1000))

    def finish_requests(self, api: int, count: int, us: int, error: int = 0, size: int = 100) -> None:
        """Have the processor count finished requests of a duration, which they spent in the handler."""
        self.count(self.processor, "requests_received", count)
        for _ in range(count):
            for phase in ("local", "total"):
                self.processor.record(self.processor.phase(api, phase), us * 1000)
            self.processor.record(self.processor.histogram("request_bytes", api), size)
        self.processor.table("request_errors").add((api, error), count)

    def history(self, kind: str) -> list[dict[str, Any]]:
        """Return the rows of a kind in the finished files, by time and name."""
        found = [row for row in self.read("history") if row["kind"] == kind]
        return sorted(found, key=lambda row: (row["time"], row["name"]))
