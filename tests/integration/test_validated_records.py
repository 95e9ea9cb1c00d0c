"""Times in records of clients: validated and corrected, whatever the header claims.

The error codes are those of Apache Kafka 4.4.0, to which each batch was also sent, except where a comment differs.
"""

from __future__ import annotations

import struct
import time

import pytest

from tests.support.broker_process import BrokerProcess
from tests.support.deadline import wait_until
from tests.support.record_batches import (
    TIMESTAMP_MS,
    encoded_record,
    lying_batch,
    record_batch,
    sealed_batch,
)
from tests.support.wire_client import WireClient
from tests.support.wire_messages import create_topic, fetch, list_offset, produce

INVALID_TIMESTAMP = 32
LOG_APPEND_TIME_BIT = 8
BROKER_SETTINGS = {"log.retention.check.interval.ms": 100}
OWN_OPTIONS = {"ephemeral": False}

THREE = b"".join(encoded_record(number) for number in range(3))


def untold(codec: int = 0, **claims: int) -> bytes:
    """Return three records at 1000, 2000 and 3000 ms under a header whose largest timestamp is -1."""
    records = b"".join(encoded_record(number, 1000 * number) for number in range(3))
    return lying_batch(records, 3, codec=codec, base_timestamp_ms=1000, max_timestamp_ms=-1, **claims)


def test_limits_of_timestamps_hold_for_each_record(wire: WireClient, topic: str) -> None:
    """Whatever the header claims."""
    hour_ms, now_ms = 3_600_000, time.time_ns() // 1_000_000
    limits = {"message.timestamp.before.max.ms": str(hour_ms), "message.timestamp.after.max.ms": str(hour_ms)}
    create_topic(wire, topic, 1, configs=limits)
    for shift_ms, error in ((2 * hour_ms, INVALID_TIMESTAMP), (-2 * hour_ms, INVALID_TIMESTAMP), (hour_ms // 2, 0)):
        records = encoded_record(0) + encoded_record(1, shift_ms)
        for codec in (0, 4):
            for claimed in (-1, now_ms):
                batch = lying_batch(records, 2, codec=codec, base_timestamp_ms=now_ms, max_timestamp_ms=claimed)
                assert produce(wire, topic, 0, batch).error_code == error
    untimed = encoded_record(0, -1 - now_ms) + encoded_record(1)
    batch = lying_batch(untimed, 2, base_timestamp_ms=now_ms, max_timestamp_ms=now_ms)
    assert produce(wire, topic, 0, batch).error_code == 0


@pytest.mark.parametrize("codec", [0, 4])
def test_times_that_claim_to_be_the_brokers(wire: WireClient, topic: str, codec: int) -> None:
    """In a CreateTime topic the records' own count, unless the header has none; in a LogAppendTime topic never."""
    create_topic(wire, topic, 1)
    create_topic(wire, stamped := f"{topic}-stamped", 1, configs={"message.timestamp.type": "LogAppendTime"})
    batch = lying_batch(THREE, 3, codec=codec, attributes=LOG_APPEND_TIME_BIT)
    assert produce(wire, topic, 0, batch).error_code == 0
    stored = struct.unpack_from(">hiqq", fetch(wire, topic, 0, 0).records, 21)
    assert stored == (codec, 2, TIMESTAMP_MS, TIMESTAMP_MS)
    without = lying_batch(THREE, 3, codec=codec, attributes=LOG_APPEND_TIME_BIT, max_timestamp_ms=-1)
    assert produce(wire, topic, 0, without).error_code == INVALID_TIMESTAMP
    assert produce(wire, stamped, 0, batch).error_code == INVALID_TIMESTAMP


def test_retention_by_time_where_a_client_leaves_the_largest_timestamp_out(wire: WireClient, topic: str) -> None:
    """The records are from 1970: Kafka deletes their segment although it was written just now."""
    create_topic(wire, topic, 1, configs={"segment.ms": "1000", "retention.ms": "3600000"})
    assert produce(wire, topic, 0, untold()).error_code == 0
    now = record_batch([b"now"], timestamp_ms=time.time_ns() // 1_000_000)
    assert produce(wire, topic, 0, now).base_offset == 3
    wait_until(lambda: list_offset(wire, topic, 0, -2)[1] == 3, "the old records are deleted")


def test_a_batch_that_is_sent_again_after_a_restart(own_broker: BrokerProcess, topic: str) -> None:
    """Its producer was in use when the batch was written, also if its header or its records bear no time."""
    times = {"header": time.time_ns() // 1_000_000, "records": -1}
    batches = {
        name: sealed_batch(THREE, 3, codec=0, base_timestamp_ms=base, max_timestamp_ms=-1, producer=(4000, 0, 0))
        for name, base in times.items()
    }
    with WireClient(own_broker.port) as wire:
        for name, batch in batches.items():
            create_topic(wire, f"{topic}-{name}", 1)
            assert produce(wire, f"{topic}-{name}", 0, batch, acks=-1).base_offset == 0
    for end in (own_broker.kill_everything, own_broker.stop):
        end()
        own_broker.start()
        with WireClient(own_broker.port) as wire:
            for name, batch in batches.items():
                response = produce(wire, f"{topic}-{name}", 0, batch, acks=-1)
                assert (response.error_code, response.base_offset) == (0, 0), name
                assert list_offset(wire, f"{topic}-{name}", 0, -1)[1] == 3, name
