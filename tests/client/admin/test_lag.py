"""Lag in records and in seconds (users.md row 17): right for idle groups, for transactions, and for unknown offsets."""

import pytest

from rotunda.broker.client.admin.groups import Committed
from rotunda.broker.client.admin.offsets import Bounds
from rotunda.broker.client.consumer import lag
from rotunda.broker.client.consumer.lag import PartitionLag
from rotunda.broker.client.network.blocking_client import BlockingClient
from rotunda.broker.client.topic_partition import TopicPartition
from rotunda.broker.protocol.api_keys import ApiKey
from tests.client.admin.fake_broker import FakeBroker, Log
from tests.support.fakes import FakeClock
from tests.support.record_batches import record_batch

PARTITION = TopicPartition("orders", 0)
NOW_MS = 1_700_000_100_000
TRANSACTIONAL = 0x10
CONTROL = 0x20
ABORT, COMMIT = b"\0\0\0\0", b"\0\0\0\1"


def batch(base: int, count: int, age_s: float, **options: int) -> bytes:
    """Return records of which the first is `age_s` old and each further one a second younger."""
    time_ms = NOW_MS - int(age_s * 1000)
    return record_batch([b"v"] * count, base_offset=base, timestamp_ms=time_ms, timestamp_step_ms=1000, **options)


def sent(base: int, count: int, age_s: float, producer_id: int) -> bytes:
    return batch(base, count, age_s, attributes=TRANSACTIONAL, producer_id=producer_id, producer_epoch=0)


def marker(base: int, key: bytes, producer_id: int) -> bytes:
    return record_batch(
        [b"\0\0\0\0\0\0"],
        keys=[key],
        base_offset=base,
        timestamp_ms=NOW_MS - 1,
        attributes=TRANSACTIONAL | CONTROL,
        producer_id=producer_id,
        producer_epoch=0,
    )


def measured(log: Log | None, committed: int | None, *, read_committed: bool = False) -> PartitionLag:
    """Return the lag of one partition."""
    fake = FakeBroker({PARTITION: log} if log else {})
    offsets = {} if committed is None else {PARTITION: Committed(committed, None, "")}
    with fake.serving() as address, BlockingClient(address) as client:
        clock = FakeClock(wall_ms=NOW_MS)
        (row,) = lag.measure(client, clock, offsets, [PARTITION], read_committed=read_committed)
    return row


def facts(row: PartitionLag) -> tuple[int | None, float | None, tuple[str, ...]]:
    return row.lag_records, row.lag_seconds, row.notes


def test_the_lag_of_a_group_is_the_age_of_its_next_record() -> None:
    log = Log([batch(0, 5, 60), batch(5, 5, 30)], end=10)
    assert facts(measured(log, 0)) == (10, 60.0, ())
    assert facts(measured(log, 3)) == (7, 57.0, ())
    assert facts(measured(log, 5)) == (5, 30.0, ())


@pytest.mark.parametrize("codec", range(5))
def test_compressed_records_have_times_of_their_own(codec: int) -> None:
    assert facts(measured(Log([batch(0, 5, 60, codec=codec)], end=5), 4)) == (1, 56.0, ())


def test_an_idle_topic_is_not_late() -> None:
    """Row 17: the last record is days old and read, so the lag is 0 seconds."""
    row = measured(Log([batch(0, 5, 200_000)], end=5), 5)
    assert facts(row) == (0, 0.0, ())
    assert row.bounds == Bounds(0, 5, 5)
    assert facts(measured(Log(), 0)) == (0, 0.0, ())


def test_unknown_is_not_zero() -> None:
    """Row 17: nothing committed, or no such partition any more."""
    assert facts(measured(Log([batch(0, 5, 60)], end=5), None)) == (None, None, ())
    row = measured(None, 3)
    assert facts(row) == (None, None, (lag.NO_PARTITION,))
    assert row.bounds is None
    assert row.committed == Committed(3, None, "")


def test_a_negative_lag_is_a_topic_that_was_recreated() -> None:
    """Row 17: shown as 0, such a lag would hide the problem."""
    assert facts(measured(Log([batch(0, 5, 60)], end=5), 9)) == (None, None, (lag.BEYOND_END,))


