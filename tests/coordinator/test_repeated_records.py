"""Records from a template have the same bytes as encoded ones, at any position in a batch."""

import random

from rotunda.broker.coordinator.offsets.offset_records import OFFSET_COMMIT, numbered_offset_value, offset_value
from rotunda.broker.coordinator.offsets.offsets import NO_EXPIRY, CommittedOffset
from rotunda.broker.coordinator.offsets.repeated_records import NumberedValue, RepeatedRecords
from rotunda.broker.protocol.primitives import INT64
from rotunda.broker.records.record_reader import iterate_records
from rotunda.broker.records.record_writer import BatchBuilder
from tests.support.feeds import random_seed
from tests.support.record_batches import TIMESTAMP_MS

#: Around these an offset delta gets longer.
BORDERS = (0, 63, 64, 8191, 8192)


def some_records(numbers: random.Random) -> list[tuple[bytes, NumberedValue]]:
    def text() -> bytes:
        return numbers.randbytes(numbers.choice((0, 1, 30, 63, 64, 200)))

    return [(text(), NumberedValue(text(), text(), text())) for _ in range(numbers.randint(1, 5))]


def test_a_batch_is_the_same_as_of_records_encoded_one_by_one() -> None:
    seed = random_seed()
    print(f"seed {seed}")
    numbers = random.Random(seed)
    for border in BORDERS:
        for before in range(max(0, border - 6), border + 2):
            records = some_records(numbers)
            firsts = [numbers.randrange(2**63) for _ in records]
            second = numbers.randrange(2**63)
            others = [(b"%d" % number, b"") for number in range(before)]
            repeated = RepeatedRecords(records)
            builder = BatchBuilder()
            for key, value in others:
                builder.add(key, value)
            encoded = repeated.encode(builder.count, firsts, second)
            builder.add_encoded(encoded, repeated.count)
            assert abs(len(encoded) - repeated.size_bytes) <= 8 * len(records)
            whole = [
                (key, b"".join((head, INT64.pack(first), middle, INT64.pack(second), tail)))
                for (key, (head, middle, tail)), first in zip(records, firsts, strict=True)
            ]
            built = builder.build(TIMESTAMP_MS)
            assert built == BatchBuilder([*others, *whole]).build(TIMESTAMP_MS)
            assert [(each.key, each.value) for each in iterate_records(built)] == [*others, *whole]


def test_an_offset_is_written_as_kafka_writes_it() -> None:
    seed = random_seed()
    print(f"seed {seed}")
    numbers = random.Random(seed)
    for topic_id in (bytes(16), numbers.randbytes(16)):
        for metadata in ("", "grün", "x" * 126, "x" * 127, "x" * 300, "ü" * 4096):
            committed = CommittedOffset(7, numbers.randrange(-1, 9), metadata, TIMESTAMP_MS, NO_EXPIRY, topic_id)
            value = numbered_offset_value(committed.leader_epoch, metadata, topic_id).with_numbers(7, TIMESTAMP_MS)
            assert value == offset_value(committed)
            read = OFFSET_COMMIT.read_value(value)
            assert (read.offset, read.leader_epoch, read.metadata, read.commit_timestamp, read.topic_id) == (
                *committed[:4],
                topic_id,
            )
