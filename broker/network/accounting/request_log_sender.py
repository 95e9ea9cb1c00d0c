"""The processor's sender of request log rows to the recorder: sampling, weights, self-contained frames.

Runs in processor processes. A frame carries the texts of all clients in its rows, so that a replaced recorder
understands the next frame. Nothing here blocks: when requests exceed the configured rate, or the ring fills, fewer
ordinary ones are sent and each has a larger weight; rows without room in the ring are dropped and counted.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING

from rotunda.broker.network.accounting.sampling_budget import SamplingBudget
from rotunda.broker.request_log.slow_requests import is_slow, select

if TYPE_CHECKING:
    import numpy
    from numpy.typing import NDArray

    from rotunda.shm.rings.bell import SemaphoreBell
    from rotunda.shm.rings.recorder_rings import RecorderFeed

    Rows = NDArray[numpy.void]

#: Rows and events of one frame.
FRAME_ROWS = 1024
FRAME_EVENTS = 256

#: Events waiting for room in the ring; older ones are dropped.
MOST_WAITING_EVENTS = 10_000

#: From this fill of the ring on, one ordinary request in this many is sent, the fullest first.
PRESSURE = ((0.75, 16), (0.5, 4))

#: The first field of an event.
_CLIENT = Struct("@q")


class RequestLogSender:
    """The processor's end of its recorder ring."""

    def __init__(self, feed: RecorderFeed, texts: dict[int, bytes], bell: SemaphoreBell) -> None:
        """``texts`` by client number: the caller's own mapping, always current."""
        self._feed = feed
        self._texts = texts
        self._bell = bell
        self._allowance = SamplingBudget()
        self._rng: numpy.random.Generator | None = None
        account = feed.account
        self._received_before = account.get("rows_taken")
        handled = sum(account.get(name) for name in ("rows_pushed", "rows_skipped", "rows_dropped", "rows_lost"))
        if handled < self._received_before:
            # A killed predecessor lost these rows from its memory. The recorder sees the count at its next poll.
            account.add("rows_lost", self._received_before - handled)
            bell.ring()

    def note_received(self, count: int) -> None:
        """Publish the number of responses that this process has received in all."""
        self._feed.account.set("rows_taken", self._received_before + count)

    def push(self, rows: Rows | None, events: list[bytes]) -> None:
        """Send rows and connection events; events without room in the ring stay in the list."""
        account = self._feed.account
        if not self._feed.settings.enabled:
            account.add("rows_skipped", 0 if rows is None else len(rows))
            events.clear()
            return
        if rows is not None:
            chosen = self._chosen(rows)
            account.add("rows_skipped", len(rows) - len(chosen))
            for first in range(0, len(chosen), FRAME_ROWS):
                self._push_rows(chosen[first : first + FRAME_ROWS])
        elif not events:
            return
        while events and self._try_push_events(events[:FRAME_EVENTS]):
            del events[:FRAME_EVENTS]
        surplus = len(events) - MOST_WAITING_EVENTS
        if surplus > 0:
            account.add("events_dropped", surplus)
            del events[:surplus]
        self._feed.publish()
        self._bell.ring()

    def _chosen(self, rows: Rows) -> Rows:
        """Return the rows to send, with their weights."""
        fill, settings = self._feed.fill, self._feed.settings
        pressure = next((factor for least, factor in PRESSURE if fill >= least), 1)
        sampled = max(1, len(rows) // settings.sample_interval)
        allowed = self._allowance.interval(sampled, int(rows["end_ns"][-1]), settings.rows_per_second)
        interval = settings.sample_interval * max(pressure, allowed)
        if interval == 1:
            rows["weight"] = 1
            return rows
        if self._rng is None:
            import numpy as np  # noqa: PLC0415 - loaded with the first rows

            self._rng = np.random.default_rng()
        certain = (rows["error_code"] != 0) | is_slow(rows, settings.slow_ns)
        chosen = certain | (self._rng.integers(0, interval, len(rows)) == 0)
        kept = select(rows, chosen)
        kept["weight"] = interval
        kept["weight"][certain[chosen]] = 1
        return kept

    def _push_rows(self, rows: Rows) -> None:
        import numpy as np  # noqa: PLC0415

        texts = self._texts_of(np.unique(rows["client"]).tolist())
        data = rows.tobytes()
        if len(data) + len(texts[1]) > self._feed.largest_bytes:
            middle = len(rows) // 2
            self._push_rows(rows[:middle])
            self._push_rows(rows[middle:])
        elif not self._feed.try_push((len(rows), data), (0, b""), texts):
            self._feed.account.add("rows_dropped", len(rows))

    def _try_push_events(self, events: list[bytes]) -> bool:
        numbers = {_CLIENT.unpack_from(event)[0] for event in events}
        data = b"".join(events)
        texts = self._texts_of(numbers)
        if len(data) + len(texts[1]) > self._feed.largest_bytes:
            # The names are sent again with the rows.
            texts = 0, b""
        return self._feed.try_push((0, b""), (len(events), data), texts)

    def _texts_of(self, numbers: set[int] | list[int]) -> tuple[int, bytes]:
        texts = [self._texts[number] for number in numbers if number in self._texts]
        return len(texts), b"".join(texts)
