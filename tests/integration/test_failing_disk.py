"""A disk that is full, limited by a quota, partly broken, or removed, under a real broker and real clients.

System calls fail by rules (`tests.support.failing_disk`); the free space is compared with settings.
"""

import errno
import json
import os
import shutil
import struct
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from rotunda.broker.protocol.error_codes import ErrorCode
from rotunda.broker.request_log.part_files import DIRECTORY, RUNNING
from rotunda.broker.status.history import HistoryReader
from tests.support.broker_process import PAGE, BrokerProcess
from tests.support.deadline import wait_until
from tests.support.exposition import Exposition
from tests.support.failing_disk import FailingDisk
from tests.support.own_mounts import fill, may_mount, small, with_mounts
from tests.support.record_batches import record_batch
from tests.support.share_consumer import ShareConsumer, topic_id_of
from tests.support.status_page import page_text
from tests.support.wire_client import WireClient
from tests.support.wire_messages import (
    ProduceErrors,
    create_topic,
    fetch,
    produce,
    produce_errors,
    read_partition,
)

SETTINGS = {
    **PAGE,
    "num.network.threads": 1,
    "num.io.threads": 2,
    "storage.free.warn.bytes": 0,
    "storage.free.min.bytes": 0,
    "offsets.topic.num.partitions": 2,
}
STORAGE_ERROR = 56


@pytest.fixture
def disk(tmp_path: Path) -> FailingDisk:
    return FailingDisk(tmp_path)


@pytest.fixture
def broker(disk: FailingDisk, broker_directory: Path) -> Iterator[BrokerProcess]:
    running = disk.broker(broker_directory, SETTINGS).start()
    yield running
    disk.mend()
    running.stop()


def status(broker: BrokerProcess) -> dict[str, Any]:
    return json.loads(page_text(broker, "/status.json")[1])


def metric(broker: BrokerProcess, name: str, **labels: str) -> float:
    [value] = [
        each.value for each in Exposition(page_text(broker, "/metrics")[1]).samples[name] if each.labels == labels
    ]
    return value


def responses_sent(broker: BrokerProcess) -> float:
    """Return how many responses the processors have counted."""
    samples = Exposition(page_text(broker, "/metrics")[1]).samples
    return sum(each.value for each in samples["rotunda_processor_responses_sent_total"])


def rejection(client: WireClient, topic: str) -> ProduceErrors:
    """Produce to partition 0, and return the errors."""
    return produce_errors(client, topic, 0, record_batch([b"x"]))


def accepts(client: WireClient, topic: str, partition: int = 0) -> bool:
    return produce(client, topic, partition, record_batch([b"again"])).error_code == 0


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_rejects_records_with_a_log_line_and_recovers_by_itself(disk, broker, topic, error) -> None:
    with WireClient(broker.port) as client:
        create_topic(client, topic, 4)
        create_topic(client, "doomed", 1)
        for partition in range(4):
            assert produce(client, topic, partition, record_batch([b"before"])).error_code == 0
        assert page_text(broker, "/readyz") == (200, "ready\n")
        begin = broker.log_bytes()
        disk.fill(broker.data_dir, error)
        for number in range(200):
            assert produce(client, topic, number % 4, record_batch([b"lost"])).error_code == STORAGE_ERROR
        assert rejection(client, topic).error_code == STORAGE_ERROR
        assert os.strerror(error) in rejection(client, topic).message
        wait_until(lambda: page_text(broker, "/readyz")[0] == 503, "unready")
        assert os.strerror(error) in page_text(broker, "/readyz")[1]
        found = status(broker)
        assert found["verdict"]["level"] == "stuck"
        assert os.strerror(error) in found["verdict"]["text"] + found["remarks"][0]
        wait_until(lambda: metric(broker, "rotunda_storage_refuses_records") == 1, "the metric")
        wait_until(lambda: metric(broker, "rotunda_storage_state") == 3, "the state")
        [line] = [line for line in broker.log_since(begin) if "a turn took" not in line]
        assert f"The data directory cannot be written to ({os.strerror(error)})" in line
        # Requests that need no space are served.
        assert [each.value for each in read_partition(client, topic, 0)] == [b"before"]
        # Rejected records are not there; records sent now are.
        disk.mend()
        wait_until(lambda: accepts(client, topic), "room")
        wait_until(lambda: page_text(broker, "/readyz") == (200, "ready\n"), "ready")
        _, line = [line for line in broker.log_since(begin) if "a turn took" not in line]
        assert "the disk of the data directory has space again" in line
        assert {each.value for each in read_partition(client, topic, 0)} == {b"before", b"again"}


