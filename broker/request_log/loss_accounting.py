"""The accounting of lost rows: converts the sources' counters to rows of the dataset gaps.

Runs in the recorder. A counter of recorded losses is raised only when its row is in a finished file, so a recorder that
is killed before that leaves the loss to its replacement.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from rotunda.broker.request_log.ring_reader import Intake
    from rotunda.broker.request_log.row_buffers import RowBuffer, Settlement
    from rotunda.shm.rings.recorder_rings import RecorderRings

#: (counter of the source, counter of recorded losses, is it events, cause).
_LOSSES = (
    ("rows_dropped", "rows_dropped_told", False, "ring_full"),
    ("rows_lost", "rows_lost_told", False, "processor_killed"),
    ("events_dropped", "events_dropped_told", True, "ring_full"),
)

#: By kind of source, the dataset of its events.
_EVENTS_OF = {"processor": "connections", "target": "groups", "recorder": "roles"}


class Gap(NamedTuple):
    """A row of the dataset gaps without its times, and the counters to settle when it is recorded."""

    row: dict[str, Any]
    settlement: Settlement


class Ledger:
    """Compares the sources' counters with the recorded losses."""

    def __init__(self, rings: RecorderRings) -> None:
        self._rings = rings
        self._accounts = [rings.account(source) for source in (*range(rings.sources), rings.recorder)]
        # Recorded by a row that is not in a finished file yet.
        self._about_to_be_recorded: Settlement = Counter()

    def settle(self, settlement: Settlement) -> None:
        """Raise counters whose rows are in finished files."""
        for (source, name), n in settlement.items():
            self._accounts[source].add(name, n)
        self._about_to_be_recorded.subtract({key: n for key, n in settlement.items() if key[1].endswith("_told")})

    def killed_recorder(self, intake: Intake) -> list[Gap]:
        """Return the rows that a killed predecessor read and did not make durable. Call before the first `take`."""
        gaps = []
        for source, account in enumerate(self._accounts):
            first = None if source == self._rings.recorder else intake.first_unread(source)
            totals = (account.get("rows_pushed"), account.get("events_pushed")) if first is None else first
            for is_events, name in ((False, "rows_settled"), (True, "events_settled")):
                lost = totals[is_events] - account.get(name)
                if lost > 0:
                    gaps.append(self._gap(source, is_events, "recorder_killed", lost, Counter({(source, name): lost})))
        return gaps

    def losses(self) -> list[Gap]:
        """Return the sources' losses that no row records yet."""
        gaps = []
        for source, account in enumerate(self._accounts):
            for name, recorded, is_events, cause in _LOSSES:
                lost = account.get(name) - account.get(recorded) - self._about_to_be_recorded[source, recorded]
                if lost > 0:
                    self._about_to_be_recorded[source, recorded] += lost
                    gaps.append(self._gap(source, is_events, cause, lost, Counter({(source, recorded): lost})))
        return gaps

    def given_up(self, buffer: RowBuffer) -> list[Gap]:
        """Return the losses of a file that could not be written, unless it is one of gaps."""
        return [
            self._gap(source, name.startswith("events"), "write_failed", n, Counter({(source, name): n}))
            for (source, name), n in buffer.settlement.items()
        ]

    def _gap(self, source: int, is_events: bool, cause: str, rows: int, settlement: Settlement) -> Gap:
        kind, index = self._rings.describe(source)
        dataset = _EVENTS_OF[kind] if is_events else "requests"
        return Gap({"dataset": dataset, "source": kind, "index": index, "cause": cause, "rows": rows}, settlement)
