"""Exports of a topic that real clients wrote to a real broker: each record once, in every codec and run."""

import json
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import duckdb
import pandas as pd
import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from pyspark.sql import SparkSession

from rotunda.broker.log.leader_epochs import LeaderEpochs, read_epochs, write_epochs
from rotunda.spark.failures import JobFailed
from rotunda.spark.file_system import FileSystem
from rotunda.spark.hourly.lock import exclusive
from rotunda.spark.jobs.export import export
from rotunda.spark.topics.topic_log import Bounds
from tests.spark.test_runs import JOB_SECONDS, QUICK_TO_START
from tests.support.broker_process import REPOSITORY, BrokerProcess
from tests.support.deadline import deadline_s, wait_until
from tests.support.sampling import Sampling
from tests.support.stepped_broker import died_at_line

pytestmark = pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning")

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    # The records' times are of 1970.
    settings = {"log.cleaner.backoff.ms": 50, "log.retention.ms": -1}
    running = BrokerProcess(tmp_path_factory.mktemp("export"), settings, ephemeral=False).start()
    yield running
    running.stop()


class Topic:
    """A topic, its client and its export."""

    def __init__(self, broker: BrokerProcess, name: str, output: Path, partitions: int = 2, **configs: str) -> None:
        self.broker, self.name, self.output, self.partitions = broker, name, output, partitions
        settings = [word for key, value in configs.items() for word in ("--config", f"{key.replace('_', '.')}={value}")]
        created = broker.command("topic", "create", name, "--partitions", str(partitions), *settings)
        assert created.returncode == 0, created.stderr

    def send(self, values: list[bytes], **settings: str) -> None:
        """Send records to both partitions by turns, with a key, two headers, and the number as their time."""
        producer = Producer({"bootstrap.servers": self.broker.bootstrap, **settings})
        for number, value in enumerate(values):
            producer.produce(
                self.name, value, b"k%d" % number, partition=number % self.partitions, timestamp=1_000_000 + number,
                headers=[("h", b"1"), ("h", None)],
            )  # fmt: skip
        assert producer.flush(deadline_s()) == 0

    def bounds(self) -> dict[int, Bounds]:
        """Return the current offsets of the broker."""
        described = json.loads(self.broker.command("topic", "describe", self.name, "--json").stdout)
        return {
            each["partition"]: Bounds(each["log_start_offset"], each["log_end_offset"])
            for each in described["partitions"]
        }

    def export(self, spark: SparkSession) -> str:
        """Export the new records up to the current offsets."""
        return "\n".join(export(spark, self.name, self.broker.data_dir, str(self.output), self.bounds()))

    def rows(self, columns: str = "value") -> list[tuple[object, ...]]:
        """Return columns of the exported records, in order, as DuckDB reads them."""
        source = f"read_parquet('{self.output}/records/**/*.parquet', hive_partitioning = true)"
        with duckdb.connect() as connection:
            return connection.sql(f'SELECT {columns} FROM {source} ORDER BY partition, "offset"').fetchall()  # noqa: S608


def test_new_records_of_all_codecs_are_exported_once_and_other_readers_read_them(
    spark: SparkSession, broker: BrokerProcess, tmp_path: Path
) -> None:
    topic = Topic(broker, "codecs", tmp_path / "out", segment_bytes="1048576")
    for number, codec in enumerate(CODECS):
        topic.send([b"%d-%d" % (number, each) * 4000 for each in range(200)], **{"compression.type": codec})
        assert f"200 records of codecs: run {number + 1} in" in topic.export(spark)
    assert "no new records of codecs since run 5" in topic.export(spark)
    expected = sorted(b"%d-%d" % (number, each) * 4000 for number in range(len(CODECS)) for each in range(200))
    assert sorted(value for (value,) in topic.rows()) == expected
    assert len(list((broker.data_dir / "codecs-0").glob("*.log"))) > 1
    key, headers, time_ms, partition, offset = topic.rows('key, headers, epoch_ms(timestamp), partition, "offset"')[0]
    assert (key, time_ms, partition, offset) == (b"k0", 1_000_000, 0, 0)
    assert headers == [{"key": "h", "value": b"1"}, {"key": "h", "value": None}]
    assert len(pd.read_parquet(topic.output / "records")) == len(expected)
    read = spark.read.parquet(str(topic.output / "records"))
    assert {row.partition: row["count"] for row in read.groupBy("partition").count().collect()} == {0: 500, 1: 500}


