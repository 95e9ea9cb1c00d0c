"""The fast path of Produce: used when only the records differ, in every shape of the request, and never wrongly."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from rotunda.broker.faults.faulty_session import FaultySession
from rotunda.broker.handler.request_handler import Handle
from rotunda.broker.ipc.request import Request
from rotunda.broker.partitions.produce.produces import Produces
from rotunda.broker.partitions.request_cache import CACHED_NS
from rotunda.broker.protocol import codec
from tests.support.record_batches import record_batch
from tests.support.stepped_broker import ARENA_BYTES, Client, Sent, SteppedBroker
from tests.support.wire_messages import PRODUCE, produce_body

VERSIONS = (3, 5, 8, 9, 12, 13)


def varint(value: int) -> bytes:
    """Return an unsigned varint."""
    out = b""
    while value > 0x7F:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


def body(broker: SteppedBroker, version: int, partition: int, records: bytes, acks: int = 1) -> bytes:
    """Return a Produce of one partition, after its header's tag section in flexible versions."""
    if version < 9:
        return produce_body([("topic", partition, records)], acks)
    topic = broker.parts(0).metadata.topic("topic")
    assert topic is not None
    name = topic.topic_id if version >= 13 else varint(6) + b"topic"
    return (
        b"\x00\x00" + struct.pack(">hi", acks, 1000) + varint(2) + name + varint(2) + struct.pack(">i", partition)
        + varint(len(records) + 1) + records + b"\x00\x00\x00"
    )  # fmt: skip


def outcome(sent: Sent) -> tuple[int, int]:
    """Return (error code, base offset)."""
    payload = sent.answer.payload
    response = codec.decode_response(PRODUCE, sent.version, payload, 4, len(payload))
    [partition] = response.responses[0].partition_responses
    return int(partition.error_code), partition.base_offset


