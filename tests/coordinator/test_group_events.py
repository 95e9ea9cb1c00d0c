"""Published events of classic and consumer groups: duration of rebalances, generation, number of members."""

from __future__ import annotations

from rotunda.broker.coordinator.group_events import GroupEvent
from tests.support.groups.coordinator import GROUP, Coordinator, FakeTopics
from tests.support.groups.members import REBALANCE_MS, SESSION_MS, join, leave, stable_group, sync

Reported = tuple[str, int, int, int | None]


def reported(events: list[GroupEvent]) -> list[Reported]:
    """Return the published events: (event, generation, members, duration in ms)."""
    return [(event.event, event.generation, event.members, event.duration_ms) for event in events]


def test_a_classic_rebalance_from_its_cause_to_its_end() -> None:
    coordinator = Coordinator()
    leader, follower = stable_group(coordinator)
    coordinator.published.clear()
    join(coordinator, leader)
    coordinator.advance_ms(700)
    join(coordinator, follower)
    coordinator.advance_ms(300)
    sync(coordinator, leader, {leader: b"L"})
    sync(coordinator, follower)
    coordinator.run_once()
    assert reported(coordinator.published) == [("rebalance", 1, 2, None), ("stable", 2, 2, 1000)]
    rebalance, stable = coordinator.published
    assert (rebalance.kind, rebalance.group_id) == ("classic", coordinator.group.group_id)
    assert rebalance.reason.startswith("Leader re-joining")
    assert stable.time_ms == coordinator.clock.wall_ms()


def test_a_rebalance_that_another_interrupts_counts_from_the_first() -> None:
    coordinator = Coordinator()
    leader, follower = stable_group(coordinator)
    coordinator.published.clear()
    join(coordinator, leader)
    join(coordinator, follower)
    coordinator.advance_ms(500)
    # The member has no assignment yet.
    leave(coordinator, (follower, None))
    coordinator.advance_ms(500)
    join(coordinator, leader)
    sync(coordinator, leader, {leader: b"L"})
    coordinator.run_once()
    assert reported(coordinator.published) == [
        ("rebalance", 1, 2, None), ("leave", 2, 1, None), ("rebalance", 2, 1, None), ("stable", 3, 1, 1000),
    ]  # fmt: skip


def test_a_classic_group_that_everybody_leaves_is_empty() -> None:
    coordinator = Coordinator()
    members = stable_group(coordinator)
    coordinator.published.clear()
    coordinator.advance_ms(SESSION_MS)
    coordinator.advance_ms(REBALANCE_MS)
    events = reported(coordinator.published)
    assert [event for event, *_ in events].count("expire") == len(members)
    assert (events[-1][0], events[-1][2]) == ("empty", 0)
    assert events[-1][3] is not None


def test_a_loaded_stable_group_has_no_events() -> None:
    coordinator = Coordinator()
    stable_group(coordinator)
    coordinator.published.clear()
    coordinator.replace()
    coordinator.run_once()
    assert coordinator.published == []


def test_a_consumer_group_from_epoch_to_epoch() -> None:
    coordinator = Coordinator(topics=FakeTopics({"a": 4}))
    coordinator.join("m1", "a")
    coordinator.ask(member_id="m1", member_epoch=2)
    assert reported(coordinator.published) == [("join", 2, 1, None), ("rebalance", 1, 1, None), ("stable", 2, 1, 0)]
    coordinator.published.clear()
    coordinator.join("m2", "a")
    coordinator.advance_ms(400)
    a = (1).to_bytes(16, "big")
    given = coordinator.ask(member_id="m1", member_epoch=2, topic_partitions={a: frozenset(range(4))}).assignment
    coordinator.ask(member_id="m1", member_epoch=2, topic_partitions=given)
    coordinator.advance_ms(600)
    coordinator.ask(member_id="m2", member_epoch=3)
    assert reported(coordinator.published) == [("join", 3, 2, None), ("rebalance", 2, 2, None), ("stable", 3, 2, 1000)]
    assert coordinator.published[1].reason.startswith("join of member m2")
    assert {(event.kind, event.group_id) for event in coordinator.published} == {("consumer", GROUP)}
    coordinator.published.clear()
    coordinator.ask(member_id="m1", member_epoch=-1)
    coordinator.ask(member_id="m2", member_epoch=-1)
    assert reported(coordinator.published) == [
        ("leave", 4, 1, None), ("rebalance", 3, 1, None), ("leave", 5, 0, None), ("rebalance", 4, 0, None),
        ("empty", 5, 0, 0),
    ]  # fmt: skip


def test_a_loaded_consumer_group_does_not_repeat_its_epoch_events() -> None:
    coordinator = Coordinator(topics=FakeTopics({"a": 4}))
    coordinator.join("m1", "a")
    coordinator.published.clear()
    coordinator.replace()
    coordinator.ask(member_id="m1", member_epoch=2, topic_partitions={(1).to_bytes(16, "big"): frozenset(range(4))})
    assert coordinator.published == []
