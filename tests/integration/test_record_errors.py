"""The record errors of a rejected batch in a Produce response (KIP-467, users.md row 12).

librdkafka's test 0011 found none: every record of the batch failed as invalid, the good ones among them.
"""

import re
import time

import pytest

from tests.support.record_batches import record_batch
from tests.support.wire_messages import ProduceErrors, create_topic, produce_errors

INVALID_RECORD, INVALID_TIMESTAMP = 87, 32
HOUR_MS = 3_600_000
PARTITIONS = 4  # of both handlers


def text_of(topic: str, partition: int) -> str:
    return f"Compacted topic cannot accept message without key in topic partition {topic}-{partition}"


@pytest.mark.parametrize("codec", [0, 1])
def test_records_without_a_key_are_named_and_no_others(wire, topic, codec) -> None:
    """By their own partition's handler or another, on a connection's first request or a later one like it."""
    create_topic(wire, topic, PARTITIONS, configs={"cleanup.policy": "compact"})
    keys = [b"k", None, b"k", None, None, None]
    good = record_batch([b"x"] * 6, keys=[b"k"] * 6, codec=codec)
    bad = record_batch([b"x"] * 6, keys=keys, codec=codec)
    for partition in range(PARTITIONS):
        text = text_of(topic, partition)
        shown = ", ".join(f"RecordError(batchIndex={index}, message='{text}')" for index in (1, 3, 4))
        message = (
            "One or more records have been rejected due to 4 record errors in total, "
            f"and only showing the first three errors at most: [{shown}]"
        )
        wanted = ProduceErrors(INVALID_RECORD, message, [(index, text) for index in (1, 3, 4, 5)])
        none = ProduceErrors(0, "", [])
        responses = [produce_errors(wire, topic, partition, batch) for batch in (bad, good, good, bad, good)]
        assert responses == [wanted, none, none, wanted, none]


def test_no_record_is_blamed_for_an_error_of_its_batch(wire, topic) -> None:
    create_topic(wire, topic, configs={"cleanup.policy": "compact"})
    keyless = record_batch([b"x"])
    for batch in (keyless + keyless, keyless[:16] + b"\1" + keyless[17:], b""):
        assert produce_errors(wire, topic, 0, batch) == ProduceErrors(INVALID_RECORD, "", [])


def test_the_response_to_very_many_keyless_records_is_bounded(wire, topic) -> None:
    create_topic(wire, topic, configs={"cleanup.policy": "compact"})
    count = 30_000
    rejection = produce_errors(wire, topic, 0, record_batch([b"x"] * count, codec=1))
    assert rejection.error_code == INVALID_RECORD
    assert [index for index, _ in rejection.records] == list(range(10_000))


@pytest.mark.parametrize("codec", [0, 1, 3])
def test_records_whose_time_is_out_of_range_are_named_and_no_others(wire, topic, codec) -> None:
    """By their own partition's handler or another, on a connection's first request or a later one like it."""
    limits = {"message.timestamp.before.max.ms": str(HOUR_MS), "message.timestamp.after.max.ms": str(HOUR_MS)}
    create_topic(wire, topic, PARTITIONS, configs=limits)
    now_ms = time.time_ns() // 1_000_000
    good = record_batch([b"x"] * 5, timestamp_ms=now_ms, codec=codec)
    bad = record_batch([b"x"] * 5, timestamp_ms=now_ms - 4 * HOUR_MS, timestamp_step_ms=2 * HOUR_MS, codec=codec)
    for partition in range(PARTITIONS):
        none = ProduceErrors(0, "", [])
        responses = [produce_errors(wire, topic, partition, batch) for batch in (bad, good, good, bad, good)]
        assert [responses[index] for index in (1, 2, 4)] == [none] * 3
        for rejection in (responses[0], responses[3]):
            assert rejection.error_code == INVALID_TIMESTAMP
            assert rejection.message == "One or more records have been rejected due to invalid timestamp"
            assert [index for index, _ in rejection.records] == [0, 1, 3, 4]
            for index, text in rejection.records:
                time_ms = now_ms + (index - 2) * 2 * HOUR_MS
                assert text.startswith(f"Timestamp {time_ms} of message with offset {index} is out of range. ")
                oldest_ms, newest_ms = map(int, re.findall(r"\d+", text.partition("within")[2]))
                assert newest_ms - oldest_ms == 2 * HOUR_MS
                assert 0 <= oldest_ms + HOUR_MS - now_ms < HOUR_MS


def test_a_time_before_1970_is_out_of_range_and_no_time_is_not(wire, topic) -> None:
    create_topic(wire, topic, configs={"message.timestamp.before.max.ms": str(HOUR_MS)})
    assert produce_errors(wire, topic, 0, record_batch([b"x"], timestamp_ms=-1)).error_code == 0
    rejection = produce_errors(wire, topic, 0, record_batch([b"x"], timestamp_ms=-2))
    assert (rejection.error_code, [index for index, _ in rejection.records]) == (INVALID_TIMESTAMP, [0])


def test_a_key_that_is_missing_counts_before_a_time_out_of_range(wire, topic) -> None:
    configs = {"cleanup.policy": "compact", "message.timestamp.before.max.ms": str(HOUR_MS)}
    create_topic(wire, topic, configs=configs)
    assert produce_errors(wire, topic, 0, record_batch([b"x"])).error_code == INVALID_RECORD
    assert produce_errors(wire, topic, 0, record_batch([b"x"], keys=[b"k"])).error_code == INVALID_TIMESTAMP