def test_what_stands_before_long_names_is_not_remembered(stepped: SteppedBroker) -> None:
    """A connection's cache is small, for any length of client id."""
    partition = stepped.owned_by("topic", 0)[0]
    for client_id, remembered in (("short", 1), ("x" * 30_000, 1), ("x" * 300, 2)):
        client = stepped.client()
        values = {
            "acks": 1,
            "timeout_ms": 1000,
            "topic_data": [
                {"name": "topic", "partition_data": [{"index": partition, "records": bytes(record_batch([b"a"]))}]}
            ],
        }
        client.send_frame(PRODUCE, 8, codec.encode_request(PRODUCE, 8, 0, client_id, values)[4:], 0)
        stepped.settle()
        assert len(stepped.handler(0)._produce.cache) == remembered


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list to which each request on the general path appends its version."""
    seen: list[int] = []
    real: Callable[..., None] = Produces.handle

    def handle(self: Produces, frame: object) -> None:
        seen.append(frame.api_version)  # type: ignore[attr-defined]
        real(self, frame)

    monkeypatch.setattr(Produces, "handle", handle)
    return seen


@pytest.mark.parametrize("version", VERSIONS)
def test_only_the_first_request_of_a_connection_is_parsed(
    stepped: SteppedBroker, version: int, parsed: list[int]
) -> None:
    client = stepped.client()
    sent = []
    for number in range(4):
        # Sizes around the limits of a varint's bytes.
        records = record_batch([b"x" * size for size in (1, 30, 200, 20_000)[: number + 1]])
        sent.append(client.send(PRODUCE, version, body(stepped, version, 0, records)))
        stepped.settle()
    assert [outcome(each) for each in sent] == [(0, 0), (0, 1), (0, 3), (0, 6)]
    assert parsed == [version]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_producer_that_alternates_between_partitions_is_parsed_once_for_each(
    stepped: SteppedBroker, version: int, parsed: list[int]
) -> None:
    partitions = stepped.owned_by("topic", 0)
    assert len(partitions) > 1
    first, second = stepped.client(), stepped.client()
    sent = []
    for client in (first, second):
        for number in range(3):
            for partition in partitions:
                records = record_batch([b"x" * (1, 30, 200)[number]])
                sent.append((partition, client.send(PRODUCE, version, body(stepped, version, partition, records))))
                stepped.settle()
    # The second connection's first request determines the number of bytes before its records.
    assert len(parsed) == len(partitions) + 1
    for partition in partitions:
        assert [outcome(each) for where, each in sent if where == partition] == [(0, offset) for offset in range(6)]
    stepped.create("other", 1)
    stepped.settle()
    parsed.clear()
    for partition in partitions:
        first.send(PRODUCE, version, body(stepped, version, partition, record_batch([b"a"])))
        stepped.settle()
    assert len(parsed) == len(partitions), "the topics have changed"


@pytest.mark.parametrize("version", VERSIONS)
def test_a_request_that_differs_in_anything_else_is_parsed(
    stepped: SteppedBroker, version: int, parsed: list[int]
) -> None:
    client = stepped.client()
    records = record_batch([b"a"])
    bodies = [
        body(stepped, version, 0, records),
        body(stepped, version, 1, records),
        body(stepped, version, 0, records),
        body(stepped, version, 0, records, acks=-1),
    ]
    sent = [client.send(PRODUCE, version, each) for each in bodies]
    other_version = VERSIONS[0] if version >= 9 else 8 if version == 5 else 5
    sent.append(client.send(PRODUCE, other_version, body(stepped, other_version, 0, records)))
    stepped.settle()
    assert [error for error, _ in map(outcome, sent)] == [0] * 5
    assert [offset for _, offset in map(outcome, sent)] == [0, 0, 1, 2, 3]
    # Partition 1 has another owner, which does not know this connection.
    assert len(parsed) >= 4


@pytest.mark.parametrize("version", [7, 9])
def test_one_byte_more_or_less_is_no_other_request(stepped: SteppedBroker, version: int) -> None:
    client = stepped.client()
    records = record_batch([b"a"])
    good = body(stepped, version, 0, records)
    client.send(PRODUCE, version, good)
    stepped.settle()
    for wrong in (good[:-1], good[: -len(records)]):
        cut = client.send(PRODUCE, version, wrong, target=stepped.partition("topic", 0).owner)
        stepped.settle()
        assert cut.answers
    assert stepped.end("topic", 0) == 1


def test_changed_settings_are_looked_at_before_the_next_append(stepped: SteppedBroker, parsed: list[int]) -> None:
    client = stepped.client()
    for _ in range(2):
        client.send(PRODUCE, 7, body(stepped, 7, 0, record_batch([b"a" * 200])))
        stepped.settle()
    assert parsed == [7]
    stepped.create("other", 1)
    stepped.delete("topic")
    gone = client.send(PRODUCE, 7, body(stepped, 7, 0, record_batch([b"a"])))
    stepped.settle()
    assert outcome(gone) == (3, -1)
    assert len(parsed) == 2


def test_a_request_larger_than_the_arena_is_as_exact_as_any(tmp_path: Path) -> None:
    broker = SteppedBroker(tmp_path, handlers=1)
    try:
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
    finally:
        broker.close()


def test_nothing_is_kept_of_connections_that_have_gone(stepped: SteppedBroker, parsed: list[int]) -> None:
    """Handlers get no notice of closed connections; cached requests refer to logs."""
    partition = stepped.owned_by("topic", 0)[0]
    staying = stepped.client()
    path = stepped.handler(0)._produce

    def produce(client: Client) -> None:
        client.produce([("topic", partition, record_batch([b"a"]))])
        stepped.settle()

    for _ in range(20):
        produce(stepped.client())
    produce(staying)
    assert len(path.cache) == 21
    parsed.clear()
    for _ in range(3):
        stepped.clock.advance_ns(CACHED_NS + 1)
        produce(staying)
        stepped.settle()
    assert parsed == []
    assert len(path.cache) == 1
    assert path.cache.last.recall(staying.connection) is not None


def test_a_request_that_a_fault_has_struck_is_not_what_the_next_one_is_like(stepped: SteppedBroker) -> None:
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
