"""Holds a build of the compiled module against the twins, for cases that a seed makes: fuzzer LIBRARY SEED CASES."""

from __future__ import annotations

import random
import struct
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from types import ModuleType

from rotunda.broker import native
from tests.support.native import exactly, load, module_of
from tests.support.record_batches import TIMESTAMP_MS, record_batch
from tests.support.walked_records import Claimed, damaged_records, lying_records, similar_records

native.compiled = None
from rotunda.broker.cleaner import raw_records as raw_twin  # noqa: E402 - the twins themselves, whatever is built
from rotunda.broker.errors import ApiError  # noqa: E402
from rotunda.broker.log.validation import record_walk as twin  # noqa: E402
from rotunda.broker.records import record_reader as reader_twin  # noqa: E402
from rotunda.broker.records.record_batch import read_header  # noqa: E402
from rotunda.broker.records.record_reader import RecordKind  # noqa: E402
from tests.native.channel_fuzz import compare_channels, compare_rings  # noqa: E402

PENDING = twin.PENDING


def walked(module: ModuleType, data: object, count: int, is_keyed: bool, budget: int) -> tuple[int, ...]:
    walk = module.RecordWalk(data, count, is_keyed=is_keyed)
    while (verdict := walk.step(budget)) == PENDING:
        pass
    return (verdict, walk.least_delta, walk.largest_delta) if verdict == twin.RIGHT else (verdict,)


def compare_walks(walks: ModuleType, numbers: random.Random, records: Claimed) -> None:
    is_keyed, budget = numbers.random() < 0.5, numbers.choice((1, 3, 100, 1024, 10**6))
    wanted = walked(twin, records.data, records.count, is_keyed, 1024)
    outcome = walked(walks, exactly(records.data), records.count, is_keyed, budget)
    assert outcome == wanted, f"{outcome} where the twin has {wanted}: {records.count} of {records.data.hex()}"


def compare_claims(compiled: ModuleType, numbers: random.Random) -> None:
    count = numbers.choice((1, 1, 2, 30))
    values = [numbers.randbytes(numbers.randrange(90)) for _ in range(count)]
    keys = numbers.choice((None, [numbers.randbytes(numbers.randrange(70)) for _ in range(count)]))
    batch = record_batch(values, keys=keys, timestamp_step_ms=numbers.choice((0, 7)))
    right = Claimed(batch[61:], count)
    claims = TIMESTAMP_MS, TIMESTAMP_MS + numbers.choice((0, 7, 7 * (count - 1), -1, -TIMESTAMP_MS - 2))
    for data, claimed in (right, *damaged_records(numbers, right, 3)):
        whole = batch[:61] + data
        wanted = twin.is_as_claimed(whole, claimed, *claims)
        outcome = compiled.is_as_claimed(exactly(whole), claimed, *claims)
        assert outcome == wanted, f"{outcome} where the twin has {wanted}: {claimed} of {whole.hex()}, {claims}"
    for size in (0, 1, 60, 61, 62):
        compiled.is_as_claimed(exactly(batch[:size]), count, *claims)


def until_error(records: Iterable[tuple]) -> Iterator[tuple]:
    """Yield the records up to one that cannot be read."""
    with suppress(ApiError):
        yield from records


def compare_readers(compiled: ModuleType, numbers: random.Random, records: Claimed) -> None:
    """Find the same with both readers, but that the compiled one ends before a record that it leaves to its twin."""
    data, count = records
    last, append_time = numbers.choice((count - 1, count + 5, 2**31 - 1)), numbers.choice((None, None, 99, -(2**63)))
    base_offset, base_time = numbers.choice((0, 40, 2**63 - 2)), numbers.choice((0, TIMESTAMP_MS, -1, 2**63 - 1))
    attributes, largest = (0, 0) if append_time is None else (8, append_time)
    header = (base_offset, len(data) + 49, -1, 2, 0, attributes, last, base_time, largest, -1, -1, -1, count)
    batch = struct.pack(">qiibIhiqqqhii", *header) + data
    places = base_offset, last, base_time, append_time
    found, _ = compiled.read_records(RecordKind.WHOLE, reader_twin.Record, exactly(data), 0, count, *places)
    wanted = list(until_error(reader_twin.iterate_records(batch)))
    assert found == wanted[: len(found)], f"{found} where the twin has {wanted}: {data.hex()}, {places}"
    found, _ = compiled.read_records(RecordKind.TIME, tuple, exactly(data), 0, count, *places)
    allowance = reader_twin.ReadAllowance(count, len(data) + 1)
    header = read_header(batch)
    assert header is not None
    wanted = list(until_error(reader_twin.record_times(batch, header, allowance)))
    assert found == wanted[: len(found)], f"{found} where the twin has {wanted}: {data.hex()}, {places}"
    places = 0, last, 0, None
    found, _ = compiled.read_records(RecordKind.RAW, raw_twin.RawRecord, exactly(data), 0, count, *places)
    wanted = list(until_error(raw_twin.raw_records(data, count, last)))
    assert found == wanted[: len(found)], f"{found} where the twin has {wanted}: {data.hex()}, {last}"


def read_all(compiled: ModuleType, records: Claimed) -> None:
    """Leave no record of the usual form to the twin."""
    places = 0, records.count - 1, 0, None
    for kind in (RecordKind.WHOLE, RecordKind.RAW, RecordKind.TIME):
        found, stop = compiled.read_records(kind, tuple, exactly(records.data), 0, records.count, *places)
        assert (len(found), stop) == (records.count, len(records.data))


def main(library: str, seed: str, cases: str) -> None:
    compiled = load(Path(library))
    native.compiled = compiled
    walks = module_of("record_walk_in_c", Path(twin.__file__))
    native.compiled = None
    for case in range(int(cases)):
        print("seed", seed, "case", case)
        numbers = random.Random(f"{seed} {case}")
        records = similar_records(numbers) if case % 16 == 0 else lying_records(numbers)
        for each in (records, *damaged_records(numbers, records, 2)):
            compare_walks(walks, numbers, each)
            compare_readers(compiled, numbers, each)
        if case % 16 == 0:
            read_all(compiled, records)
        compare_claims(compiled, numbers)
        compare_rings(compiled, numbers)
        if case % 8 == 0:
            compare_channels(compiled, numbers)


if __name__ == "__main__":
    main(*sys.argv[1:])
