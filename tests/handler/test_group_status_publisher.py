"""The group snapshot of a handler: times and contents."""

from dataclasses import asdict
from types import SimpleNamespace
from typing import Any, cast

import pytest

from rotunda.broker.coordinator import group_status_publisher
from rotunda.broker.coordinator.consumer.group import ConsumerGroup
from rotunda.broker.coordinator.consumer.member import ConsumerGroupMember
from rotunda.broker.coordinator.group_status_publisher import FAULT_PAUSE_NS, INTERVAL_NS, MOST_INTERVAL_NS
from rotunda.broker.coordinator.member_sessions import MemberSession
from rotunda.broker.coordinator.share.group import ShareGroup
from rotunda.broker.coordinator.share.member import ShareGroupMember
from rotunda.broker.coordinator.share_state.records import SharePlace, StoredState
from rotunda.broker.coordinator.share_state.shard import ShareGroup as ShareStateGroup
from rotunda.broker.coordinator.share_state.shard import ShareStateShard
from rotunda.broker.coordinator.transaction.transaction import EMPTY, ONGOING, TransactionMetadata
from rotunda.broker.partitions.share.delivery import DeliveryCounts, DeliveryState, StateBatch
from rotunda.broker.partitions.share.share_window import AcquireTerms, DeliveryTerms, LogBatch, ShareWindow
from rotunda.broker.steps import finished
from tests.support.handler_groups import CLOSED, GONE, TOPIC, TOPIC_ID, Handler


@pytest.fixture
def handler() -> Handler:
    return Handler()


def test_nothing_is_published_without_readers(handler: Handler) -> None:
    handler.snapshot.run_once(handler.now_ns)
    assert handler.reader.read() is None
    handler.wants.web_looks(handler.now_ns + 1)
    handler.snapshot.run_once(handler.now_ns)
    assert handler.reader.read() is not None


def test_a_share_group_has_its_members_and_their_partitions(handler: Handler) -> None:
    group = handler.shard.groups["queue"] = ShareGroup("queue")
    group.epoch = 3
    group.members["m"] = ShareGroupMember(
        "m", client_id="c", client_host="/h", epoch=2, assigned={TOPIC_ID: frozenset({1, 0})}
    )
    [told] = handler.told()["groups"]
    assert (told["kind"], told["state"], told["protocol"], told["generation"]) == ("share", "Stable", "simple", 3)
    [member] = told["members"]
    assert (member["id"], member["epoch"], member["assigned"]) == ("m", 2, {TOPIC: [0, 1]})
    # Not while its session is yet to begin after a load.
    assert "silent_ms" not in member
    group.session_timeout_ms = 45_000
    group.sessions["m"] = MemberSession(handler.now_ns + 15 * 10**9)
    [member] = handler.told()["groups"][0]["members"]
    assert (member["silent_ms"], member["session_left_ms"]) == (30_000, 15_000)


def test_it_is_published_once_a_second_and_less_often_if_it_is_slow(handler: Handler) -> None:
    handler.wants.web_looks(10**15)
    checked = []
    handler.snapshot._now_ns = lambda: handler.now_ns + INTERVAL_NS // 10
    for _ in range(20):
        handler.snapshot.run_once(handler.now_ns)
        checked.append(handler.reader.checked_ns)
        handler.now_ns += INTERVAL_NS // 2
    # A tenth of a second for each snapshot: one per five seconds is two hundredths of the time.
    assert len(set(checked)) == 2
    handler.snapshot._now_ns = lambda: handler.now_ns
    for _ in range(20):
        handler.now_ns += INTERVAL_NS // 2
        handler.snapshot.run_once(handler.now_ns)
        checked.append(handler.reader.checked_ns)
    assert len(set(checked)) == 2 + 10


def test_a_reader_does_not_wait_long_for_a_preempted_handler(handler: Handler) -> None:
    handler.wants.web_looks(10**15)
    handler.snapshot._now_ns = lambda: handler.now_ns + 2 * INTERVAL_NS
    handler.snapshot.run_once(handler.now_ns)
    first = handler.reader.checked_ns
    handler.now_ns += MOST_INTERVAL_NS
    handler.snapshot.run_once(handler.now_ns)
    assert handler.reader.checked_ns > first


