"""Exports of a topic that real clients wrote to a real broker: each record once, in every codec and run."""

import json
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pandas as pd
import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from rotunda.spark.jobs.export import export
from rotunda.spark.topics.topic_log import Bounds
from tests.support.broker_process import BrokerProcess
from tests.support.deadline import deadline_s

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    running = BrokerProcess(tmp_path_factory.mktemp("export"), ephemeral=False).start()
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