def test_an_output_in_another_file_system_has_every_record_once(
    spark: SparkSession, broker: BrokerProcess, tmp_path: Path, mounted: str
) -> None:
    topic = Topic(broker, "mounted", tmp_path / "out")
    for number in (1, 2):
        topic.send([b"%d" % each for each in range(10 * number - 10, 10 * number)])
        said = export(spark, topic.name, broker.data_dir, f"{mounted}/out", topic.bounds())
        assert said[0] == f"10 records of mounted: run {number} in {mounted}/out/records"
    assert sorted(int(value) for (value,) in topic.rows()) == list(range(20))


def test_of_transactions_only_decided_and_committed_records_are_exported(
    spark: SparkSession, broker: BrokerProcess, tmp_path: Path
) -> None:
    topic = Topic(broker, "payments", tmp_path / "out", partitions=1)
    committed, aborted, open_one = (transactional(broker, each) for each in ("committed", "aborted", "open"))
    for number in range(3):
        for producer in (committed, aborted):
            producer.begin_transaction()
            producer.produce(topic.name, f"{number} c".encode() if producer is committed else b"never")
            producer.flush(deadline_s())
        committed.commit_transaction(deadline_s())
        aborted.abort_transaction(deadline_s())
    open_one.begin_transaction()
    open_one.produce(topic.name, b"late")
    open_one.flush(deadline_s())
    topic.send([b"behind"])
    said = topic.export(spark)
    assert "3 records of payments" in said
    # The record in the transaction, and the one behind it.
    assert said.splitlines()[-1].split() == ["0", "0", "12", "2"]
    assert topic.rows() == [(b"0 c",), (b"1 c",), (b"2 c",)]
    open_one.commit_transaction(deadline_s())
    assert "2 records of payments: run 2" in topic.export(spark)
    assert topic.rows()[3:] == [(b"late",), (b"behind",)]


def test_fields_of_json_values_are_columns_in_every_run(
    spark: SparkSession, broker: BrokerProcess, tmp_path: Path
) -> None:
    topic = Topic(broker, "json", tmp_path / "out", partitions=1)
    where = topic.name, broker.data_dir, str(topic.output)
    for columns in ("value string", "nonsense"):
        with pytest.raises(JobFailed, match="invalid --columns"):
            export(spark, *where, {}, columns)
    topic.send([b'{"id": 1, "name": "a", "more": []}', b"no JSON"])
    export(spark, *where, topic.bounds(), "id bigint, name string")
    topic.send([b'{"id": 2}'])
    topic.export(spark)
    assert topic.rows("id, name") == [(1, "a"), (None, None), (2, None)]
    with pytest.raises(JobFailed, match="has the columns id bigint, name string"):
        export(spark, *where, {}, "id int")


def transactional(broker: BrokerProcess, name: str) -> Producer:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": name})
    producer.init_transactions(deadline_s())
    return producer


def test_deleted_records_are_left_out_and_another_topic_of_the_name_is_rejected(
    spark: SparkSession, broker: BrokerProcess, tmp_path: Path
) -> None:
    topic = Topic(broker, "renewed", tmp_path / "out", partitions=1)
    topic.send([b"%d" % number for number in range(10)])
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    (deleted,) = admin.delete_records([TopicPartition(topic.name, 0, 4)]).values()
    deleted.result(deadline_s())
    topic.export(spark)
    assert topic.rows('"offset"') == [(offset,) for offset in range(4, 10)]
    topic.send([b"10"])
    broker.stop()
    # Without the broker: up to its checkpoint, which it writes when it stops.
    assert "1 record of renewed: run 2" in export(spark, topic.name, broker.data_dir, str(topic.output), {})[0]
    broker.start()
    assert broker.command("topic", "delete", topic.name).returncode == 0
    Topic(broker, "renewed", topic.output, partitions=1).send([b"other"])
    with pytest.raises(JobFailed, match="topic renewed was deleted and created again"):
        topic.export(spark)
    assert [value for (value,) in topic.rows()] == [b"%d" % number for number in range(4, 11)]


