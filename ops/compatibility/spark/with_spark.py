"""Spark's Kafka source and sink, batch and streaming. Runs in the environment that has PySpark."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from checks import equal, require, run, unique, until
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that every Spark program uses

JARS = os.environ["ROTUNDA_SPARK_JARS"]
LIMIT_SECONDS = 60


def session() -> SparkSession:
    jars = ",".join(str(path) for path in sorted(Path(JARS).glob("*.jar")))
    builder = SparkSession.builder.master("local[2]").appName("compatibility").config("spark.jars", jars)
    for key, value in {
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.memory": "1g",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
    }.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def numbers(spark: SparkSession, count: int, start: int = 0) -> DataFrame:
    """Return keys and values in the columns that Kafka's sink requires."""
    ids = spark.range(start, start + count)
    return ids.select(
        F.concat(F.lit("key-"), "id").alias("key"),
        F.col("id").cast("string").alias("value"),
    )


def write(frame: DataFrame, bootstrap: str, topic: str) -> None:
    """Append a frame to a topic, which is made by the first record."""
    frame.write.format("kafka").option("kafka.bootstrap.servers", bootstrap).option("topic", topic).save()


def read(spark: SparkSession, bootstrap: str, topic: str, **options: str) -> DataFrame:
    reader = spark.read.format("kafka").option("kafka.bootstrap.servers", bootstrap).option("subscribe", topic)
    return reader.options(**options).load()


def sums(frame: DataFrame) -> tuple[int, int]:
    row = frame.agg(F.count("*").alias("count"), F.sum(F.col("value").cast("string").cast("long")).alias("sum")).first()
    require(row, "no row")
    return int(row["count"]), int(row["sum"] or 0)


def batch(bootstrap: str) -> None:
    """Write a frame and read it back, with the columns of the source."""
    spark, topic = session(), unique("spark")
    write(numbers(spark, 5000), bootstrap, topic)
    frame = read(spark, bootstrap, topic)
    equal(sums(frame), (5000, sum(range(5000))))
    columns = {"key", "value", "topic", "partition", "offset", "timestamp", "timestampType"}
    require(set(frame.columns) >= columns, frame.columns)
    strange = F.col("key").cast("string") != F.concat(F.lit("key-"), F.col("value").cast("string"))
    require(frame.filter(strange).count() == 0, "a key that does not belong to its value")


def by_timestamp(bootstrap: str) -> None:
    """Read from a moment on, and read a range of offsets."""
    spark, topic = session(), unique("spark")
    write(numbers(spark, 100), bootstrap, topic)
    moment = read(spark, bootstrap, topic).agg(F.max(F.col("timestamp").cast("double"))).first()
    require(moment, "no time")
    after = str(int(float(moment[0]) * 1000) + 1)
    write(numbers(spark, 50, start=1000), bootstrap, topic)
    later = read(spark, bootstrap, topic, startingTimestamp=after)
    equal(sums(later), (50, sum(range(1000, 1050))))
    offsets = f'{{"{topic}":{{"0":10}}}}'
    total = sums(read(spark, bootstrap, topic))[0]
    equal(sums(read(spark, bootstrap, topic, startingOffsets=offsets))[0], total - 10)


def streaming(bootstrap: str) -> None:
    """Stream from topic to topic; after a restart it resumes from its checkpoint, and loses nothing."""
    spark, source, target = session(), unique("spark"), unique("spark")
    with tempfile.TemporaryDirectory() as checkpoint:
        for life in range(2):
            write(numbers(spark, 500, start=500 * life), bootstrap, source)
            with stream(spark, bootstrap, source, target, checkpoint):
                pass
        equal(sums(read(spark, bootstrap, target)), (1000, sum(range(1000))))


@contextmanager
def stream(spark: SparkSession, bootstrap: str, source: str, target: str, checkpoint: str) -> Iterator[None]:
    """Copy the available records from one topic to the other, then end."""
    reader = spark.readStream.format("kafka").option("kafka.bootstrap.servers", bootstrap)
    frame = (
        reader.option("subscribe", source)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", "200")
        .load()
    )
    writer = frame.select("key", "value").writeStream.format("kafka").option("kafka.bootstrap.servers", bootstrap)
    query = writer.option("topic", target).option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
    try:
        yield
        require(query.awaitTermination(LIMIT_SECONDS), "the stream did not end")
    finally:
        query.stop()


def windows(bootstrap: str) -> None:
    """Aggregate a stream over the topic's timestamps, into memory."""
    spark, source, table = session(), unique("spark"), unique("table").replace("-", "_")
    write(numbers(spark, 300), bootstrap, source)
    reader = spark.readStream.format("kafka").option("kafka.bootstrap.servers", bootstrap).option("subscribe", source)
    frame = reader.option("startingOffsets", "earliest").load()
    counts = frame.groupBy(F.window("timestamp", "1 hour")).count()
    query = (
        counts.writeStream.format("memory").queryName(table).outputMode("complete").trigger(availableNow=True).start()
    )
    require(query.awaitTermination(LIMIT_SECONDS), "the stream did not end")
    row = spark.table(table).agg(F.sum("count")).first()
    equal(row and row[0], 300)


def committed(bootstrap: str) -> None:
    """Read with read_committed: no record of an aborted transaction is shown."""
    spark, topic = session(), unique("spark")
    producer = spark._jvm.org.apache.kafka.clients.producer.KafkaProducer  # type: ignore[union-attr]
    settings = spark._jvm.java.util.HashMap()  # type: ignore[union-attr]
    serializer = "org.apache.kafka.common.serialization.StringSerializer"
    for key, value in {
        "bootstrap.servers": bootstrap,
        "transactional.id": unique("tx"),
        "key.serializer": serializer,
        "value.serializer": serializer,
    }.items():
        settings.put(key, value)
    client = producer(settings)
    client.initTransactions()
    record = spark._jvm.org.apache.kafka.clients.producer.ProducerRecord  # type: ignore[union-attr]
    for value, commits in (("1", True), ("10", False), ("100", True)):
        client.beginTransaction()
        client.send(record(topic, value))
        client.flush()
        if commits:
            client.commitTransaction()
        else:
            client.abortTransaction()
    client.close()
    frame = read(spark, bootstrap, topic, **{"kafka.isolation.level": "read_committed"})
    equal(sums(frame), (2, 101))


def request_log(bootstrap: str) -> None:
    """Read the broker's request log unchanged and find the requests just sent."""
    spark, topic = session(), unique("spark")
    write(numbers(spark, 100), bootstrap, topic)
    path = f"{os.environ['ROTUNDA_DATA']}/request-log/requests"

    def records_logged() -> bool:
        if not Path(path).exists():
            return False
        log = spark.read.parquet(path)
        require({"date", "hour"} <= set(log.columns), "the partitions of the log are columns")
        mine = log.filter((F.col("topic") == topic) & (F.col("requestApiKeyName") == "PRODUCE"))
        return (mine.agg(F.sum("records")).first() or (0,))[0] == 100

    until("a hundred records in the request log", records_logged)


if __name__ == "__main__":
    run(
        {
            "batch: write and read": batch,
            "batch: from a timestamp, from an offset": by_timestamp,
            "batch: read_committed": committed,
            "streaming: topic to topic over a restart": streaming,
            "streaming: aggregation": windows,
            "the broker's request log as Parquet": request_log,
        }
    )