def test_many_groups_are_published_in_slices_despite_a_deleted_one(handler: Handler) -> None:
    for number in range(1000):
        handler.add(f"group-{number}", {(TOPIC, 0): 20})
    steps = handler.snapshot.document()
    next(steps)
    handler.shard.groups.clear()
    assert 1000 // 32 <= sum(1 for _ in steps) <= 1000


def test_another_is_not_begun_before_one_is_done(handler: Handler) -> None:
    begun: list[Any] = []
    handler.snapshot._begin = begun.append
    handler.wants.web_looks(10**15)
    for _ in range(5):
        handler.snapshot.run_once(handler.now_ns)
        handler.now_ns += INTERVAL_NS
    assert len(begun) == 1
    finished(begun[0])
    handler.now_ns += 1000 * INTERVAL_NS
    handler.snapshot.run_once(handler.now_ns)
    assert len(begun) == 2


def test_a_fault_ends_the_telling_for_a_while_and_nothing_else(
    handler: Handler, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    handler.wants.web_looks(10**15)
    with monkeypatch.context() as broken:
        broken.setattr(handler.snapshot, "document", lambda: 1 / 0)
        handler.snapshot.run_once(handler.now_ns)
    assert "cannot publish the snapshot" in caplog.text
    handler.snapshot.run_once(handler.now_ns + FAULT_PAUSE_NS - 1)
    assert handler.reader.read() is None
    handler.snapshot.run_once(handler.now_ns + FAULT_PAUSE_NS)
    assert handler.reader.read() is not None


def test_row_17_lag_counts_from_the_log_start_to_both_ends(handler: Handler) -> None:
    """Users row 17: LSO for read_committed; records deleted unread are not counted; no unread records are 0 seconds."""
    handler.add("group", {(TOPIC, 0): 5, (TOPIC, 1): 100})
    (group,) = handler.told()["groups"]
    assert group["offsets"][TOPIC]["0"] == {
        "offset": 5, "commit_ms": 7, "start": 10, "stable": 60, "end": 100, "lag": 90, "committed_lag": 50, "lag_s": 3.0
    }  # fmt: skip
    assert handler.times.looked_up == [10]
    caught_up = group["offsets"][TOPIC]["1"]
    assert (caught_up["lag"], caught_up["committed_lag"], caught_up["lag_s"]) == (0, 0, 0.0)


@pytest.mark.parametrize(
    ("place", "offset"), [((GONE, 0), 5), ((CLOSED, 0), 5), ((TOPIC, 0), 101)], ids=["gone", "closed", "beyond the end"]
)
def test_row_17_a_lag_that_cannot_be_known_is_absent(handler: Handler, place: tuple[str, int], offset: int) -> None:
    handler.add("group", {place: offset})
    (group,) = handler.told()["groups"]
    told = group["offsets"][place[0]]["0"]
    assert told["offset"] == offset
    assert not {"lag", "committed_lag", "lag_s"} & set(told)


def test_members_of_both_kinds_of_groups(handler: Handler) -> None:
    handler.add("old", {})
    group = handler.shard.groups["new"] = ConsumerGroup("new")
    group.epoch = group.assignment_epoch = 4
    group.put_member(
        ConsumerGroupMember(
            "m", "i", client_id="c", client_host="/h", server_assignor="uniform", epoch=4,
            assigned={TOPIC_ID: frozenset({1, 0})},
        )
    )  # fmt: skip
    told = {each["id"]: each for each in handler.told()["groups"]}
    assert (told["old"]["kind"], told["old"]["state"], told["old"]["members"]) == ("classic", "Empty", [])
    assert told["new"]["protocol"] == "uniform"
    assert (told["new"]["state"], told["new"]["generation"]) == ("Stable", 4)
    assert told["new"]["members"] == [
        {
            "id": "m", "instance_id": "i", "client_id": "c", "host": "/h", "epoch": 4, "state": "stable",
            "assigned": {TOPIC: [0, 1]}, "to_revoke": {},
        }
    ]  # fmt: skip
    assert handler.told()["group_states"] == {"classic/Empty": 1, "consumer/Stable": 1}


def test_s124_share_partitions_with_and_without_a_reader(handler: Handler) -> None:
    """Start and end of the window, in flight, waiting, lag; locks that ran out; none of these before the first read."""
    first, second, unread = (SharePlace(TOPIC_ID, partition) for partition in range(3))
    states = {first: StoredState(1, 20, 0, 0), second: StoredState(1, 100, 0, 0), unread: StoredState(1, -1, 0, 0)}
    states[first].merge(20, 10, [StateBatch(30, 39, DeliveryState.ACKNOWLEDGED, 1)])
    states[first].counts = DeliveryCounts(delivered=9, redelivered=4, accepted=1, locks_expired=3, dead_letters=2)
    window = ShareWindow(20, states[first].batches)
    terms = DeliveryTerms(lock_ns=30 * 10**9, count_limit=5, most_in_flight=100)
    window.acquire([LogBatch(20, 24)], AcquireTerms("m", 100, 100), terms, handler.now_ns)
    log: Any = SimpleNamespace(partition=0)
    shard = ShareStateShard(log, lambda _: None, lambda: 0, lambda: 0, lambda: 0)
    shard.states["shared"] = states
    shard.groups["shared"] = cast("ShareStateGroup", SimpleNamespace(windows={first: window}))
    handler.share_shards.append(shard)
    nothing = asdict(DeliveryCounts())
    assert handler.told()["share_partitions"] == [
        {
            "group": "shared", "topic": TOPIC, "partition": 0, "start": 20, "end": 40, "in_flight": 20, "waiting": 5,
            "deliveries": 1, "lock_left_ms": 30_000, "lag": 70, "lag_s": 3.0, **asdict(states[first].counts),
        },
        {
            "group": "shared", "topic": TOPIC, "partition": 1, "start": 100, "end": 100, "in_flight": 0, "waiting": 0,
            "deliveries": 0, "lag": 0, "lag_s": 0.0, **nothing,
        },
        {"group": "shared", "topic": TOPIC, "partition": 2, **nothing},
    ]  # fmt: skip


def test_open_transactions_are_published_and_the_rest_is_counted(handler: Handler) -> None:
    resting = TransactionMetadata(1, 0, 60_000, 5, EMPTY)
    ongoing = TransactionMetadata(2, 3, 60_000, 5, ONGOING, frozenset({(TOPIC, 1), (TOPIC, 0)}), 99)
    for number, metadata in enumerate((resting, ongoing, resting)):
        handler.transactions.append(SimpleNamespace(transactional_id=f"t{number}", metadata=metadata))
    told = handler.told()
    assert told["transaction_states"] == {"Empty": 2, "Ongoing": 1}
    assert told["transactions"] == [
        {
            "id": "t1", "state": "Ongoing", "producer_id": 2, "epoch": 3, "start_ms": 99, "timeout_ms": 60_000,
            "partitions": {TOPIC: [0, 1]},
        }
    ]  # fmt: skip


def test_omitted_groups_and_members_are_counted(handler: Handler, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_status_publisher, "MOST_OFFSETS", 3)
    monkeypatch.setattr(group_status_publisher, "MOST_TRANSACTIONS", 1)
    for number in range(8):
        handler.add(f"group {number}", {(TOPIC, 0): 1})
        metadata = TransactionMetadata(number, 0, 1, 1, ONGOING)
        handler.transactions.append(SimpleNamespace(transactional_id=f"t{number}", metadata=metadata))
    told = handler.told()
    assert len(told["groups"]) + told["left_out"]["groups"] == 8
    assert len(told["groups"]) == 4
    assert told["group_states"] == {"classic/Empty": 8}
    assert told["left_out"]["transactions"] == 7
    assert told["transaction_states"] == {"Ongoing": 8}