def test_of_a_compacted_topic_the_remaining_records_are_exported(
    spark: SparkSession, broker: BrokerProcess, tmp_path: Path
) -> None:
    configs = {"cleanup_policy": "compact", "segment_bytes": "1048576", "min_cleanable_dirty_ratio": "0.01"}
    topic = Topic(broker, "compacted", tmp_path / "out", partitions=1, **configs)
    for _ in range(3):
        topic.send([b"%d" % number + bytes(10_000) for number in range(100)], **{"linger.ms": "0"})
    first = broker.data_dir / "compacted-0" / f"{0:020}.log"
    wait_until(lambda: first.stat().st_size < 1_000_000, "compaction")
    topic.export(spark)
    offsets = [offset for (offset,) in topic.rows('"offset"')]
    assert offsets[-1] == 299
    assert len(offsets) < 300
    assert len({key for (key,) in topic.rows("key")}) == 100


@pytest.mark.parametrize("damage", ["length", "magic", "offset", "cut", "cut in the first segment"])
def test_a_damaged_segment_ends_the_run(
    spark: SparkSession, broker: BrokerProcess, tmp_path: Path, damage: str
) -> None:
    topic = Topic(broker, f"damaged-{damage.replace(' ', '-')}", tmp_path / "out", 1, segment_bytes="1048576")
    for number in range(30):
        topic.send([b"%d" % number + bytes(50_000)])
    segments = sorted((broker.data_dir / f"{topic.name}-0").glob("*.log"))
    segment = segments[-1] if damage == "cut" else segments[0]
    content = segment.read_bytes()
    if damage.startswith("cut"):
        content = content[:-100]
    else:
        place = {"length": 8, "magic": 16, "offset": 3}[damage]
        second = 12 + int.from_bytes(content[8:12])
        content = content[: second + place] + b"\x7f" + content[second + place + 1 :]
    segment.write_bytes(content)
    with pytest.raises(JobFailed, match=r"no readable batch from offset .*; nothing was exported"):
        topic.export(spark)
    assert not (topic.output / "records").exists()


