"""Fetches with read_committed: up to the last stable offset, with aborted transactions, woken when it moves."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from rotunda.broker.records.record_batch import unpack_header
from tests.support.record_batches import record_batch
from tests.support.stepped_broker import Client, Sent, SteppedBroker
from tests.support.wire_messages import FETCH, Reader, fetch_body_of, read_batches

VERSION = 11
TRANSACTIONAL = 0x10


class Part(NamedTuple):
    """The only partition of a Fetch response."""

    error_code: int
    high_watermark: int
    last_stable_offset: int
    aborted: list[tuple[int, int]] | None
    records: bytes

    @property
    def values(self) -> list[bytes]:
        """Values of all records, markers included."""
        return [record.value for record in read_batches(self.records)]


def fetch(
    client: Client, partition: int, offset: int, target: int | None = None, *, level: int = 1, max_wait_ms: int = 0,
    min_bytes: int = 1,
) -> Sent:  # fmt: skip
    places = [("topic", partition, offset)]
    body = fetch_body_of(places, max_wait_ms=max_wait_ms, min_bytes=min_bytes, isolation=level)
    return client.send(FETCH, VERSION, body, target)


def answered(sent: Sent) -> Part:
    reader = Reader(sent.answer.payload[8:])
    reader.take("ihii")
    reader.string()
    reader.take("i")
    _, error_code, high_watermark, stable, _, count = reader.take("ihqqqi")
    aborted = [reader.take("qq") for _ in range(count)] if count >= 0 else None
    _, size = reader.take("ii")
    return Part(error_code, high_watermark, stable, aborted, reader.raw(size))


class Owner:
    """The owner of a partition; the test appends to it directly."""

    def __init__(self, broker: SteppedBroker, partition: int) -> None:
        place = broker.partition("topic", partition)
        self.owned = broker.parts(place.owner).partitions.owned[place.row]
        self.sequences: dict[int, int] = {}
        self._handler = broker.handler(place.owner)

    def announce(self) -> None:
        """Publish the moved row in the owner's next turn."""
        self._handler._moved.append(self.owned.row)

    def append(self, value: bytes, producer_id: int = -1) -> None:
        fields = {}
        if producer_id >= 0:
            sequence = self.sequences.get(producer_id, 0)
            self.sequences[producer_id] = sequence + 1
            fields = {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": sequence}
            fields["attributes"] = TRANSACTIONAL
        batch = memoryview(bytearray(record_batch([value], **fields)))
        assert self.owned.log.stage(batch, unpack_header(batch))[0] == 0
        assert self.owned.log.commit()
        self.owned.publish()
        self.announce()

    def end(self, producer_id: int, *, commit: bool) -> None:
        assert self.owned.log.stage_marker(producer_id, 0, 0, commit=commit)[0] == 0
        assert self.owned.log.commit()
        self.owned.publish()
        self.announce()


@pytest.mark.parametrize("handler", [0, 1])
def test_nothing_of_an_open_transaction_is_seen(stepped: SteppedBroker, handler: int) -> None:
    """users.md row 11."""
    partition = stepped.owned_by("topic", 0)[0]
    owner = Owner(stepped, partition)
    owner.append(b"plain")
    owner.append(b"open", producer_id=7)
    owner.append(b"behind")
    committed = fetch(stepped.client(), partition, 0, handler)
    plain = fetch(stepped.client(), partition, 0, handler, level=0)
    beyond = fetch(stepped.client(), partition, 2, handler)
    stepped.settle()
    assert answered(committed)[:4] == (0, 3, 1, [])
    assert answered(committed).values == [b"plain"]
    assert answered(plain)[:4] == (0, 3, 1, None)
    assert answered(plain).values == [b"plain", b"open", b"behind"]
    assert answered(beyond) == Part(0, 3, 1, [], b"")


def test_an_aborted_transaction_is_named(stepped: SteppedBroker) -> None:
    owner = Owner(stepped, 0)
    owner.append(b"aborted", producer_id=7)
    owner.append(b"committed", producer_id=8)
    owner.end(7, commit=False)
    owner.append(b"open", producer_id=9)
    owner.end(8, commit=True)
    for handler in (0, 1):
        sent = fetch(stepped.client(), 0, 0, handler)
        later = fetch(stepped.client(), 0, 2, handler)
        stepped.settle()
        part = answered(sent)
        assert part[:4] == (0, 5, 3, [(7, 0)])
        assert len(part.values) == 3
        # Only the marker: its transaction is still listed as aborted.
        assert answered(later).aborted == [(7, 0)]


@pytest.mark.parametrize("own", [True, False])
def test_a_parked_fetch_wakes_when_the_stable_offset_moves(stepped: SteppedBroker, own: bool) -> None:
    """Also after it has read the new end while the stable offset was still the old one."""
    partition = stepped.owned_by("topic", 0)[0]
    owner = Owner(stepped, partition)
    handler = 0 if own else 1
    owner.append(b"open", producer_id=7)
    sent = fetch(stepped.client(), partition, 0, handler, max_wait_ms=10_000)
    stepped.run_once(handler)
    stepped.drain()
    assert not sent.answers
    publish = owner.owned.writer.publish
    assert owner.owned.log.stage_marker(7, 0, 0, commit=True)[0] == 0
    owner.owned.log.commit()
    log = owner.owned.log
    publish(log.log_end_offset, log.segment_base, log.position, 0, 0, log.size_bytes)
    owner.announce()
    stepped.run_once(0)
    stepped.run_once(handler)
    stepped.drain()
    assert not sent.answers
    owner.owned.publish()
    owner.announce()
    stepped.run_once(0)
    stepped.run_once(handler)
    stepped.drain()
    assert answered(sent)[:4] == (0, 2, 2, [])
    assert answered(sent).values[0] == b"open"


def test_unstable_records_do_not_count_for_min_bytes(stepped: SteppedBroker) -> None:
    owner = Owner(stepped, 0)
    owner.append(b"stable")
    owner.append(b"x" * 5_000, producer_id=7)
    sent = fetch(stepped.client(), 0, 0, max_wait_ms=10_000, min_bytes=1_000)
    stepped.settle()
    assert not sent.answers
    owner.end(7, commit=False)
    stepped.settle()
    assert answered(sent).aborted == [(7, 1)]
