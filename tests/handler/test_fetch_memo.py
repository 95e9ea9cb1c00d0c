"""The memo of Fetch: used when only the offsets differ, in every version, and never wrongly."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from broker.partitions.fetch.fetch import FetchPath
from broker.protocol import kio_adapter
from tests.support.record_batches import record_batch
from tests.support.stepped_broker import Client, Sent, SteppedBroker
from tests.support.wire_messages import FETCH, read_batches

VERSIONS = range(4, 19)


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list to which each fetch that is parsed adds its version."""
    seen: list[int] = []
    real = FetchPath.handle

    def handle(path: FetchPath, frame: object) -> None:
        seen.append(frame.api_version)  # type: ignore[attr-defined]
        real(path, frame)  # type: ignore[arg-type]

    monkeypatch.setattr(FetchPath, "handle", handle)
    return seen


def send(
    broker: SteppedBroker, client: Client, version: int, places: Sequence[tuple[int, int]], **options: object
) -> Sent:
    """Fetch from (partition, offset) of the topic."""
    topic = broker.state(0).metadata.topic("topic")
    assert topic is not None
    name = {"topic_id": topic.topic_id} if version >= 13 else {"topic": "topic"}
    wanted = [
        {"partition": partition, "fetch_offset": offset, "partition_max_bytes": 1 << 20} for partition, offset in places
    ]
    values = {"max_wait": 0, "min_bytes": 1, "isolation_level": 0, "topics": [{**name, "partitions": wanted}]}
    frame = kio_adapter.encode_request(FETCH, version, 0, "consumer", {**values, **options})
    return client.send_frame(FETCH, version, frame[4:], 0)


def values(sent: Sent) -> list[tuple[int, list[bytes]]]:
    """Return (error code, values of the records) of each partition."""
    payload = sent.answer.payload
    response = kio_adapter.decode_response(FETCH, sent.version, payload, 4, len(payload))
    return [
        (int(part.error_code), [record.value for record in read_batches(bytes(part.records or b""))])
        for topic in response.responses
        for part in topic.partitions
    ]


def fill(broker: SteppedBroker) -> None:
    """Give two partitions three records each, in batches of one."""
    for partition in (0, 1):
        for number in range(3):
            broker.client().produce([("topic", partition, record_batch([b"%d-%d" % (partition, number)]))])
            broker.settle()


def expected(partition: int, offset: int) -> tuple[int, list[bytes]]:
    return 0, [b"%d-%d" % (partition, number) for number in range(offset, 3)]


@pytest.mark.parametrize("version", VERSIONS)
def test_only_the_first_fetch_of_a_connection_is_parsed(
    stepped: SteppedBroker, version: int, parsed: list[int]
) -> None:
    fill(stepped)
    client = stepped.client()
    wanted = [[(0, first), (1, second)] for first, second in ((0, 0), (1, 3), (3, 2), (2, 1))]
    sent = []
    for places in wanted:
        sent.append(send(stepped, client, version, places))
        stepped.settle()
    assert [values(each) for each in sent] == [[expected(*place) for place in places] for places in wanted]
    assert parsed == [version]
    beyond = send(stepped, client, version, [(0, 4), (1, 0)])
    stepped.settle()
    assert values(beyond) == [(1, []), expected(1, 0)]


def test_a_fetch_that_differs_in_anything_else_is_parsed_and_one_that_came_before_is_not(
    stepped: SteppedBroker, parsed: list[int]
) -> None:
    fill(stepped)
    client = stepped.client()
    wanted = [[(0, 0)], [(1, 0)], [(0, 1)], [(1, 1)], [(0, 0), (1, 0)]]
    sent = []
    for places in wanted:
        sent.append(send(stepped, client, 11, places))
        stepped.settle()
    assert [values(each) for each in sent] == [[expected(*place) for place in places] for places in wanted]
    assert len(parsed) == 3
    committed = send(stepped, client, 11, [(0, 0)], isolation_level=1)
    stepped.settle()
    assert values(committed) == [expected(0, 0)]
    assert len(parsed) == 4


def test_once_the_topics_have_changed_the_next_fetch_is_parsed(stepped: SteppedBroker, parsed: list[int]) -> None:
    """What it asks for may be another partition now."""
    fill(stepped)
    client = stepped.client()

    def fetched() -> list[tuple[int, list[bytes]]]:
        sent = send(stepped, client, 11, [(0, 0)])
        stepped.settle()
        return values(sent)

    assert [fetched(), fetched()] == [[expected(0, 0)]] * 2
    stepped.delete("topic")
    stepped.settle()
    stepped.create("topic", 2)
    stepped.settle()
    assert [fetched(), fetched()] == [[(0, [])]] * 2
    assert len(parsed) == 2