def test_topics_can_be_deleted_on_a_full_disk(disk, broker, topic) -> None:
    with WireClient(broker.port) as client:
        create_topic(client, topic, 1)
        assert produce(client, topic, 0, record_batch([b"x"])).error_code == 0
        for kind in (".log", "checkpoint", ".snapshot", "index", "#"):
            disk.fill(kind)
        assert produce(client, topic, 0, record_batch([b"x"])).error_code == STORAGE_ERROR
        done = broker.command("topic", "delete", topic, "--bootstrap", broker.bootstrap)
        assert done.returncode == 0, done.stdout + done.stderr + broker.log_text()
        wait_until(lambda: not (broker.data_dir / f"{topic}-0").exists(), "the removal")


def test_an_error_of_one_segment_makes_its_partition_and_no_other_offline(disk, broker, topic) -> None:
    with WireClient(broker.port) as client:
        create_topic(client, topic, 2)
        for partition in range(2):
            assert produce(client, topic, partition, record_batch([b"before"])).error_code == 0
        disk.fail("write", errno.EIO, f"{topic}-0/")
        assert produce(client, topic, 0, record_batch([b"lost"])).error_code == STORAGE_ERROR
        disk.mend()
        code, message, _ = rejection(client, topic)
        assert code == STORAGE_ERROR
        assert os.strerror(errno.EIO) in message
        assert produce(client, topic, 1, record_batch([b"other"])).error_code == 0
        assert [each.value for each in read_partition(client, topic, 0)] == [b"before"]
        wait_until(lambda: f"{topic}-0" in "".join(status(broker)["remarks"]), "the warning")
        assert page_text(broker, "/readyz")[0] == 200
        wait_until(lambda: metric(broker, "rotunda_topic_offline_partitions", topic=topic) == 1, "the metric")
        wait_until(lambda: f"{topic}-0 is offline" in broker.log_text(), "the line")
    broker.stop()
    broker.start()
    with WireClient(broker.port) as client:
        assert accepts(client, topic)
        assert [each.value for each in read_partition(client, topic, 0)] == [b"before", b"again"]


def test_a_segment_that_cannot_be_read_is_an_error_of_its_partition(disk, broker, topic) -> None:
    with WireClient(broker.port) as client:
        create_topic(client, topic, 2)
        for partition in range(2):
            assert produce(client, topic, partition, record_batch([b"x" * 50_000])).error_code == 0
        disk.fail("read", errno.EIO, f"{topic}-0/")
        assert fetch(client, topic, 0, 0).error_code == STORAGE_ERROR
        assert fetch(client, topic, 1, 0).error_code == 0
        disk.mend()
        assert fetch(client, topic, 0, 0).error_code == 0


def test_a_partition_without_its_directory_rejects_records(broker, topic) -> None:
    with WireClient(broker.port) as client:
        create_topic(client, topic, 2)
        for partition in range(2):
            assert produce(client, topic, partition, record_batch([b"x"])).error_code == 0
        shutil.rmtree(broker.data_dir / f"{topic}-0")
        wait_until(lambda: rejection(client, topic).error_code == STORAGE_ERROR, "the rejection")
        assert "No such file" in rejection(client, topic).message
        assert produce(client, topic, 1, record_batch([b"x"])).error_code == 0
        # No consumer is sent elsewhere for records that should be there.
        assert fetch(client, topic, 0, 0).error_code == STORAGE_ERROR


