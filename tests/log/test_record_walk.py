"""The walk over the records of a batch: verdict and timestamps, compared with a simple parser, in Python and C."""

from __future__ import annotations

import random
from collections.abc import Callable
from types import ModuleType

import pytest

from rotunda.broker.log.validation.record_walk import PENDING, RIGHT, WRONG
from rotunda.broker.records.record_batch import read_header
from tests.support.feeds import mutations, random_seed
from tests.support.native import IMPLEMENTATIONS, implementation
from tests.support.record_batches import encoded_record, field, record_batch, records_of, sealed_record, varint
from tests.support.results import present
from tests.support.walked_records import damaged_records, lying_records, similar_records


@pytest.fixture(params=IMPLEMENTATIONS)
def walks(request: pytest.FixtureRequest) -> ModuleType:
    """Return the module of the walk, in Python or in C."""
    return implementation("rotunda.broker.log.validation.record_walk", request.param)


class NotReadableError(Exception):
    """The plain parser has found an error."""


class Plain:
    """Parses records one number after the other, as Kafka does."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def number(self, most_bytes: int = 5) -> int:
        raw = 0
        for received in range(most_bytes):
            if self.at >= len(self.data):
                raise NotReadableError
            byte = self.data[self.at]
            self.at += 1
            raw |= (byte & 0x7F) << 7 * received
            if byte < 0x80:
                return (raw >> 1) ^ -(raw & 1)
        raise NotReadableError

    def skip(self, size: int) -> None:
        self.at += max(size, 0)

    def record(self, index: int, *, is_keyed: bool) -> int:
        """Return the timestamp delta of a record."""
        length = self.number()
        stop = self.at + length
        self.at += 1
        time, offset, key = self.number(10), self.number(), self.number()
        self.skip(key)
        self.skip(self.number())
        headers = self.number()
        if not 0 < length <= len(self.data) or offset != index or headers < 0 or (is_keyed and key < 0):
            raise NotReadableError
        for _ in range(headers):
            name = self.number()
            if name < 0:
                raise NotReadableError
            self.skip(name)
            self.skip(self.number())
        if self.at != stop or stop > len(self.data):
            raise NotReadableError
        return time

    def times(self, count: int, *, is_keyed: bool) -> list[int]:
        found = [self.record(index, is_keyed=is_keyed) for index in range(count)]
        if self.at != len(self.data):
            raise NotReadableError
        return found


def expected(data: bytes, count: int, *, is_keyed: bool = False) -> tuple[int, ...]:
    """Return (RIGHT, smallest and largest timestamp delta) or (WRONG,)."""
    try:
        times = Plain(data).times(count, is_keyed=is_keyed)
    except NotReadableError:
        return (WRONG,)
    return RIGHT, min(times), max(times)


def found(
    walks: ModuleType, data: bytes, count: int, *, is_keyed: bool = False, budget: Callable[[], int] = lambda: 1024
) -> tuple:
    """Return the result of the walk."""
    walk = walks.RecordWalk(memoryview(data), count, is_keyed=is_keyed)
    while (verdict := walk.step(budget())) == PENDING:
        pass
    return (RIGHT, walk.least_delta, walk.largest_delta) if verdict == RIGHT else (verdict,)


GOOD = b"".join(encoded_record(index) for index in range(3))
NOTHING = field(None) + field(b"v")

#: (records, number of records in the header)
WRONG_RECORDS = {
    "random bytes": (random.Random(1).randbytes(60), 3),
    "fewer records than the count": (GOOD, 4),
    "more records than the count": (GOOD, 2),
    "no bytes": (b"", 1),
    "the end cut off": (GOOD[:-3], 3),
    "bytes behind the last": (GOOD + b"\0", 3),
    "zeros": (bytes(21), 3),
    "a length of -1": (varint(-1) + bytes(21), 1),
    "a length too short": (varint(8) + b"\0\0\0" + field(None) + field(b"vvvv") + b"\0", 1),
    "a length too long": (varint(9) + b"\0\0\0" + NOTHING + b"\0", 1),
    "bytes behind the headers": (sealed_record(b"\0\0\0" + NOTHING + b"\0zz"), 1),
    "a key beyond the record": (sealed_record(b"\0\0\0" + varint(50) + b"abc" + field(b"v") + b"\0"), 1),
    "a null header key": (sealed_record(b"\0\0\0" + NOTHING + varint(1) + field(None) + field(b"x")), 1),
    "a header count of -1": (sealed_record(b"\0\0\0" + NOTHING + varint(-1)), 1),
    "more headers than there are": (sealed_record(b"\0\0\0" + NOTHING + varint(5) + field(b"k") + field(b"x")), 1),
    "2**31 headers": (sealed_record(b"\0\0\0" + NOTHING + varint(2**31 - 1)), 1),
    "a number of six bytes": (sealed_record(b"\0\0" + b"\x80" * 5 + b"\0" + NOTHING + b"\0"), 1),
    "a gap in the offsets": (encoded_record(0) + encoded_record(2) + encoded_record(5), 3),
    "the same offset again": (encoded_record(0) * 3, 3),
    "offsets backwards": (encoded_record(2) + encoded_record(1) + encoded_record(0), 3),
    "an offset that does not begin at 0": (encoded_record(1), 1),
}

RIGHT_RECORDS = {
    "the usual": (GOOD, 3),
    "a key length of -5, which is null": (sealed_record(b"\0\0\0" + varint(-5) + field(b"v") + b"\0"), 1),
    "a value length of -5": (sealed_record(b"\0\0\0" + field(None) + varint(-5) + b"\0"), 1),
    "a header's value length of -5": (sealed_record(b"\0\0\0" + NOTHING + varint(1) + field(b"k") + varint(-5)), 1),
    "attributes that nobody knows": (sealed_record(b"\7\0\0" + NOTHING + b"\0"), 1),
    "a number with more bytes than it needs": (sealed_record(b"\0\0\x80\0" + NOTHING + b"\0"), 1),
    "a header key that is not UTF-8": (sealed_record(b"\0\0\0" + NOTHING + varint(1) + field(b"\xff") + field(b"")), 1),
    "a time before the first": (encoded_record(0) + encoded_record(1, -7_200_000), 2),
}


@pytest.mark.parametrize("name", WRONG_RECORDS)
def test_records_that_differ_from_the_header_are_rejected(walks: ModuleType, name: str) -> None:
    data, count = WRONG_RECORDS[name]
    assert found(walks, data, count) == expected(data, count) == (WRONG,)


@pytest.mark.parametrize("name", RIGHT_RECORDS)
def test_records_that_kafka_accepts(walks: ModuleType, name: str) -> None:
    data, count = RIGHT_RECORDS[name]
    assert found(walks, data, count) == expected(data, count)
    assert found(walks, data, count)[0] == RIGHT


def test_a_compacted_topic_wants_a_key_of_each(walks: ModuleType) -> None:
    keyless = records_of(record_batch([b"v"] * 50, keys=[b"k"] * 49 + [None]))
    assert found(walks, keyless, 50)[0] == RIGHT
    assert found(walks, keyless, 50, is_keyed=True) == (WRONG,)
    keyed = records_of(record_batch([b"v", None] * 25, keys=[b"k", b""] * 25))
    assert found(walks, keyed, 50, is_keyed=True)[0] == RIGHT


def test_records_that_lie(walks: ModuleType) -> None:
    seed = random_seed()
    numbers = random.Random(seed)
    verdicts = set()
    for case in range(1500):
        data, claimed = lying_records(numbers)
        is_keyed = numbers.random() < 0.5
        wanted = expected(data, claimed, is_keyed=is_keyed)
        where = f"seed {seed}, case {case}: {claimed} records of {data.hex()}"
        outcome = found(walks, data, claimed, is_keyed=is_keyed, budget=lambda: numbers.choice((1, 2, 7, 1024)))
        assert outcome == wanted, where
        verdicts.add(wanted[0])
    assert verdicts == {RIGHT, WRONG}


def test_similar_records(walks: ModuleType) -> None:
    """In steps of any size the result is the same, also for records with a few changed bytes."""
    seed = random_seed()
    numbers = random.Random(seed)
    for case in range(15):
        records = data, count = similar_records(numbers)
        where = f"seed {seed}, case {case}: {count} records of {len(data)} bytes"
        wanted = expected(data, count)
        assert wanted[0] == RIGHT, where
        assert found(walks, data, count) == wanted, where
        assert found(walks, data, count, budget=lambda: numbers.choice((1, 5, 40, 1000))) == wanted, where
        for number, damaged in enumerate(damaged_records(numbers, records, 3)):
            assert found(walks, *damaged) == expected(*damaged), f"{where}, damaged {number}"


def test_one_step_validates_a_short_batch(walks: ModuleType) -> None:
    """Never a false claim: a header is trusted if it is right, and not rejected needlessly for similar records."""
    seed = random_seed()
    numbers = random.Random(seed)
    shown = 0
    for case in range(150):
        count, step = numbers.choice((1, 1, 1, 3, 300)), numbers.choice((0, 7))
        keys = numbers.choice((None, [numbers.randbytes(numbers.randrange(90))] * count))
        value = numbers.randbytes(numbers.choice((0, 1, 50, 56, 57, 58, 200, 8180, 8190, 9000)))
        sent = record_batch([value] * count, keys=keys, timestamp_step_ms=step)
        for batch in (sent, *(sent[:61] + damaged for damaged in mutations(sent[61:], numbers.randrange(2**32), 3))):
            header = present(read_header(batch))
            wanted = expected(batch[61:], count)
            is_right = wanted[0] == RIGHT and wanted[1] >= 0
            for lie in (0, 1, -1):
                claimed = header.max_timestamp + lie
                where = f"seed {seed}, case {case}: {lie} beside the truth"
                is_so = is_right and header.base_timestamp + wanted[-1] == claimed
                outcome = walks.is_as_claimed(memoryview(batch), count, header.base_timestamp, claimed)
                assert outcome == is_so, where
                shown += outcome
    assert shown >= 150


@pytest.mark.parametrize("excess", [0, 1])
def test_one_step_shows_as_many_records_as_its_budget(walks: ModuleType, excess: int) -> None:
    count = walks.RECORDS_AT_ONCE + excess
    records = b"".join(encoded_record(index) for index in range(count))
    assert walks.is_as_claimed(bytes(61) + records, count, 0, 0) is not bool(excess)


def test_a_step_is_short_whatever_the_records_are(walks: ModuleType) -> None:
    """With very many headers or very many records, the number of steps follows the budget."""
    headers = sealed_record(b"\0\0\0" + NOTHING + varint(100_000) + (b"\0" + varint(-1)) * 100_000)
    numbers = random.Random(1)
    varied = records_of(record_batch([bytes(numbers.randrange(9)) for _ in range(20_000)]))
    for data, count, least in ((headers, 1, 90), (varied, 20_000, 15)):
        walk, steps = walks.RecordWalk(data, count), 1
        while (verdict := walk.step(1024)) == PENDING:
            steps += 1
        assert verdict == RIGHT
        assert least <= steps <= 200


def test_the_smallest_and_largest_times_are_valid(walks: ModuleType) -> None:
    for delta in (2**63 - 1, -(2**63), 2**69 - 1):
        data = encoded_record(0, delta)
        assert found(walks, data, 1) == expected(data, 1) == (RIGHT, delta, delta)
