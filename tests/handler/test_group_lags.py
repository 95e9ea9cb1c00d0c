"""The lag rows that a handler sends to the request log: times and contents."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from rotunda.broker.coordinator.group_lags import FAULT_PAUSE_NS, MOST_NS, MOST_ROWS, GroupLags
from rotunda.broker.coordinator.offsets.offsets import CommittedOffset
from rotunda.broker.coordinator.share_state.records import SharePlace, StoredState
from rotunda.broker.coordinator.share_state.shard import ShareStateShard
from rotunda.broker.partitions.share.delivery import DeliveryCounts
from tests.support.handler_groups import CLOSED, GONE, TOPIC, TOPIC_ID, Handler

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


def test_unchanged_groups_need_little_time_at_once(handler: Lags) -> None:
    for number in range(5):
        handler.add(f"group {number}", {(TOPIC, 0): 50})
    handler.clock.monotonic_ns = lambda: handler.now_ns + MOST_NS
    left = []
    handler.lags.run_once(handler.now_ns)
    for _ in range(4):
        left.append(len(handler.lags._left or ()))
        handler.lags.run_once(handler.now_ns)
    assert left == [4, 3, 2, 1]


def test_an_idle_broker_records_no_lags(handler: Lags) -> None:
    handler.add("group", {(TOPIC, 0): 5})
    handler.feed.is_used = False
    assert handler.round() == []
    handler.feed.is_used = True
    assert len(handler.round()) == 1


def test_nothing_is_looked_at_where_nothing_is_wanted(handler: Lags) -> None:
    handler.feed.interval_ns = 0
    handler.add("group", {(TOPIC, 0): 5})
    handler.round()
    handler.commit("group", 0, 30)
    assert handler.round() == []
    assert handler.lags._known == {}


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
