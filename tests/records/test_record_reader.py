"""The records inside a batch, with every codec, read in Python and in C."""

from types import ModuleType

import cramjam
import pytest

from rotunda.broker.errors import ApiError
from rotunda.broker.records.record_batch import patch_log_append_time, read_header
from rotunda.broker.records.record_reader import (
    Record,
)
from tests.support.feeds import mutations, random_seed
from tests.support.native import IMPLEMENTATIONS, implementation
from tests.support.record_batches import TIMESTAMP_MS, record_batch


@pytest.fixture(params=IMPLEMENTATIONS)
def reader(request: pytest.FixtureRequest) -> ModuleType:
    """Return the module that reads records, in Python or in C."""
    return implementation("rotunda.broker.records.record_reader", request.param)


@pytest.mark.parametrize("codec", range(5))
def test_records_are_read_as_they_were_written(reader: ModuleType, codec: int) -> None:
    batch = record_batch(
        [b"v" * 1000, None],
        keys=[None, b"k"],
        base_offset=40,
        timestamp_step_ms=300,
        codec=codec,
        headers=[("h", b"x"), ("null", None)],
    )
    headers = (("h", b"x"), ("null", None))
    assert list(reader.iterate_records(memoryview(batch))) == [
        Record(40, TIMESTAMP_MS, None, b"v" * 1000, headers),
        Record(41, TIMESTAMP_MS + 300, b"k", None, headers),
    ]


def test_snappy_in_the_wrapping_of_java_clients(reader: ModuleType) -> None:
    plain = record_batch([b"v" * 200])
    middle = len(plain) // 2
    blocks = [bytes(cramjam.snappy.compress_raw(part)) for part in (plain[61:middle], plain[middle:])]
    wrapped = b"\x82SNAPPY\x00" + b"\x00\x00\x00\x01" * 2
    wrapped += b"".join(len(block).to_bytes(4, "big") + block for block in blocks)
    batch = bytearray(plain[:61] + wrapped)
    batch[8:12] = (len(batch) - 12).to_bytes(4, "big")
    batch[22] = 2
    assert [record.value for record in reader.iterate_records(batch)] == [b"v" * 200]


def test_the_name_of_a_header_need_not_be_text(reader: ModuleType) -> None:
    batch = record_batch([b"v"], headers=[("name", b"x")]).replace(b"name", b"n\xffme")
    [record] = reader.iterate_records(batch)
    assert [(name.encode("utf-8", "surrogateescape"), value) for name, value in record.headers] == [(b"n\xffme", b"x")]


def test_a_large_batch_is_read_in_order_up_to_a_record_that_is_none(reader: ModuleType) -> None:
    """The records before the malformed one are returned, in iteration one by one or in bulk."""
    values = [b"%d" % number for number in range(300)]
    batch = bytearray(record_batch(values))
    assert [record.value for record in reader.iterate_records(batch)] == values
    batch[-1] = 2  # a header that is not there
    records = reader.iterate_records(batch)
    assert [next(records).value for _ in range(299)] == values[:299]
    with pytest.raises(ApiError):
        next(records)


def test_log_append_time_counts_for_every_record(reader: ModuleType) -> None:
    batch = bytearray(record_batch([b"a", b"b"], timestamp_step_ms=5))
    patch_log_append_time(batch, 99)
    assert [record.timestamp_ms for record in reader.iterate_records(batch)] == [99, 99]


@pytest.mark.parametrize("codec", range(5))
def test_damaged_batches_are_corrupt_and_nothing_worse(reader: ModuleType, codec: int) -> None:
    batch = record_batch([b"value"] * 5, codec=codec, headers=[("h", b"x")])
    seed = random_seed()
    for damaged in mutations(batch[61:], seed, 200):
        whole = bytearray(batch[:61] + damaged)
        whole[8:12] = (len(whole) - 12).to_bytes(4, "big")
        outcome = _outcome(reader, whole)
        assert outcome in {None, 2}, f"seed {seed}: {outcome} from {bytes(whole).hex()}"


def _outcome(reader: ModuleType, batch: bytearray) -> int | str | None:
    """Return None for a readable batch, otherwise the error code or the exception."""
    try:
        list(reader.iterate_records(batch))
    except ApiError as error:
        return error.code
    except Exception as error:
        return repr(error)
    return None


@pytest.mark.parametrize("codec", range(5))
def test_no_more_is_looked_into_than_is_allowed(reader: ModuleType, codec: int) -> None:
    batch = record_batch([b"v" * 1000] * 400, timestamp_step_ms=1, codec=codec)
    header = read_header(batch)
    assert header is not None
    allowance = reader.ReadAllowance(1000, 1 << 20)
    times = list(reader.record_times(batch, header, allowance))
    assert times == [(TIMESTAMP_MS + number, number) for number in range(400)]
    assert allowance.left_records == 600
    assert 0 < allowance.left_bytes < (1 << 20) - 400_000
    few = reader.ReadAllowance(30, 1 << 20)
    assert list(reader.record_times(batch, header, few)) == times[:30]
    assert few.is_used_up
    assert not list(reader.record_keys(batch, header, few))
    short = reader.ReadAllowance(1000, 100_000)
    found = list(reader.record_times(batch, header, short))
    assert short.is_used_up
    if codec:
        assert len(found) < 100
        assert found == times[: len(found)]