def test_a_missing_data_directory_accepts_no_records_until_it_is_back(broker, topic) -> None:
    away = broker.data_dir.with_name("away")
    with WireClient(broker.port) as client:
        create_topic(client, topic, 1)
        assert produce(client, topic, 0, record_batch([b"x"])).error_code == 0
        broker.data_dir.rename(away)
        wait_until(lambda: rejection(client, topic).error_code == STORAGE_ERROR, "the rejection")
        wait_until(lambda: page_text(broker, "/readyz")[0] == 503, "unready")
        assert "has been removed" in page_text(broker, "/readyz")[1]
        wait_until(lambda: metric(broker, "rotunda_offline_log_directories") == 1, "the metric")
        assert fetch(client, topic, 0, 0).error_code == STORAGE_ERROR
        done = broker.command("topic", "create", "another", "--bootstrap", broker.bootstrap)
        assert done.returncode != 0
        assert "has been removed" in done.stdout + done.stderr
        assert not broker.data_dir.exists(), "nothing makes it anew"
        away.rename(broker.data_dir)
        wait_until(lambda: accepts(client, topic), "the directory")
        wait_until(lambda: page_text(broker, "/readyz") == (200, "ready\n"), "ready")


def test_a_data_directory_that_is_removed_for_good(disk, broker_directory, topic) -> None:
    broker = disk.broker(broker_directory, SETTINGS).start()
    with WireClient(broker.port) as client:
        create_topic(client, topic, 1)
        assert produce(client, topic, 0, record_batch([b"x"])).error_code == 0
        # The broker may be making a file in it.
        wait_until(
            lambda: shutil.rmtree(broker.data_dir, ignore_errors=True) or not broker.data_dir.exists(), "the removal"
        )
        wait_until(lambda: rejection(client, topic).error_code == STORAGE_ERROR, "the rejection")
        wait_until(lambda: page_text(broker, "/readyz")[0] == 503, "unready")
    broker.stop()
    assert not broker.data_dir.exists()
    # A recorder that is just making its first file may die of it; the next one waits.
    faults = [line for line in broker.log_text().splitlines() if "Traceback" in line and " recorder-" not in line]
    assert not faults


def test_thresholds_of_free_space_warn_and_then_reject_records(broker, topic) -> None:
    """The thresholds are moved, as the free space cannot be."""
    with WireClient(broker.port) as client:
        create_topic(client, topic, 1)
        alter(client, "storage.free.warn.ratio", "1")
        alter(client, "storage.free.warn.bytes", str(2**62))
        wait_until(lambda: "nearly full" in page_text(broker, "/readyz")[1], "the warning")
        assert page_text(broker, "/readyz")[0] == 200
        wait_until(lambda: status(broker)["verdict"]["level"] == "busy", "the verdict")
        wait_until(lambda: "nearly full" in broker.log_text(), "the line")
        assert accepts(client, topic)
        alter(client, "storage.free.min.ratio", "1")
        alter(client, "storage.free.min.bytes", str(2**62))
        wait_until(lambda: rejection(client, topic).error_code == STORAGE_ERROR, "the rejection")
        assert "storage.free.min.bytes" in rejection(client, topic).message
        wait_until(lambda: page_text(broker, "/readyz")[0] == 503, "unready")
        assert read_partition(client, topic, 0)[0].value == b"again"
        create_topic(client, f"{topic}-new", 1)
        alter(client, "storage.free.min.bytes", "0")
        alter(client, "storage.free.warn.bytes", "0")
        wait_until(lambda: accepts(client, topic), "room")
        wait_until(lambda: page_text(broker, "/readyz") == (200, "ready\n"), "ready")