def test_executors_without_the_package_are_one_clear_line(
    spark: SparkSession, broker: BrokerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = Topic(broker, "bare", tmp_path / "out", partitions=1)
    topic.send([b"a"])
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    bare.chmod(0o755)
    monkeypatch.setattr(spark.sparkContext, "pythonExec", str(bare))
    with pytest.raises(JobFailed, match=r"Python has no .*: install 'rotunda-broker\[spark\]' for it, or name another"):
        topic.export(spark)


def test_an_output_of_other_files_keeps_them(spark: SparkSession, broker: BrokerProcess, tmp_path: Path) -> None:
    topic = Topic(broker, "beside", tmp_path / "out", partitions=1)
    own = topic.output / "staged" / "own"
    own.mkdir(parents=True)
    topic.send([b"a"])
    assert "1 record of beside" in topic.export(spark)
    assert own.exists()
    for name in ("unknown", ".."):
        with pytest.raises(JobFailed, match=f"no topic {name}"):
            export(spark, name, broker.data_dir, str(tmp_path / "new"), {})
    assert not (tmp_path / "new").exists()


UNUSABLE = {
    "file": ("", "cannot be created"),
    "lock": (".lock", "cannot be written"),
    "staged": ("staged", "cannot be exported to"),
    "records": ("records", "cannot be created"),
    "offsets": ("records/run=00000001/_offsets.json", "has no offsets of an export"),
}


@pytest.mark.parametrize("name", UNUSABLE)
def test_an_output_that_cannot_be_used_is_named(
    spark: SparkSession, broker: BrokerProcess, tmp_path: Path, name: str
) -> None:
    topic = Topic(broker, f"unusable-{name}", tmp_path / "out", partitions=1)
    topic.send([b"a"])
    file, said = UNUSABLE[name]
    path = topic.output / file
    if name == "lock":
        path.mkdir(parents=True)
    else:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("[]")
    with pytest.raises(JobFailed, match=f"{topic.output}.* {said}|{said} {topic.output}"):
        topic.export(spark)
    path.rmdir() if name == "lock" else path.unlink()
    if name == "offsets":
        path.parent.rmdir()
    assert "1 record of" in topic.export(spark)


def test_of_two_exports_at_once_the_second_is_rejected(
    spark: SparkSession, broker: BrokerProcess, tmp_path: Path
) -> None:
    topic = Topic(broker, "twice", tmp_path / "out", partitions=1)
    topic.send([b"a"])
    with (
        exclusive(FileSystem(spark, str(topic.output)), "export"),
        pytest.raises(JobFailed, match="another export writes"),
    ):
        topic.export(spark)
    topic.export(spark)
    assert topic.rows() == [(b"a",)]


def test_a_missing_segment_ends_the_run_and_later_records_can_be_exported(
    spark: SparkSession, broker: BrokerProcess, tmp_path: Path
) -> None:
    topic = Topic(broker, "holed", tmp_path / "out", 1, segment_bytes="1048576")
    for number in range(60):
        topic.send([b"%d" % number + bytes(50_000)])
    bounds = topic.bounds()
    first, second, third, *_ = sorted((broker.data_dir / "holed-0").glob("*.log"))
    second.unlink()
    assert first.exists()
    with pytest.raises(JobFailed, match=r"offsets \d+ to \d+ is missing; --offsets 0:\d+:60 exports the later records"):
        topic.export(spark)
    after = {0: Bounds(int(third.stem), bounds[0].high_watermark)}
    export(spark, topic.name, broker.data_dir, str(topic.output), after)
    assert topic.rows('"offset"') == [(offset,) for offset in range(int(third.stem), 60)]


def test_offsets_that_were_used_again_end_the_run(spark: SparkSession, broker: BrokerProcess, tmp_path: Path) -> None:
    topic = Topic(broker, "reused", tmp_path / "out", partitions=1)
    topic.send([b"%d" % number for number in range(10)])
    topic.export(spark)
    directory = broker.data_dir / "reused-0"
    epoch = read_epochs(directory).latest
    # As after a power failure that cut the log at offset 4.
    write_epochs(directory, LeaderEpochs([(epoch, 0), (epoch + 1, 4)]))
    with pytest.raises(JobFailed, match="used offsets from 4 on again"):
        topic.export(spark)
    # As after a restart without one.
    write_epochs(directory, LeaderEpochs([(epoch, 0), (epoch + 1, 10)]))
    assert "no new records" in topic.export(spark)
    # A run of a version that did not write epochs is continued.
    offsets = topic.output / "records" / "run=00000001" / "_offsets.json"
    said = json.loads(offsets.read_text())
    del said["leaderEpochs"]
    offsets.write_text(json.dumps(said))
    topic.send([b"10"])
    assert "1 record of reused: run 2" in topic.export(spark)


def test_runs_that_die_anywhere_leave_no_record_twice(
    spark: SparkSession, broker: BrokerProcess, tmp_path: Path, sampling: Sampling
) -> None:
    topic = Topic(broker, "killed", tmp_path / "out")
    sent = 0
    for line in sampling.walk(10):
        topic.send([b"%d" % number for number in range(sent, sent + 10)])
        sent += 10
        bounds = topic.bounds()
        attempt = partial(export, spark, topic.name, broker.data_dir, str(topic.output), bounds)
        has_died = died_at_line(line, attempt, ("spark/topics/exports", "spark/jobs/export", "spark/file_system"))
        visible = (
            topic.rows() if (topic.output / "records").exists() and any((topic.output / "records").iterdir()) else []
        )
        assert len({*visible}) == len(visible)
        topic.export(spark)
        assert sorted(int(value) for (value,) in topic.rows()) == list(range(sent)), line
        if not has_died:
            return


@pytest.mark.slow
@pytest.mark.timeout(2 * JOB_SECONDS)
def test_a_process_that_is_killed_and_repeated_exports_each_record_once(
    spark: SparkSession, broker: BrokerProcess, tmp_path: Path
) -> None:
    topic = Topic(broker, "processes", tmp_path / "out")
    topic.send([b"%d" % number for number in range(1000)])
    arguments = [
        sys.executable, "-m", "rotunda", "report", "--run-dir", str(broker.run_dir), "export", topic.name,
        "--output", str(topic.output), "--master", "local[2]",
    ]  # fmt: skip
    with subprocess.Popen(arguments, cwd=REPOSITORY, env=QUICK_TO_START, stdout=subprocess.DEVNULL) as running:
        wait_until((topic.output / "staged").exists, "the run has begun to write", JOB_SECONDS)
        running.kill()
    assert "1,000 records of processes: run 1 in" in topic.export(spark)
    assert sorted(int(value) for (value,) in topic.rows()) == list(range(1000))
