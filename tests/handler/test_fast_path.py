"""Requests that resemble a cached Produce, and those that may not be cached (the others: test_without_fast_paths)."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from rotunda.broker.faults.faulty_session import FaultySession
from rotunda.broker.handler.request_handler import Handle
from rotunda.broker.ipc.request import Request
from rotunda.broker.log.segments.log_segment import LogSegment
from rotunda.broker.native import compiled
from rotunda.broker.protocol import codec
from tests.support.record_batches import record_batch
from tests.support.stepped_broker import ARENA_BYTES, Sent, SteppedBroker
from tests.support.wire_messages import PRODUCE


def produce_frame(version: int, records: bytes, acks: int = 1) -> bytes:
    """Return a Produce of partition 0, from its api key on."""
    topics = [{"name": "topic", "partition_data": [{"index": 0, "records": bytes(records)}]}]
    return codec.encode_request(PRODUCE, version, 0, "test", {"acks": acks, "timeout_ms": 1000, "topic_data": topics})[
        4:
    ]


def outcome(sent: Sent) -> tuple[int, int]:
    """Return (error code, base offset)."""
    payload = sent.answer.payload
    response = codec.decode_response(PRODUCE, sent.version, payload, 4, len(payload))
    [partition] = response.responses[0].partition_responses
    return int(partition.error_code), partition.base_offset


@pytest.mark.parametrize("version", [7, 9])
def test_a_truncated_request_is_not_equal_to_the_cached_one(stepped: SteppedBroker, version: int) -> None:
    client, owner = stepped.client(), stepped.partition("topic", 0).owner
    records = record_batch([b"a"])
    good = produce_frame(version, records)
    client.send_frame(PRODUCE, version, good, owner)
    stepped.settle()
    for wrong in (good[:-1], good[: -len(records)]):
        cut = client.send_frame(PRODUCE, version, wrong, owner)
        stepped.settle()
        assert cut.answers
    assert stepped.end("topic", 0) == 1


def test_records_for_a_deleted_topic_are_not_appended_by_the_cached_request(stepped: SteppedBroker) -> None:
    client = stepped.client()
    for _ in range(2):
        client.produce([("topic", 0, record_batch([b"a" * 200]))])
        stepped.settle()
    stepped.create("other", 1)
    stepped.delete("topic")
    late = client.produce([("topic", 0, record_batch([b"a"]))])
    stepped.settle()
    assert outcome(late) == (3, -1)


@pytest.mark.stepped({}, handlers=1)
def test_a_request_larger_than_the_arena_is_as_exact_as_any(broker: SteppedBroker) -> None:
    broker.create("topic", 1, {"max.message.bytes": str(64 << 20), "segment.bytes": str(256 << 20)})
    value = b"x" * (ARENA_BYTES + 1)
    sent = broker.client().produce([("topic", 0, record_batch([value]))])
    line = 1
    while broker.turn_until_line(0, line):
        broker.replace(0)
        line += 40
    broker.settle()
    assert outcome(sent) == (0, 0)
    assert broker.values("topic", 0) == [value]
    assert broker.released(0, 0)


def test_a_request_with_an_injected_fault_is_not_cached(stepped: SteppedBroker) -> None:
    """The next one would use its session, and fail too."""
    client, handler = stepped.client(), stepped.handler(0)
    struck = FaultySession("ANONYMOUS", "", delay_ms=1)

    def strike(request: Request, handle: Handle) -> None:
        request.session = struck
        handle(request)

    handler.wrap(strike)
    client.produce([("topic", stepped.owned_by("topic", 0)[0], record_batch([b"a"]))])
    stepped.settle()
    assert len(handler._produce.cache) == 0


@pytest.mark.skipif(compiled is None, reason="of compiled code")
def test_a_request_that_fails_in_compiled_code_is_logged_and_handled_by_its_twin(
    stepped: SteppedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, partition = stepped.client(), stepped.owned_by("topic", 0)[0]
    logged: list[object] = []
    outcomes: list[tuple[int, int]] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda each: logged.append(each.exc_value))
    real, error = LogSegment.try_stage, MemoryError()

    def try_stage(*arguments: Any) -> bool:
        if len(outcomes) == 2 and not logged:
            raise error
        return real(*arguments)

    monkeypatch.setattr(LogSegment, "try_stage", try_stage)
    for _ in range(3):
        sent = client.produce([("topic", partition, record_batch([b"a"]))])
        stepped.settle()
        outcomes.append(outcome(sent))
    assert (outcomes, logged) == ([(0, 0), (0, 1), (0, 2)], [error])
    assert stepped.values("topic", partition) == [b"a"] * 3
