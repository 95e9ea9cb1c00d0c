"""Generated batches: valid, with the requested number of records, and nearly of the requested size."""

import random

import pytest

from rotunda.broker.bench.batches import BatchMaker
from rotunda.broker.records.record_batch import BATCH_HEADER_BYTES, CODECS, unpack_header, validate
from rotunda.broker.records.record_reader import iterate_records
from tests.support.feeds import random_seed

#: A record's own lengths may need a byte more; the compressible content is found by trial.
TOLERANCE = {"none": 0.001}


@pytest.mark.parametrize("codec", CODECS)
def test_a_batch_of_any_size_is_valid_and_about_as_large(codec: str) -> None:
    seed = random_seed()
    chance = random.Random(seed)
    maker = BatchMaker()
    for _ in range(15):
        count = chance.choice([1, 1, 2, 10, 300])
        size = BATCH_HEADER_BYTES + count * chance.choice([40, 64, 130, 500, 3000]) + chance.randrange(50)
        batch = maker.make(count, size, codec, 1_700_000_000_000)
        where = f"seed {seed}: {count} records in {size} bytes"
        header = unpack_header(batch)
        assert validate(batch, header, 9) == 0, where
        assert len(list(iterate_records(batch))) == count, where
        assert len(batch) == pytest.approx(size, rel=TOLERANCE.get(codec, 0.02), abs=2 if codec == "none" else 20), (
            where
        )


def test_records_that_do_not_fit_are_as_small_as_they_can_be() -> None:
    batch = BatchMaker().make(100, 80, "none", 0)
    assert validate(batch, unpack_header(batch), 9) == 0
    assert len(batch) < BATCH_HEADER_BYTES + 100 * 9
