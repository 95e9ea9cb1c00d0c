"""Holds a build of the compiled module against the twins, for cases that a seed makes: fuzzer LIBRARY SEED CASES."""

from __future__ import annotations

import ctypes
import random
import sys
from pathlib import Path
from types import ModuleType

from broker import native
from tests.support.native import load
from tests.support.record_batches import TIMESTAMP_MS, record_batch
from tests.support.walked_records import Claimed, damaged_records, lying_records, similar_records

native.compiled = None
from broker.protocol import record_walk as twin  # noqa: E402 - the twin itself, whatever is built

PENDING = twin.PENDING


def exactly(data: bytes) -> object:
    """Return a buffer of these bytes with nothing behind them, such as bytes have."""
    return (ctypes.c_ubyte * len(data)).from_buffer_copy(data)


def walked(module: ModuleType, data: object, count: int, is_keyed: bool, budget: int) -> tuple[int, ...]:
    walk = module.RecordWalk(data, count, is_keyed=is_keyed)
    while (verdict := walk.step(budget)) == PENDING:
        pass
    return (verdict, walk.least_delta, walk.largest_delta) if verdict == twin.RIGHT else (verdict,)


def compare_walks(compiled: ModuleType, numbers: random.Random, records: Claimed) -> None:
    is_keyed, budget = numbers.random() < 0.5, numbers.choice((1, 3, 100, 1024, 10**6))
    wanted = walked(twin, records.data, records.count, is_keyed, 1024)
    outcome = walked(compiled, exactly(records.data), records.count, is_keyed, budget)
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


def main(library: str, seed: str, cases: str) -> None:
    compiled = load(Path(library))
    for case in range(int(cases)):
        print("seed", seed, "case", case)
        numbers = random.Random(f"{seed} {case}")
        records = similar_records(numbers) if case % 16 == 0 else lying_records(numbers)
        for each in (records, *damaged_records(numbers, records, 2)):
            compare_walks(compiled, numbers, each)
        compare_claims(compiled, numbers)


if __name__ == "__main__":
    main(*sys.argv[1:])
