"""A Produce of very many parts: parsed, appended and acknowledged in slices, each part once, despite deaths."""

from __future__ import annotations

import pytest

from rotunda.broker.ipc.request_channel import CLOSE_CONNECTION
from rotunda.broker.protocol.api_keys import ApiKey
from rotunda.broker.protocol.headers import parse_header
from rotunda.broker.protocol.messages.produce import parse_produce
from rotunda.broker.scheduling import slices, task_queues
from tests.support.call_clock import MOST_CALLS, CallClock, longest_turn, run_once
from tests.support.record_batches import record_batch
from tests.support.stepped_broker import SteppedBroker, produced
from tests.support.wire_client import request_frame
from tests.support.wire_messages import PRODUCE, produce_body

PARTS = 10_000
PARTITIONS = 4
VERSION = 7


pytestmark = pytest.mark.stepped(
    {"wide": PARTITIONS}, handlers=1, settings={"queued.max.request.bytes": str(16 << 20)}, clock=CallClock
)


def body(parts: int, acks: int = 1) -> bytes:
    return produce_body(
        [("wide", number % PARTITIONS, record_batch([b"%d" % number])) for number in range(parts)], acks
    )


def values(broker: SteppedBroker) -> list[int]:
    return [int(value) for index in range(PARTITIONS) for value in broker.values("wide", index)]


def test_no_run_is_long(broker: SteppedBroker) -> None:
    """Neither the turn of its arrival, which decodes it in one step, nor that of the last part's response."""
    frame = request_frame(PRODUCE, VERSION, 7, body(2))[4:]
    longest_turn(broker, ApiKey.PRODUCE, VERSION, frame)
    frame = request_frame(PRODUCE, VERSION, 7, body(PARTS))[4:]
    clock, body_at = broker.clock, parse_header(frame, 0, len(frame)).body_offset
    assert isinstance(clock, CallClock)
    decoding = clock.counting(lambda: parse_produce(frame, VERSION, body_at, len(frame)))
    assert longest_turn(broker, ApiKey.PRODUCE, VERSION, frame) <= MOST_CALLS + decoding
    assert len(values(broker)) == PARTS + 2


@pytest.mark.parametrize("before", [0, 1, 3, 6, 8, 10, 12, 14])
def test_each_part_is_appended_once_whenever_its_handler_dies(
    broker: SteppedBroker, monkeypatch: pytest.MonkeyPatch, before: int
) -> None:
    """Before its parts have memory for notes, between, when some are stored, and while its response is encoded."""
    parts = 1500
    # One step per turn.
    monkeypatch.setattr(task_queues, "AT_ONCE_NS", 1)
    monkeypatch.setattr(slices, "BUDGET_NS", 1)
    sent = broker.client().send(PRODUCE, VERSION, body(parts), 0)
    for _ in range(before * 2):
        run_once(broker, 0)
        broker.drain()
    assert not sent.answers
    broker.replace(0)
    broker.settle(10_000)
    assert {error for error, _ in produced(sent)} == {0}
    assert len(produced(sent)) == parts
    assert sorted(values(broker)) == list(range(parts))
    assert broker.released(0, 0)


def test_after_a_death_during_encoding_the_response_is_that_of_the_notes(
    broker: SteppedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = 1500
    sent = broker.client().send(PRODUCE, VERSION, body(parts), 0)
    broker.run_once(0)
    monkeypatch.setattr(slices, "BUDGET_NS", 1)
    turns = 0
    while len(values(broker)) < parts:
        run_once(broker, 0)
        turns += 1
        assert turns < 10_000
    broker.drain()
    assert not sent.answers
    assert not broker.released(0, 0)
    broker.replace(0)
    broker.settle(10_000)
    assert {error for error, _ in produced(sent)} == {0}
    assert len(set(produced(sent))) == -(-parts // PARTITIONS)
    assert sorted(values(broker)) == list(range(parts))


def test_a_malformed_one_closes_its_connection_and_appends_nothing(
    broker: SteppedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    """It is parsed in slices: a late error is the client's fault, too."""
    sent = broker.client().send(PRODUCE, VERSION, body(PARTS)[:-1], 0)
    broker.settle(1000)
    assert sent.answer.kind == CLOSE_CONNECTION
    assert values(broker) == []
    assert broker.released(0, 0)
    assert "Traceback" not in caplog.text
    assert "ends after" in caplog.text


def test_without_acks_there_is_no_response(broker: SteppedBroker) -> None:
    client = broker.client()
    client.send(PRODUCE, VERSION, body(PARTS, acks=0), 0)
    broker.settle(1000)
    assert len(values(broker)) == PARTS
    assert broker.released(0, 0)
