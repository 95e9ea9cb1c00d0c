"""Waits of Fetch for `fetch.min.bytes`: never for bytes beyond its own limits or the end of the segment.

Apache Kafka cuts records in the middle of a batch, so that its response reaches a limit exactly. Rotunda returns whole
batches, and counts as Kafka does.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.support.record_batches import record_batch
from tests.support.stepped_broker import Sent, SteppedBroker, produced
from tests.support.wire_messages import FETCH, fetch_body_of, read_batches, read_fetch

VERSION = 11
ROOMY = 1 << 20
COMMITTED = 1
#: One record of 200 bytes.
BATCH = record_batch([b"v" * 200])
LITTLE = record_batch([b"v"])


def fill(broker: SteppedBroker, topic: str, partition: int, batches: int, data: bytes = BATCH) -> None:
    for _ in range(batches):
        sent = broker.client().produce([(topic, partition, data)])
        broker.settle()
        assert produced(sent)[0][0] == 0


def fetch(
    broker: SteppedBroker,
    places: Sequence[tuple[int, int]],
    *,
    min_bytes: int,
    max_bytes: int = ROOMY,
    size: int = ROOMY,
    isolation: int = 0,
    topic: str = "topic",
) -> Sent:
    """Fetch from (partition, offset), with a wait of half a second, and run the handler once."""
    body = fetch_body_of(
        [(topic, *place) for place in places],
        max_wait_ms=500,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        size=size,
        isolation=isolation,
    )
    sent = broker.client().send(FETCH, VERSION, body)
    broker.run_once(sent.target)
    broker.drain()
    return sent


def batches(sent: Sent) -> list[int]:
    """Return the number of batches for each partition."""
    return [len(list(read_batches(part.records))) for part in read_fetch(sent.answer.payload[8:])]


@pytest.mark.parametrize("isolation", [0, COMMITTED])
def test_a_partition_limit_that_ends_within_a_batch_counts_whole(stepped: SteppedBroker, isolation: int) -> None:
    fill(stepped, "topic", 0, 3)
    size = 2 * len(BATCH) + 50
    assert batches(fetch(stepped, [(0, 0)], min_bytes=size, size=size, isolation=isolation)) == [2]
    assert not fetch(stepped, [(0, 0)], min_bytes=size + 1, size=size, isolation=isolation).answers


def test_limits_of_several_partitions_add_up(stepped: SteppedBroker) -> None:
    for partition in range(3):
        fill(stepped, "topic", partition, 2)
    places = [(partition, 0) for partition in range(3)]
    size = len(BATCH) + 50
    assert batches(fetch(stepped, places, min_bytes=3 * size, size=size)) == [1, 1, 1]
    assert not fetch(stepped, places, min_bytes=3 * size + 1, size=size).answers


def test_the_limit_of_the_response_counts_whole(stepped: SteppedBroker) -> None:
    for partition in range(3):
        fill(stepped, "topic", partition, 2)
    places = [(partition, 0) for partition in range(3)]
    max_bytes = 3 * len(BATCH) + 50
    assert batches(fetch(stepped, places, min_bytes=ROOMY, max_bytes=max_bytes)) == [2, 1, 0]


def test_a_fetch_waits_for_missing_bytes(stepped: SteppedBroker) -> None:
    fill(stepped, "topic", 0, 2)
    sent = fetch(stepped, [(0, 0)], min_bytes=3 * len(BATCH))
    assert not sent.answers
    fill(stepped, "topic", 0, 1)
    stepped.settle()
    assert batches(sent) == [3]


@pytest.mark.parametrize("isolation", [0, COMMITTED])
def test_a_fetch_of_an_older_segment_completes_at_once(stepped: SteppedBroker, isolation: int) -> None:
    """No records are appended to it."""
    stepped.create("small", 1, {"internal.segment.bytes": str(2 * len(BATCH) + 50)})
    fill(stepped, "small", 0, 5)
    for offset, expected in ((0, 2), (1, 1), (2, 2), (3, 1)):
        sent = fetch(stepped, [(0, offset)], min_bytes=ROOMY, topic="small", isolation=isolation)
        assert batches(sent) == [expected]
    assert not fetch(stepped, [(0, 4)], min_bytes=ROOMY, topic="small", isolation=isolation).answers


@pytest.mark.parametrize("moved", [(), (0,), (1,), (1, 0)])
def test_a_batch_beyond_the_limit_is_returned_after_a_wait(stepped: SteppedBroker, moved: tuple[int, ...]) -> None:
    """It is the first of the response; records of later partitions, found during the wait, do not displace it."""
    fill(stepped, "topic", 0, 1)
    fill(stepped, "topic", 1, 1, LITTLE)
    sent = fetch(stepped, [(0, 0), (1, 0)], min_bytes=ROOMY, size=len(LITTLE))
    assert not sent.answers
    for partition in moved:
        fill(stepped, "topic", partition, 1, LITTLE)
    stepped.clock.advance_ms(501)
    stepped.run_once(sent.target)
    stepped.drain()
    assert batches(sent) == [1, 1]


def test_a_batch_beyond_the_limit_is_returned_with_the_records_that_end_its_wait(stepped: SteppedBroker) -> None:
    fill(stepped, "topic", 0, 1)
    sent = fetch(stepped, [(0, 0), (1, 0)], min_bytes=len(BATCH) + len(LITTLE), size=len(LITTLE))
    assert not sent.answers
    fill(stepped, "topic", 1, 1, LITTLE)
    assert batches(sent) == [1, 1]
