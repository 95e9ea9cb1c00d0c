"""Slow Produce requests: others are served meanwhile, their connection waits, and no record is lost or doubled.

The cost of reading records is simulated: every batch of a compacted topic advances the clock.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from rotunda.broker.ipc.request_channel import CLOSE_CONNECTION
from rotunda.broker.log.validation.append_limits import AppendLimits
from rotunda.broker.partitions.produce.produces import MOST_UNDER_WAY
from tests.support.record_batches import record_batch
from tests.support.stepped_broker import SteppedBroker, batch_for, produced
from tests.support.wire_messages import PRODUCE, produce_body

MS = 1_000_000
COMPACTED = {"cleanup.policy": "compact"}
REQUEST_TIMED_OUT = 7

Costs = Callable[[int], None]


def slow_down(stepped: SteppedBroker, patch: pytest.MonkeyPatch, cost_ms: int) -> None:
    admit = AppendLimits.admit

    def slow(*args: Any) -> Any:
        stepped.clock.advance_ns(cost_ms * MS)
        return admit(*args)

    patch.setattr(AppendLimits, "admit", slow)


@pytest.fixture
def costs(stepped: SteppedBroker, monkeypatch: pytest.MonkeyPatch) -> Costs:
    """Return a function that sets the cost of each batch, in ms."""
    stepped.create("compacted", 4, COMPACTED)
    return lambda cost_ms: slow_down(stepped, monkeypatch, cost_ms)


def keyed(value: object) -> bytes:
    return record_batch([str(value).encode()], keys=[b"k"])


def parts_of(stepped: SteppedBroker, owner: int, count: int) -> list[tuple[str, int, bytes]]:
    """Return this number of parts for the partitions of one handler."""
    partitions = stepped.owned_by("compacted", owner)
    return [("compacted", partitions[number % len(partitions)], keyed(number)) for number in range(count)]


def values(stepped: SteppedBroker) -> list[int]:
    return sorted(int(value) for index in range(4) for value in stepped.values("compacted", index))


@pytest.mark.parametrize("owner", [0, 1])
def test_others_are_served_between_the_parts_of_a_long_request(stepped: SteppedBroker, costs: Costs, owner) -> None:
    """For any owners of the parts."""
    costs(10)
    long = stepped.client().send(PRODUCE, 7, produce_body(parts_of(stepped, owner, 60)), 0)
    others = [stepped.client().produce([batch_for(index, b"x")]) for index in range(4)]
    for _ in range(3):
        began_ns = stepped.clock.monotonic_ns()
        stepped.run_once(0)
        stepped.run_once(1)
        assert stepped.clock.monotonic_ns() - began_ns < 100 * MS
    stepped.drain()
    assert all(produced(other) == [(0, 0)] for other in others)
    assert not long.answers
    stepped.settle(500)
    assert [error for error, _ in produced(long)] == [0] * 60


def test_requests_after_a_long_one_of_their_connection_wait_for_it(stepped: SteppedBroker, costs: Costs) -> None:
    costs(10)
    client, partition = stepped.client(), stepped.owned_by("compacted", 0)[0]
    first = client.produce([("compacted", partition, keyed("before"))])
    stepped.settle()
    long = client.produce([("compacted", partition, keyed(number)) for number in range(30)])
    behind = [client.produce([("compacted", partition, keyed(number))]) for number in range(30, 34)]
    stepped.run_once(0)
    late = client.produce([("compacted", partition, keyed(34))])
    stepped.run_once(0)
    assert not long.answers
    stepped.settle(500)
    assert produced(first) == [(0, 0)]
    assert produced(long) == [(0, offset) for offset in range(1, 31)]
    assert [produced(sent) for sent in (*behind, late)] == [[(0, offset)] for offset in range(31, 36)]
    assert stepped.released(0, 0)
    again = client.produce([("compacted", partition, keyed("after"))])
    stepped.settle()
    assert produced(again) == [(0, 36)]


def test_parts_queued_beyond_their_timeout_are_rejected(stepped: SteppedBroker, costs: Costs) -> None:
    """Their client resends them: none is appended."""
    costs(200)
    for owner in range(2):
        long = stepped.client().send(PRODUCE, 7, produce_body(parts_of(stepped, owner, 60)), 0)
        stepped.settle(500)
        errors = [error for error, _ in produced(long)]
        assert set(errors) == {0, REQUEST_TIMED_OUT}
        taken = errors.count(0)
        assert errors == [0] * taken + [REQUEST_TIMED_OUT] * (60 - taken)
        assert taken <= 6 + MOST_UNDER_WAY


def test_a_fault_in_a_long_request_closes_its_connection_and_the_queue_continues(
    stepped: SteppedBroker, costs: Costs, monkeypatch: pytest.MonkeyPatch
) -> None:
    costs(10)
    client, partition = stepped.client(), stepped.owned_by("compacted", 0)[0]
    long = client.produce([("compacted", partition, keyed(number)) for number in range(30)])
    behind = client.produce([("compacted", partition, keyed(30))])
    stepped.run_once(0)
    admit = AppendLimits.admit

    def fault(*_: object) -> None:
        monkeypatch.setattr(AppendLimits, "admit", admit)
        raise ZeroDivisionError("ours")

    monkeypatch.setattr(AppendLimits, "admit", fault)
    stepped.settle()
    assert long.answer.kind == CLOSE_CONNECTION
    assert [error for error, _ in produced(behind)] == [0]
    assert stepped.released(0, 0)


def test_a_long_batch_of_requests_is_split_over_several_runs(stepped: SteppedBroker, costs: Costs) -> None:
    """None is released before it has been handled."""
    costs(10)
    partition = stepped.owned_by("compacted", 0)[0]
    sent = [stepped.client().produce([("compacted", partition, keyed(number))]) for number in range(10)]
    stepped.run_once(0)
    stepped.drain()
    assert [bool(each.answers) for each in sent] == [True] * 2 + [False] * 8
    assert not stepped.released(0, 0)
    stepped.replace(0)
    stepped.settle()
    assert [produced(each) for each in sent] == [[(0, offset)] for offset in range(10)]
    assert values(stepped) == list(range(10))


@pytest.mark.stepped({}, processors=2)
def test_other_rings_are_not_read_in_a_long_run(broker: SteppedBroker) -> None:
    """All rings are read before any request is handled: a request that was only read is not released."""
    broker.create("compacted", 4, COMPACTED)
    partition = broker.owned_by("compacted", 0)[0]
    sent = [broker.client(number).produce([("compacted", partition, keyed(number))]) for number in range(2)]
    with pytest.MonkeyPatch.context() as patch:
        slow_down(broker, patch, 30)
        broker.run_once(0)
        broker.drain()
        assert [bool(each.answers) for each in sent] == [True, False]
        assert [broker.released(number, 0) for number in range(2)] == [True, False]
        broker.replace(0)
        broker.settle()
    assert [produced(each) for each in sent] == [[(0, 0)], [(0, 1)]]


@pytest.mark.parametrize("turns", range(12))
@pytest.mark.parametrize("victim", [0, 1])
def test_a_long_request_survives_its_handlers(stepped: SteppedBroker, costs: Costs, turns: int, victim: int) -> None:
    """With any handler killed, after any turn, every part is appended once."""
    costs(10)
    client = stepped.client()
    parts = [("compacted", number % 4, keyed(number)) for number in range(40)]
    sent = client.send(PRODUCE, 7, produce_body(parts), 0)
    client.produce([("compacted", 0, keyed(40))])
    for _ in range(turns):
        stepped.run_once(0)
        stepped.run_once(1)
    stepped.replace(victim)
    stepped.settle(500)
    assert [error for error, _ in produced(sent)] == [0] * 40
    assert values(stepped) == list(range(41))
