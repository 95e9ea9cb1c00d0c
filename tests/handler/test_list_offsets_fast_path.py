"""The fast path of ListOffsets: in every version the general path's response, for requests without a search."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from rotunda.broker.handler.api_calls import ApiCalls
from rotunda.broker.protocol import codec
from tests.support.record_batches import record_batch
from tests.support.stepped_broker import Client, Sent, SteppedBroker

LIST_OFFSETS = 2
LATEST, EARLIEST, LARGEST = -1, -2, -3


@pytest.fixture
def long_way(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list to which each request on the general path appends its version."""
    seen: list[int] = []
    real = ApiCalls.handle

    def handle(calls: ApiCalls, api: object, frame: object) -> None:
        seen.append(frame.api_version)  # type: ignore[attr-defined]
        real(calls, api, frame)  # type: ignore[arg-type]

    monkeypatch.setattr(ApiCalls, "handle", handle)
    return seen


def ask(client: Client, version: int, parts: Sequence[tuple[int, int]], target: int = 0, **more: int) -> Sent:
    """Send a ListOffsets for (partition, timestamp) of the topic."""
    partitions = [{"partition_index": index, "timestamp": timestamp, **more} for index, timestamp in parts]
    values = {"replica_id": -1, "topics": [{"name": "topic", "partitions": partitions}]}
    frame = codec.encode_request(LIST_OFFSETS, version, 7, "tool", values)
    return client.send_frame(LIST_OFFSETS, version, frame[4:], target)


def found(sent: Sent) -> list[tuple[int, int, int]]:
    """Return (error code, offset, leader epoch) of each partition."""
    payload = sent.answer.payload
    response = codec.decode_response(LIST_OFFSETS, sent.version, payload, 4, len(payload))
    return [
        (int(part.error_code), part.offset, max(part.leader_epoch, 0))
        for topic in response.topics
        for part in topic.partitions
    ]


@pytest.mark.parametrize("version", range(1, 12))
@pytest.mark.parametrize("handler", [0, 1])
def test_the_ends_of_logs_are_told_as_they_are_by_now(
    stepped: SteppedBroker, version: int, handler: int, long_way: list[int]
) -> None:
    """From any handler, on a connection that repeats its request and on a new one."""
    for appended in range(3):
        for client in (stepped.client(), stepped.client()):
            for _ in range(2):
                sent = ask(client, version, [(0, LATEST), (1, LATEST)], handler)
                first = ask(client, version, [(0, EARLIEST)], handler)
                stepped.settle()
                assert found(sent) == [(0, appended, 0), (0, 0, 0)]
                assert found(first) == [(0, 0, 0)]
        stepped.client().produce([("topic", 0, record_batch([b"a"]))])
        stepped.settle()
    assert long_way == []


@pytest.mark.parametrize(
    ("parts", "epoch", "errors"),
    [
        ([(0, LARGEST)], -1, [0]),
        ([(0, 5)], -1, [0]),
        ([(0, LATEST), (0, LATEST)], -1, [42, 42]),
        ([(99, LATEST)], -1, [3]),
        ([(0, LATEST)], 9, [75]),
    ],
)
def test_what_takes_a_search_or_has_an_error_takes_the_long_way(
    stepped: SteppedBroker, long_way: list[int], parts: list[tuple[int, int]], epoch: int, errors: list[int]
) -> None:
    client = stepped.client()
    for _ in range(2):
        sent = ask(client, 7, parts, current_leader_epoch=epoch)
        stepped.settle()
        assert [error for error, _, _ in found(sent)] == errors
    assert long_way == [7, 7]


def test_a_topic_of_the_same_name_is_another(stepped: SteppedBroker) -> None:
    stepped.client().produce([("topic", 0, record_batch([b"a"]))])
    stepped.settle()
    client = stepped.client()
    before = ask(client, 7, [(0, LATEST)])
    stepped.settle()
    stepped.delete("topic")
    stepped.settle()
    gone = ask(client, 7, [(0, LATEST)])
    stepped.settle()
    stepped.create("topic", 1)
    stepped.settle()
    after = ask(client, 7, [(0, LATEST)])
    stepped.settle()
    assert [found(sent)[0][:2] for sent in (before, gone, after)] == [(0, 1), (3, -1), (0, 0)]