def test_on_a_disk_that_is_nearly_full_the_request_log_stops_first(broker, topic) -> None:
    """Records are still accepted. The thresholds are moved, as the free space cannot be."""
    rows = "rotunda_recorder_rows_written_total"
    stopped_requests = 100
    with WireClient(broker.port) as client:
        create_topic(client, topic, 1)
        alter(client, "request.log.roll.ms", "100")
        alter(client, "storage.free.min.ratio", "1")
        alter(client, "storage.free.min.bytes", str(shutil.disk_usage(broker.data_dir).free * 3 // 4))
        wait_until(lambda: metric(broker, "rotunda_storage_state") == 2, "the state")
        assert "The request log has stopped" in page_text(broker, "/readyz")[1]
        assert page_text(broker, "/readyz")[0] == 200
        first, all_sent = metric(broker, rows), responses_sent(broker) + stopped_requests
        for _ in range(stopped_requests):
            assert accepts(client, topic)
        # Processors check whether to record when they publish their counters.
        wait_until(lambda: responses_sent(broker) >= all_sent, "their responses counted")
        before = metric(broker, rows)
        alter(client, "storage.free.min.bytes", "0")
        wait_until(lambda: metric(broker, "rotunda_storage_state") == 0, "room")
        assert accepts(client, topic)
        wait_until(lambda: metric(broker, rows) > before, "rows of what came later")
        assert metric(broker, rows) - first < stopped_requests / 2


def alter(client: WireClient, key: str, value: str) -> None:
    """Change a setting of all brokers (IncrementalAlterConfigs 0)."""

    def text(each: str) -> bytes:
        return struct.pack(">h", len(each)) + each.encode()

    body = struct.pack(">ib", 1, 4) + text("") + struct.pack(">i", 1) + text(key) + b"\0" + text(value) + b"\0"
    response = client.call(44, 0, body)
    assert struct.unpack_from(">ih", response, 4)[1] == 0, response


@pytest.mark.skipif(not may_mount(), reason="mounts of one's own take root")
def test_a_full_disk_is_in_the_history_of_a_broker_without_requests(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path, ephemeral=False)
    broker.data_dir.mkdir()

    def looked() -> bool:
        """Return whether the recorder has looked at the disk since it became full, which it does once a second."""
        [recorder] = broker.processes("recorder")
        return recorder["heartbeat_ns"] > full_ns + 2_000_000_000

    def in_little() -> None:
        nonlocal full_ns
        broker.start()
        filler = fill(broker.data_dir)
        wait_until(lambda: "is full" in broker.log_text(), "the line")
        full_ns = time.monotonic_ns()
        wait_until(looked, "a look")
        filler.unlink()
        wait_until(lambda: "has space again" in broker.log_text(), "room")
        wait_until((broker.data_dir / DIRECTORY / RUNNING).exists, "a recorder at work")
        broker.stop()
        now_ms = int(time.time() * 1000)
        found = HistoryReader(broker.data_dir / DIRECTORY).read(now_ms - 600_000, now_ms + 60_000)
        assert {"disk_full", "disk_freed"} <= {each["name"] for each in found["events"]}

    full_ns = 0
    with_mounts([small(broker.data_dir, 64 << 20)], in_little)


def test_acknowledgements_on_a_full_disk_are_rejected_and_earlier_ones_stay(
    disk: FailingDisk, broker: BrokerProcess, topic: str
) -> None:
    """S87: a rejected acceptance has not happened; an earlier one is stored, and its record does not come again."""
    with WireClient(broker.port) as client, ExitStack() as stack:
        create_topic(client, topic, 1)
        topic_id = topic_id_of(broker.port, topic)
        first = stack.enter_context(closing(ShareConsumer(broker.port, topic, topic_id, [0]))).join(topic)
        first.fetch(max_wait_ms=0)
        assert produce(client, topic, 0, record_batch([b"%d" % number for number in range(4)])).error_code == 0
        assert wait_until(lambda: 0 in (got := first.fetch()) and got[0].acquired, "records") == [(0, 3, 1)]
        assert first.acknowledge([(0, 0, 0, [1])]) == {0: 0}
        disk.fill("__share_group_state")
        rejected = first.acknowledge_raw([(0, 1, 1, [1])])
        assert (rejected.error_code, rejected.responses) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, ())
        disk.mend()

        def redelivered() -> list[tuple[int, int]]:
            """Accept the records of a new session; return them once this succeeds."""
            with closing(ShareConsumer(broker.port, topic, topic_id, [0])) as member:
                response = member.fetch_raw()
                parts = [part for each in response.responses for part in each.partitions]
                ranges = [(each.first_offset, each.last_offset) for part in parts for each in part.acquired_records]
                accepted = member.acknowledge_raw([(0, *each, [1]) for each in ranges])
                return [] if response.error_code or accepted.error_code else ranges

        assert wait_until(redelivered, "the group to be served again") == [(1, 3)]