def test_expired_records_are_not_counted() -> None:
    log = Log([batch(4, 4, 60)], start=6, end=8)
    assert facts(measured(log, 2)) == (2, 58.0, (lag.EXPIRED.format(2, 5),))
    assert facts(measured(Log(start=8, end=8), 2)) == (0, 0.0, (lag.EXPIRED.format(2, 7),))


def test_read_committed_counts_up_to_the_last_stable_offset() -> None:
    log = Log([batch(0, 5, 60), sent(5, 3, 20, 7)], end=8, stable=5)
    assert facts(measured(log, 3)) == (5, 57.0, ())
    assert facts(measured(log, 3, read_committed=True)) == (2, 57.0, ())
    assert facts(measured(log, 5, read_committed=True)) == (0, 0.0, ())
    assert facts(measured(log, 7, read_committed=True)) == (0, 0.0, (lag.BEYOND_STABLE,))


def test_read_committed_passes_over_aborted_records_and_markers() -> None:
    batches = [sent(0, 3, 90, 7), sent(3, 2, 80, 8), marker(5, ABORT, 7), sent(6, 1, 70, 7), marker(7, COMMIT, 7)]
    log = Log([*batches, marker(8, COMMIT, 8)], end=9, aborted=[(7, 0)])
    assert facts(measured(log, 0)) == (9, 90.0, ())
    assert facts(measured(log, 0, read_committed=True)) == (9, 80.0, ())
    # From the marker on, the same producer's next transaction is not an aborted one.
    assert facts(measured(log, 5, read_committed=True)) == (4, 70.0, ())
    assert facts(measured(log, 7)) == (2, 0.0, (lag.NO_RECORDS,))


def test_offsets_that_compaction_emptied_hold_nothing_to_be_late_with() -> None:
    assert facts(measured(Log([batch(0, 3, 60)], end=6), 3)) == (3, 0.0, (lag.NO_RECORDS,))


def test_odd_times_are_reported() -> None:
    assert facts(measured(Log([batch(0, 1, -60)], end=1), 0)) == (1, 0.0, (lag.FUTURE,))
    without = record_batch([b"v"], timestamp_ms=-1)
    assert facts(measured(Log([without], end=1), 0)) == (1, None, (lag.NO_TIME,))


def test_unreadable_records_leave_the_seconds_unknown() -> None:
    broken = bytearray(batch(0, 1, 60, codec=1))
    broken[70:] = bytes(len(broken) - 70)
    assert facts(measured(Log([bytes(broken)], end=1), 0)) == (1, None, (lag.NOT_READ.format("CORRUPT_MESSAGE"),))


def test_every_partition_is_found_however_little_a_response_holds() -> None:
    """A response has one whole batch for its first partition only, and may end within one for the others."""
    partitions = [TopicPartition("orders", each) for each in range(5)] + [TopicPartition("other", 0)]
    logs = {
        each: Log([sent(0, 4, 90, 7), marker(4, ABORT, 7), batch(5, 1, 10 + i)], end=6, aborted=[(7, 0)])
        for i, each in enumerate(partitions)
    }
    fake = FakeBroker(logs, fetch_bytes=100)
    offsets = {each: Committed(0, None, "") for each in partitions}
    with fake.serving() as address, BlockingClient(address) as client:
        rows = lag.measure(client, FakeClock(wall_ms=NOW_MS), offsets, read_committed=True)
    assert [row.lag_seconds for row in rows] == [10.0, 11.0, 12.0, 13.0, 14.0, 15.0]
    assert [row.partition for row in rows] == partitions


def test_records_that_are_deleted_while_they_are_searched() -> None:
    log = Log([batch(0, 5, 60)], end=5)
    fake = FakeBroker({PARTITION: log})
    ended = {"partition_index": 0, "error_code": 1}
    with fake.serving() as address, BlockingClient(address) as client:
        fake.responses[ApiKey.FETCH] = [{"responses": [{"topic": "orders", "partitions": [ended]}]}]
        (row,) = lag.measure(
            client, FakeClock(wall_ms=NOW_MS), {PARTITION: Committed(0, None, "")}, read_committed=False
        )
    assert facts(row) == (5, None, (lag.NOT_READ.format("OFFSET_OUT_OF_RANGE"),))
