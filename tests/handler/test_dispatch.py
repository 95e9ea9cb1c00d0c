"""Dispatch of requests, completion of responses by other processes, and requests pending at a stop."""

from __future__ import annotations

import pytest

from rotunda.broker.apis import table
from rotunda.broker.apis.context import BrokerContext
from rotunda.broker.ipc.request import Request
from rotunda.broker.ipc.request_channel import CLOSE_CONNECTION, SEND
from rotunda.broker.protocol import codec
from rotunda.broker.protocol.api_keys import ApiKey
from rotunda.broker.protocol.error_codes import ErrorCode
from rotunda.broker.protocol.primitives import MOST_ELEMENTS
from tests.support.record_batches import record_batch
from tests.support.stepped_broker import SteppedBroker, produced
from tests.support.wire_messages import API_VERSIONS, METADATA, metadata_body


def test_e07_a_key_is_dispatched_by_the_table_and_one_that_is_missing_closes(
    stepped: SteppedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    real = table.APIS[METADATA]

    def answer(request: Request, broker: BrokerContext, body: object) -> object:
        asked.append(METADATA)
        assert real.function is not None
        return real.function(request, broker, body)

    monkeypatch.setitem(table.APIS, METADATA, real._replace(function=answer))
    client = stepped.client()
    first = client.send(METADATA, 4, metadata_body(["topic"]))
    stepped.settle()
    assert (first.answer.kind, asked) == (SEND, [METADATA])
    monkeypatch.delitem(table.APIS, METADATA)
    second = client.send(METADATA, 4, metadata_body(["other"]))
    other = stepped.client().send(API_VERSIONS, 0, b"")
    stepped.settle()
    assert second.answer.kind == CLOSE_CONNECTION
    assert other.answer.kind == SEND
    assert asked == [METADATA]


def test_d05_an_idle_handler_sleeps_300_ms_at_most(stepped: SteppedBroker) -> None:
    assert [stepped.handlers[index].wait_ms() for index in (0, 1)] == [300, 300]


def test_e20_ordinary_clients_do_not_produce_to_internal_topics(stepped: SteppedBroker) -> None:
    stepped.create("__consumer_offsets", 4)
    sent = stepped.client().produce([("__consumer_offsets", 0, record_batch([b"foreign"]))])
    stepped.settle()
    assert produced(sent) == [(17, -1)]
    assert stepped.end("__consumer_offsets", 0) == 0


def test_e07_no_key_is_registered_twice() -> None:
    assert len({api.key for api in table.API_TABLE}) == len(table.API_TABLE) == len(table.APIS)
    assert {key for key, _, _ in table.advertised(has_telemetry=True)} == set(table.APIS)


def test_e03_a_request_of_one_handler_gets_its_response_in_the_same_run(stepped: SteppedBroker) -> None:
    (own, *_) = stepped.owned_by("topic", 0)
    sent = stepped.client().produce([("topic", own, record_batch([b"alone"]))])
    assert sent.target == 0
    stepped.run_once(0)
    stepped.drain()
    assert produced(sent) == [(0, 0)]


def test_e03_a_forwarded_request_gets_its_response_from_its_first_handler(stepped: SteppedBroker) -> None:
    """The other owner's response arrives as a message; the request's own handler completes it in a later turn."""
    own, foreign = stepped.owned_by("topic", 0)[0], stepped.owned_by("topic", 1)[0]
    batch = record_batch([b"shared"])
    sent = stepped.client().produce([("topic", own, batch), ("topic", foreign, batch)])
    assert sent.target == 0
    for index in (0, 1):
        stepped.run_once(index)
        stepped.drain()
        assert sent.answers == []
    assert (stepped.end("topic", own), stepped.end("topic", foreign)) == (1, 1)
    stepped.run_once(0)
    stepped.drain()
    assert produced(sent) == [(0, 0), (0, 0)]


def test_e05_requests_still_queued_at_a_stop_are_left_unanswered_and_change_nothing(stepped: SteppedBroker) -> None:
    """A stopped target has completed every request it read; unread ones were never acknowledged."""
    client = stepped.client()
    (own, *_) = stepped.owned_by("topic", 0)
    taken = client.produce([("topic", own, record_batch([b"taken"]))])
    stepped.run_once(0)
    queued = client.produce([("topic", own, record_batch([b"queued"]))])
    stepped.parts(0).partitions.log_manager.close(clean=True)
    stepped.drain()
    assert produced(taken) == [(0, 0)]
    assert queued.answers == []
    assert stepped.values("topic", own) == [b"taken"]


@pytest.mark.parametrize("version", [4, 13])
def test_a_request_of_too_many_elements_is_rejected_with_an_error_if_its_response_has_one(
    stepped: SteppedBroker, version: int
) -> None:
    client = stepped.client()
    topics = [{"name": "t"}] * (MOST_ELEMENTS + 1)
    frame = codec.encode_request(ApiKey.METADATA, version, 1, "me", {"topics": topics})
    sent = client.send_frame(ApiKey.METADATA, version, frame[4:], 0)
    stepped.settle()
    if version < 13:
        assert sent.answer.kind == CLOSE_CONNECTION
    else:
        payload = sent.answer.payload
        answer = codec.decode_response(ApiKey.METADATA, version, payload, 4, len(payload))
        assert (answer.error_code, answer.topics) == (ErrorCode.INVALID_REQUEST, ())
        assert sent.answer.error_code == ErrorCode.INVALID_REQUEST
