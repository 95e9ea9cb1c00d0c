"""The lag rows that a handler sends to the request log: times and contents."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from rotunda.broker.coordinator.group_lags import FAULT_PAUSE_NS, MOST_ROWS, GroupLags
from rotunda.broker.coordinator.offsets.offsets import CommittedOffset
from rotunda.broker.coordinator.share_state.records import SharePlace, StoredState
from rotunda.broker.coordinator.share_state.shard import ShareStateShard
from rotunda.broker.partitions.lag_age import MOST_LOOKUPS, LagAges
from rotunda.broker.partitions.share.delivery import DeliveryCounts
from tests.support.handler_groups import CLOSED, GONE, TOPIC, TOPIC_ID, Handler
from tests.support.record_batches import TIMESTAMP_MS, record_batch
from tests.support.stepped_broker import SteppedBroker
from tests.support.transactional import open_coordinator_topics, settled, started

INTERVAL_NS = 10_000_000_000


class Feed:
    """Collects rows; the test sets the fill of its ring."""

    def __init__(self) -> None:
        self.interval_ns = INTERVAL_NS
        self.fill = 0.0
        self.is_used = True
        self.rows: list[dict[str, Any]] = []

    def send(self, rows: list[dict[str, Any]]) -> None:
        """Append rows."""
        self.rows += rows


class Lags(Handler):
    """A handler that has sent no rows and started no round."""

    def __init__(self) -> None:
        super().__init__()
        self.feed = Feed()
        self.lags = GroupLags(
            cast("Any", self.coordinators.groups),
            cast("Any", self.metadata),
            self.partitions,
            cast("Any", self.feed),
            cast("Any", self.times),
            cast("Any", self.clock),
            cast("Any", self.coordinators.share_states),
        )

    def commit(self, group_id: str, partition: int, offset: int) -> None:
        """Commit an offset for a group."""
        self.shard.offsets.put(group_id, TOPIC, partition, CommittedOffset(offset, -1, "", 7))

    def round(self) -> list[dict[str, Any]]:
        """Advance the clock by an interval; return the rows of one turn at its end."""
        self.now_ns += INTERVAL_NS
        self.feed.rows.clear()
        self.lags.run_once(self.now_ns)
        return list(self.feed.rows)


@pytest.fixture
def handler() -> Lags:
    return Lags()


def test_changed_lags_are_recorded_once(handler: Lags) -> None:
    handler.add("group", {(TOPIC, 0): 5, (TOPIC, 1): 100})
    assert [row["records"] for row in handler.round()] == [90], "what was there when the handler began"
    handler.commit("group", 0, 30)
    (row,) = handler.round()
    assert row == {
        "time": handler.now_ns // 1_000_000 * 1000, "group": "group", "event": "lag", "kind": "classic",
        "generation": 0, "members": 0, "durationUs": 3_000_000, "topic": TOPIC, "partition": 0, "records": 70,
    }  # fmt: skip
    assert handler.round() == []
    handler.partitions.row_writer(1).publish(120, 0, 6000, 10, 60, 6000)
    assert [(row["records"], row["partition"]) for row in handler.round()] == [(90, 0)]
    handler.partitions.row_writer(1).publish(300, 0, 9000, 10, 60, 9000)
    assert [(row["records"], row["partition"]) for row in handler.round()] == [(270, 1)]


def test_a_group_without_lag_is_recorded_with_zero(handler: Lags) -> None:
    handler.add("group", {(TOPIC, 0): 90})
    handler.round()
    handler.commit("group", 0, 100)
    (row,) = handler.round()
    assert (row["records"], row["durationUs"], row["partition"]) == (0, 0, None)
    handler.partitions.row_writer(0).publish(110, 0, 5500, 10, 60, 5500)
    handler.commit("group", 0, 110)
    assert [row["records"] for row in handler.round()] == [0]


def test_new_groups_are_recorded_and_deleted_ones_forgotten(handler: Lags) -> None:
    handler.round()
    handler.add("new", {(TOPIC, 0): 100})
    assert len(handler.round()) == 1
    del handler.shard.groups["new"]
    assert handler.round() == []
    handler.add("new", {(TOPIC, 0): 100})
    assert len(handler.round()) == 1


def test_a_lag_that_cannot_be_known_is_left_out(handler: Lags) -> None:
    handler.round()
    handler.add("group", {(GONE, 0): 5, (CLOSED, 0): 5, (TOPIC, 0): 101, (TOPIC, 1): 95})
    assert [(row["topic"], row["records"]) for row in handler.round()] == [(TOPIC, 5)]


def test_many_groups_are_recorded_a_few_at_a_time(handler: Lags) -> None:
    handler.round()
    for number in range(2 * MOST_ROWS):
        handler.add(f"group {number}", {(TOPIC, 0): 50})
    assert len(handler.round()) == MOST_ROWS
    handler.feed.fill = 0.6
    handler.lags.run_once(handler.now_ns)
    assert len(handler.feed.rows) == MOST_ROWS, "the ring has no room for it"
    handler.feed.fill = 0.4
    for _ in range(3):
        handler.lags.run_once(handler.now_ns)
    assert len({row["group"] for row in handler.feed.rows}) == len(handler.feed.rows) == 2 * MOST_ROWS
    # After a round of any duration, the next one starts an interval after its start.
    handler.commit("group 7", 0, 60)
    assert len(handler.round()) == 1


def test_an_idle_broker_records_no_lags(handler: Lags) -> None:
    handler.add("group", {(TOPIC, 0): 5})
    handler.feed.is_used = False
    assert handler.round() == []
    handler.feed.is_used = True
    assert len(handler.round()) == 1


def test_a_fault_costs_rows_and_nothing_else(
    handler: Lags, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    handler.round()
    handler.add("group", {(TOPIC, 0): 5})
    with monkeypatch.context() as broken:
        broken.setattr(handler.lags, "_rows", lambda *_: 1 / 0)
        assert handler.round() == []
    assert "cannot send the lags" in caplog.text
    assert handler.round() == []
    handler.now_ns += FAULT_PAUSE_NS
    assert len(handler.round()) == 1


def test_deliveries_of_a_share_group_are_sent_with_their_growth(handler: Lags) -> None:
    state = StoredState(1, 20, 0, 0)
    log: Any = SimpleNamespace(partition=0)
    shard = ShareStateShard(log, lambda _: None, lambda: 0, lambda: 0, lambda: 0)
    shard.states["queue"] = {SharePlace(TOPIC_ID, 0): state}
    handler.share_shards.append(shard)
    [lag] = handler.round()
    assert (lag["event"], lag["kind"], lag["topic"], lag["records"]) == ("lag", "share", TOPIC, 80)
    assert handler.round() == []
    state.counts = DeliveryCounts(delivered=5, redelivered=2, locks_expired=2)
    [row] = handler.round()
    assert (row["event"], row["group"], row["delivered"], row["redelivered"]) == ("deliveries", "queue", 5, 2)
    assert (row["locksExpired"], row["accepted"]) == (2, 0)
    state.counts.delivered += 3
    state.merge(40, 10, [])
    grown, lag = handler.round()
    assert (grown["delivered"], grown["redelivered"], lag["records"]) == (3, 0, 50)


# ---- the age of a lag ------------------------------------------------------------------------------------------------


NOW_MS = TIMESTAMP_MS + 10_000


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[SteppedBroker]:
    """Return a broker with a topic of three batches of two records, a second apart."""
    broker = SteppedBroker(tmp_path, handlers=1)
    broker.create("topic", 1, {"segment.bytes": "1048576"})
    client = broker.client()
    for number in range(3):
        batch = record_batch(values=[b"a", b"b"], timestamp_ms=TIMESTAMP_MS + number * 1000)
        client.produce([("topic", 0, batch)])
        broker.settle()
    yield broker
    broker.close()


def times_of(broker: SteppedBroker, now_ms: int = NOW_MS) -> LagAges:
    return LagAges(broker.config.data_dir, broker.context.partitions, lambda: now_ms)


def ages(broker: SteppedBroker, times: LagAges, offsets: list[int]) -> list[float | None]:
    row = broker.partition("topic", 0).row
    times.begin()
    found = [times.age_s(("topic", 0, row), offset, broker.context.partitions.read_position(row)) for offset in offsets]
    times.end()
    return found


def test_row_17_the_age_is_that_of_the_batch_that_holds_the_offset(broker: SteppedBroker) -> None:
    assert ages(broker, times_of(broker), [0, 1, 2, 4, 5]) == [10.0, 10.0, 9.0, 8.0, 8.0]


def test_a_time_in_the_future_is_no_age(broker: SteppedBroker) -> None:
    assert ages(broker, times_of(broker, TIMESTAMP_MS - 5), [0]) == [0.0]


def test_found_ages_are_cached(broker: SteppedBroker, tmp_path: Path) -> None:
    times = times_of(broker)
    assert ages(broker, times, [2, 4]) == [9.0, 8.0]
    for file in (tmp_path / "data" / "topic-0").glob("*.log"):
        file.rename(file.with_suffix(".gone"))
    assert ages(broker, times, [2]) == [9.0]
    # Entries unused by the last snapshot are dropped; records that cannot be located have no age.
    assert ages(broker, times, [4, 2]) == [None, 9.0]


def test_one_board_looks_up_so_many_and_the_next_one_more(broker: SteppedBroker) -> None:
    times = times_of(broker)
    row = broker.partition("topic", 0).row
    end = broker.context.partitions.read_position(row)
    places = [("topic", 0, row)] * MOST_LOOKUPS
    times.begin()
    for number, place in enumerate(places):
        times.age_s(place, number % 6, end)
    times.end()
    assert ages(broker, times, [0, 1, 2]) == [10.0, 10.0, 9.0]
    many = [(f"other-{number}", 0, row) for number in range(MOST_LOOKUPS)]
    times.begin()
    assert [times.age_s(place, 0, end) for place in many] == [None] * MOST_LOOKUPS
    assert times.age_s(("topic", 0, row), 0, end) == 10.0
    assert times.age_s(("topic", 0, row), 4, end) is None


def test_row_17_the_end_of_a_transaction_is_nothing_unread(tmp_path: Path) -> None:
    """A group that has read all records is up to date, with a transaction marker of any age after them."""
    broker = SteppedBroker(tmp_path, handlers=1)
    broker.create("topic", 1)
    open_coordinator_topics(broker)
    producer = started(broker)
    for _ in range(2):
        settled(broker, producer.produce([("topic", 0, b"a")]))
        assert producer.take(settled(broker, producer.end(commit=True))) == 0
    times = times_of(broker)
    assert broker.end("topic", 0) == 4
    assert ages(broker, times, [0, 1, 2, 3]) == [10.0, 10.0, 10.0, 0.0]
    broker.client().produce([("topic", 0, record_batch([b"b"], timestamp_ms=TIMESTAMP_MS + 6000))])
    broker.settle()
    assert ages(broker, times, [1, 3, 4]) == [10.0, 4.0, 4.0]
    broker.close()
