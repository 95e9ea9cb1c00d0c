"""An end that was read before its segment was rolled and compacted: the response is that of the current end."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rotunda.broker.cleaner.cleanable import cleanable
from rotunda.broker.cleaner.compaction import Compaction, Limits
from rotunda.broker.cleaner.segments import Published, look_at
from rotunda.broker.partitions.owned_partition import OwnedPartition
from rotunda.broker.records.record_batch import unpack_header
from rotunda.shm.tables.partitions import PartitionTable
from tests.handler.test_committed_reads import Part, answered, fetch
from tests.support.record_batches import record_batch
from tests.support.stepped_broker import SteppedBroker
from tests.support.transactional import answer_of, send

LIST_OFFSETS = 2


class CompactedPartition:
    """A partition of a compacted topic, and its cleaner."""

    def __init__(self, broker: SteppedBroker) -> None:
        place = broker.partition("topic", 0)
        self.row = place.row
        self.owned: OwnedPartition = broker.parts(place.owner).partitions.owned[place.row]
        self.now_ms = broker.clock.wall_ms()

    def append(self, *keys: bytes, timestamp_ms: int = 0) -> None:
        """Append a batch with a record for each key."""
        data = record_batch([b"v" * 20 for _ in keys], keys=list(keys), timestamp_ms=timestamp_ms or self.now_ms)
        batch = memoryview(bytearray(data))
        assert self.owned.log.stage(batch, unpack_header(batch))[0] == 0
        assert self.owned.log.commit()
        self.owned.publish()

    def roll(self) -> None:
        """Start a new segment."""
        assert self.owned.log.roll()
        self.owned.publish()

    def compact(self) -> None:
        """Run one round of compaction, like the cleaner."""
        log = self.owned.log
        ends = (log.log_start_offset, log.log_end_offset, log.last_stable_offset, log.segment_base, log.position)
        seen = look_at(log.directory, Published(*ends))
        found = cleanable(seen, None, log.config, self.now_ms)
        round_ = Compaction(seen, found, log.config, Limits(1 << 20, 1000), self.now_ms, lambda _: None)
        assert round_.run(log.swap_segments) is not None
        self.owned.publish()
        self.owned.writer.note_removal()


pytestmark = pytest.mark.stepped({"topic": 1}, configs={"cleanup.policy": "compact"})


def after_first_reading(monkeypatch: pytest.MonkeyPatch, row: int, meanwhile: Callable[[], None]) -> None:
    """Run a function once, right after the first read of the partition's end."""
    read_position = PartitionTable.read_position
    readings: list[int] = []

    def read(table: PartitionTable, asked: int) -> tuple[int, int, int]:
        found = read_position(table, asked)
        if asked == row and not readings:
            readings.append(1)
            meanwhile()
        return found

    monkeypatch.setattr(PartitionTable, "read_position", read)


def grown(partition: CompactedPartition) -> None:
    """Roll the segment of the end and another one, and compact all rolled segments into one."""
    partition.append(b"a", b"b")
    partition.roll()
    partition.append(b"b")
    partition.roll()
    partition.compact()


def offsets_of(part: Part) -> list[int]:
    """Return the offsets of the records in a response, which must consist of whole batches."""
    found = []
    at = 0
    while at < len(part.records):
        header = unpack_header(part.records[at:])
        size = header[1] + 12
        assert at + size <= len(part.records), "cut in the middle of a batch"
        found.append(header[0] + header[6])
        at += size
    return found


@pytest.mark.parametrize("level", [0, 1], ids=["all", "committed"])
@pytest.mark.parametrize("offset", [0, 2, 3])
def test_a_fetch_with_a_stale_end(
    broker: SteppedBroker, monkeypatch: pytest.MonkeyPatch, level: int, offset: int
) -> None:
    """The slice ends with a batch, no offset is out of range, and no record is missing."""
    partition = CompactedPartition(broker)
    partition.append(b"a", b"b", b"c")
    partition.roll()
    partition.append(b"a")
    after_first_reading(monkeypatch, partition.row, lambda: grown(partition))
    sent = fetch(broker.client(), 0, offset, level=level)
    broker.settle()
    part = answered(sent)
    assert part.error_code == 0
    assert offsets_of(part)[-1] == 6
    assert part.high_watermark == 7


def test_an_offset_by_time_with_a_stale_end(broker: SteppedBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    partition = CompactedPartition(broker)
    partition.append(b"a", b"b", b"c")
    partition.roll()
    partition.append(b"a")
    partition.now_ms += 10
    after_first_reading(monkeypatch, partition.row, lambda: grown(partition))
    for timestamp in (partition.now_ms, -3):
        asked = {"partition_index": 0, "timestamp": timestamp, "current_leader_epoch": -1}
        values = {"replica_id": -1, "isolation_level": 0, "topics": [{"name": "topic", "partitions": [asked]}]}
        sent = send(broker.client(), LIST_OFFSETS, 7, values)
        broker.settle()
        found = answer_of(sent).topics[0].partitions[0]
        assert int(found.error_code) == 0
        assert int(found.offset) in (4, 6)
