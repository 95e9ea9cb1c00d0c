"""Records for tests of the record walk: similar ones, and ones with wrong numbers."""

import random
from collections.abc import Iterator
from typing import NamedTuple

from tests.support.feeds import mutations
from tests.support.record_batches import encoded_record, varint

_LIES = (-(2**63), -(2**31), -2, -1, 0, 1, 2, 7, 63, 64, 127, 1000, 2**31 - 1, 2**31, 2**62, 2**63 - 1)


class Claimed(NamedTuple):
    """Records and how many of them a header claims."""

    data: bytes
    count: int


def _lying_record(numbers: random.Random, index: int, doubt: float) -> bytes:
    def told(truth: int) -> bytes:
        return varint(numbers.choice(_LIES) if numbers.random() < doubt else truth)

    key, value = numbers.randbytes(numbers.randrange(4)), numbers.randbytes(numbers.randrange(90))
    names = [numbers.randbytes(2).hex().encode() for _ in range(numbers.choice((0, 0, 1, 3)))]
    body = b"\0" + told(numbers.randrange(200)) + told(index) + told(len(key)) + key + told(len(value)) + value
    body += told(len(names)) + b"".join(told(len(name)) + name + told(3) + b"abc" for name in names)
    return told(len(body)) + body


def lying_records(numbers: random.Random) -> Claimed:
    """Return a few records with keys, whose numbers are wrong with some probability, and which may be miscounted."""
    count = numbers.randrange(1, 6)
    doubt = numbers.choice((0, 0, 0.02, 0.2))
    data = b"".join(_lying_record(numbers, index, doubt) for index in range(count))
    return Claimed(data, numbers.choice((count, count, count, count + 1, count - 1 or 1, 100)))


def similar_records(numbers: random.Random) -> Claimed:
    """Return records of which many that follow one another have the same form."""
    count = numbers.choice((1, 20, 63, 64, 65, 200, 200, 1500, 1500, 8300))
    step, start = numbers.choice((0, 0, 1, 3, 200)), numbers.choice((0, 0, -40, 70, 9000, 2_000_000))
    size, spread = numbers.choice((0, 1, 40, 70)), numbers.choice((0, 0, 0, 3))
    key = numbers.choice((None, None, b"", b"key", bytes(70)))
    headers = numbers.choice(((), (), ((b"name", b"value"),), ((b"", None), (b"n", bytes(80)))))
    change = numbers.randrange(count)
    records = [
        encoded_record(
            index,
            start + index * step,
            key=key,
            value=bytes(size + (numbers.randint(0, spread) if index > change else 0)),
            headers=headers,
        )
        for index in range(count)
    ]
    return Claimed(b"".join(records), count)


def damaged_records(numbers: random.Random, records: Claimed, times: int) -> Iterator[Claimed]:
    """Yield records that were damaged so many times, and once in one bit."""
    for damaged in mutations(records.data, numbers.randrange(2**32), times):
        yield Claimed(damaged, records.count)
    changed = bytearray(records.data)
    changed[numbers.randrange(len(changed))] ^= 1 << numbers.randrange(8)
    yield Claimed(bytes(changed), records.count)
