"""Many requests in flight on one connection: responses in request order, bounded, nothing lost at the end."""

import random
import struct

import pytest

from tests.support.broker_process import BrokerProcess
from tests.support.deadline import wait_until
from tests.support.record_batches import record_batch
from tests.support.wire_client import WireClient, request_frame
from tests.support.wire_messages import (
    API_VERSIONS,
    FETCH,
    FETCH_VERSION,
    METADATA,
    PRODUCE,
    PRODUCE_VERSION,
    create_topic,
    fetch_body,
    list_offset,
    metadata_body,
    produce,
    produce_body,
    read_partition,
    read_produce,
)

PIPELINE_MAX, PIPELINE_RESUME = 64, 8
LONG_WAIT_MS = 200_000
# Long enough to see that something does not happen; nothing is missed when it is too short.
A_WHILE_SECONDS = 0.3


def produce_frame(correlation_id: int, topic: str, partition: int, value: bytes) -> bytes:
    body = produce_body([(topic, partition, record_batch([value]))])
    return request_frame(PRODUCE, PRODUCE_VERSION, correlation_id, body)


def waiting_fetch(correlation_id: int, topic: str, partition: int, offset: int = 0) -> bytes:
    body = fetch_body(topic, partition, offset, max_wait_ms=LONG_WAIT_MS)
    return request_frame(FETCH, FETCH_VERSION, correlation_id, body)


def correlation_ids(frames: list[bytes]) -> list[int]:
    return [struct.unpack_from(">i", frame)[0] for frame in frames]


@pytest.mark.parametrize("seed", range(3))
def test_responses_come_in_request_order_whoever_gives_them(wire, topic, seed) -> None:
    """Requests for partitions of different owners, for the controller and for no owner, mixed by chance."""
    create_topic(wire, topic, 8)
    chance = random.Random(seed)
    frames = []
    for number in range(600):
        kind = chance.randrange(4)
        partition = chance.randrange(8)
        if kind == 0:
            frames.append(request_frame(API_VERSIONS, 0, number))
        elif kind == 1:
            frames.append(request_frame(METADATA, 4, number, metadata_body([topic])))
        elif kind == 2:
            body = fetch_body(topic, partition, 0, min_bytes=0)
            frames.append(request_frame(FETCH, FETCH_VERSION, number, body))
        else:
            frames.append(produce_frame(number, topic, partition, b"%d" % number))
    answers = []
    for start in range(0, len(frames), PIPELINE_MAX):
        wire.send(b"".join(frames[start : start + PIPELINE_MAX]))
        answers += wire.receive_frames(len(frames[start : start + PIPELINE_MAX]))
    assert correlation_ids(answers) == list(range(600)), f"seed {seed}"


def test_produce_keeps_its_order_within_each_partition(wire, topic) -> None:
    create_topic(wire, topic, 4)
    wire.send(b"".join(produce_frame(n, topic, n % 4, b"%d" % n) for n in range(400)))
    produced = [read_produce(frame[4:])[0] for frame in wire.receive_frames(400)]
    assert [(part.partition, part.error_code, part.base_offset) for part in produced] == [
        (n % 4, 0, n // 4) for n in range(400)
    ]


def test_order_holds_when_requests_span_owners(broker: BrokerProcess, wire, topic) -> None:
    """A part that is forwarded to its owner must not be overtaken by the connection's next request for it."""
    partitions = 4
    create_topic(wire, topic, partitions)
    seed = random.SystemRandom().randrange(2**32)
    chance = random.Random(seed)
    written: list[list[bytes]] = [[] for _ in range(partitions)]
    for _ in range(8):
        with WireClient(broker.port) as client:
            frames = []
            for number in range(300):
                named = chance.sample(range(partitions), chance.choice((1, 1, 1, 2, 3)))
                parts = []
                for partition in named:
                    value = b"%d" % len(written[partition])
                    written[partition].append(value)
                    parts.append((topic, partition, record_batch([value])))
                frames.append(request_frame(PRODUCE, PRODUCE_VERSION, number, produce_body(parts)))
            client.send(b"".join(frames))
            client.receive_frames(300)
    for partition in range(partitions):
        values = [record.value for record in read_partition(wire, topic, partition)]
        assert values == written[partition], f"seed {seed}, partition {partition}"


def test_a_response_waits_for_the_parked_fetch_before_it(broker: BrokerProcess, wire, topic) -> None:
    create_topic(wire, topic)
    wire.send(waiting_fetch(1, topic, 0) + request_frame(API_VERSIONS, 0, 2))
    wire.expect_silence(A_WHILE_SECONDS)
    with WireClient(broker.port) as other:
        produce(other, topic, 0, record_batch([b"wake"]))
    assert correlation_ids(wire.receive_frames(2)) == [1, 2]


def test_d10_the_64th_request_is_read(wire, topic) -> None:
    """63 fetches wait for the records of the 64th request of the same connection."""
    create_topic(wire, topic)
    fetches = [waiting_fetch(n, topic, 0) for n in range(PIPELINE_MAX - 1)]
    wire.send(b"".join([*fetches, produce_frame(63, topic, 0, b"x")]))
    assert correlation_ids(wire.receive_frames(PIPELINE_MAX)) == list(range(PIPELINE_MAX))


def test_d10_the_65th_waits_until_fewer_than_8_are_unanswered(broker: BrokerProcess, wire, topic) -> None:
    create_topic(wire, topic, PIPELINE_MAX + 1)
    last = PIPELINE_MAX
    fetches = [waiting_fetch(n, topic, n) for n in range(PIPELINE_MAX)]
    with WireClient(broker.port) as other:
        wire.send(b"".join([*fetches, produce_frame(last, topic, last, b"the 65th")]))
        wire.expect_silence(A_WHILE_SECONDS)
        assert list_offset(other, topic, last) == (0, 0)
        for partition in range(PIPELINE_MAX - PIPELINE_RESUME):
            produce(other, topic, partition, record_batch([b"x"]))
        answered = wire.receive_frames(PIPELINE_MAX - PIPELINE_RESUME)
        wire.expect_silence(A_WHILE_SECONDS)
        assert list_offset(other, topic, last) == (0, 0)
        produce(other, topic, PIPELINE_MAX - PIPELINE_RESUME, record_batch([b"one more"]))
        wait_until(lambda: list_offset(other, topic, last) == (0, 1), "the 65th request read")
        for partition in range(PIPELINE_MAX - PIPELINE_RESUME + 1, PIPELINE_MAX):
            produce(other, topic, partition, record_batch([b"x"]))
        answered += wire.receive_frames(PIPELINE_RESUME + 1)
    assert correlation_ids(answered) == list(range(PIPELINE_MAX + 1))


def test_a_thousand_requests_at_once_are_all_answered(wire) -> None:
    """Far more than may be in flight: the rest waits in the socket, in order."""
    count = 5000
    wire.send(b"".join(request_frame(API_VERSIONS, 0, n) for n in range(count)))
    assert correlation_ids(wire.receive_frames(count)) == list(range(count))
