"""More partitions than descriptors, and none at all: no partition is lost to its clients, under a real broker."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from rotunda.broker.log.segments.open_segments import most_segments
from tests.integration.test_failing_disk import STORAGE_ERROR, accepts, metric, rejection, status
from tests.support.broker_process import PAGE, BrokerProcess
from tests.support.deadline import wait_until
from tests.support.few_descriptors import FEW
from tests.support.record_batches import TIMESTAMP_MS, record_batch
from tests.support.status_page import page_text
from tests.support.wire_client import WireClient
from tests.support.wire_messages import create_topic, produce, read_partition

SETTINGS = {
    **PAGE,
    "num.network.threads": 1,
    "num.io.threads": 1,
    "storage.free.warn.bytes": 0,
    "storage.free.min.bytes": 0,
    "log.message.timestamp.before.max.ms": 2**62,
}
PARTITIONS = 3 * most_segments(FEW)
#: Each record is later than the segment before it may be.
ROLLING = {"segment.ms": "1", "retention.ms": "-1"}
ROUNDS = 4


def test_a_start_logs_a_limit_that_is_too_small(broker_directory: Path) -> None:
    limited = "tests.support.few_descriptors"
    running = BrokerProcess(broker_directory, SETTINGS, ephemeral=False, module=limited)
    for partition in range(PARTITIONS):
        (running.data_dir / f"kept-{partition}").mkdir(parents=True)
    try:
        running.start()
        said = running.log_text()
    finally:
        running.stop()
    assert "WARNING supervisor-" in said
    assert f"{PARTITIONS:,} partitions in {running.data_dir}, and a limit of {FEW:,} open files: " in said


@pytest.fixture
def broker(broker_directory: Path) -> Iterator[BrokerProcess]:
    running = BrokerProcess(broker_directory, SETTINGS, ephemeral=False).start()
    yield running
    running.stop()


def handler_of(broker: BrokerProcess) -> psutil.Process:
    [row] = broker.processes("handler")
    return psutil.Process(row["pid"])


def late_batch(number: int, value: bytes) -> bytes:
    return record_batch([value], timestamp_ms=TIMESTAMP_MS + 1000 * number)


def test_more_partitions_than_descriptors_roll_and_accept_records(broker: BrokerProcess, topic: str) -> None:
    psutil.Process(broker.pid()).rlimit(resource.RLIMIT_NOFILE, (FEW, FEW))
    broker.kill("handler")
    values = [str(number).encode() for number in range(ROUNDS)]
    with WireClient(broker.port) as client:
        create_topic(client, topic, PARTITIONS, configs=ROLLING)
        for number, value in enumerate(values):
            for partition in range(PARTITIONS):
                assert produce(client, topic, partition, late_batch(number, value)).error_code == 0
        assert handler_of(broker).num_fds() < FEW
        wait_until(lambda: metric(broker, "rotunda_handler_segments_closed_total", handler="0") > 0, "the metric")
        assert "raise the limit of open files" in broker.log_text()
        for partition in (0, 1, PARTITIONS - 1):
            assert [each.value for each in read_partition(client, topic, partition)] == values
        broker.kill("handler")
        for partition in range(PARTITIONS):
            assert produce(client, topic, partition, late_batch(ROUNDS, b"after")).error_code == 0
        for partition in (0, 1, PARTITIONS - 1):
            assert [each.value for each in read_partition(client, topic, partition)] == [*values, b"after"]
    assert "is offline" not in broker.log_text()


def test_without_a_single_descriptor_records_are_rejected_until_there_are_some(
    broker: BrokerProcess, topic: str
) -> None:
    """The roll fails, and so does its rollback: the partition still accepts records again."""
    with WireClient(broker.port) as client:
        create_topic(client, topic, 3, configs=ROLLING)
        for partition in range(2):
            assert produce(client, topic, partition, late_batch(0, b"before")).error_code == 0
        handler = handler_of(broker)
        before = handler.rlimit(resource.RLIMIT_NOFILE)
        handler.rlimit(resource.RLIMIT_NOFILE, (3, before[1]))
        for partition in range(3):
            assert produce(client, topic, partition, late_batch(1, b"lost")).error_code == STORAGE_ERROR
        assert "Raise the limit of open files" in rejection(client, topic).message
        wait_until(lambda: page_text(broker, "/readyz")[0] == 503, "unready")
        assert "no descriptors left" in page_text(broker, "/readyz")[1]
        assert status(broker)["verdict"]["level"] == "stuck"
        assert "Too many open files" in broker.log_text()
        handler.rlimit(resource.RLIMIT_NOFILE, before)
        for partition in range(3):
            wait_until(lambda each=partition: accepts(client, topic, each), f"partition {partition}")
        wait_until(lambda: page_text(broker, "/readyz") == (200, "ready\n"), "ready")
        for partition in range(2):
            assert [each.value for each in read_partition(client, topic, partition)] == [b"before", b"again"]
        assert metric(broker, "rotunda_topic_offline_partitions", topic=topic) == 0
