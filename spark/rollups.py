"""The hourly tables: what the requests of an hour come to, by everything that a report groups them by.

`requests` has a row for each key in an hour with counts and sums; `latencies` has, for the same keys by their number,
how many requests fell into each bucket of each phase. Both are partitioned by date and hour. Sums and counts honour
sampleWeight. The manifest of an hour names the input files that its rows stand for.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import reduce

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the field's name for it

from spark.histogram import bucket
from spark.request_log import InputFile, RequestLog, is_one_of
from spark.schema import PARTITION_COLUMNS
from spark.storage import Storage
from spark.time_range import TimeRange

KEYS = (
    "requestApiKey",
    "requestApiKeyName",
    "requestApiVersion",
    "clientId",
    "softwareName",
    "softwareVersion",
    "topic",
    "listener",
    "errorCode",
    "errorName",
)
PHASES = (
    "requestQueueTimeUs",
    "localTimeUs",
    "remoteTimeUs",
    "responseQueueTimeUs",
    "sendTimeUs",
    "totalTimeUs",
)
_SUMS = ("requestBytes", "responseBytes", "records", "recordBytes", "throttleTimeUs", *PHASES)

#: What both tables are computed from.
INPUT_COLUMNS = (
    *PARTITION_COLUMNS,
    "time",
    *KEYS,
    *(name for name in _SUMS if name not in PHASES),
    *PHASES,
    "slow",
    "sampleWeight",
)

_REQUESTS, _LATENCIES, _MANIFEST = "requests", "latencies", "manifest"


def requests_by_key(rows: DataFrame) -> DataFrame:
    """Return the table `requests`: one row for each key in an hour; `key` is its number, by which `latencies` goes."""
    weight = F.col("sampleWeight").cast("long")
    return (
        rows.groupBy(*PARTITION_COLUMNS, *KEYS)
        .agg(
            F.sum(weight).alias("requests"),
            F.count("*").alias("rows"),
            F.sum(F.when(F.col("slow"), weight).otherwise(F.lit(0))).alias("slowRequests"),
            *(F.sum(F.col(name) * weight).alias(name) for name in _SUMS),
            F.min("time").alias("firstTime"),
            F.max("time").alias("lastTime"),
        )
        .withColumn("key", _key())
    )


def latencies_by_key(rows: DataFrame) -> DataFrame:
    """Return the table `latencies`: for each key in an hour and each phase, how many requests fell into a bucket."""
    places = F.array(*(bucket(phase) + F.lit(place << 16) for place, phase in enumerate(PHASES)))
    placed = rows.select(*PARTITION_COLUMNS, _key().alias("key"), "sampleWeight", F.explode(places).alias("place"))
    counted = placed.groupBy(*PARTITION_COLUMNS, "key", "place").agg(F.sum("sampleWeight").alias("requests"))
    phase = F.element_at(F.array(*(F.lit(name) for name in PHASES)), F.shiftright("place", 16) + 1)
    bucket_of_place = F.col("place").bitwiseAND(0xFFFF)
    return counted.select(*PARTITION_COLUMNS, "key", phase.alias("phase"), bucket_of_place.alias("bucket"), "requests")


def _key() -> Column:
    return F.xxhash64(*KEYS)


class Rollups:
    """The stored tables below `root`, and the log that fills in what they do not have."""

    def __init__(self, spark: SparkSession, root: str, log: RequestLog) -> None:
        self._spark = spark
        self._root = root.rstrip("/")
        self._log = log
        self._storage = Storage(spark, self._root)

    def manifest(self) -> dict[int, set[tuple[str, int]]]:
        """Return, by hour since the epoch, name and size of the input files that the stored rows stand for."""
        if not self._storage.names(_MANIFEST):
            return {}
        read = self._spark.read.schema("hour long, inputs array<struct<name string, size long>>")
        rows = read.json(f"{self._root}/{_MANIFEST}").collect()
        return {row.hour: {(file.name, file.size) for file in row.inputs} for row in rows}

    def outdated(self, hours: range) -> dict[int, list[InputFile]]:
        """Return the input files of those hours whose stored rows do not stand for all of them."""
        stored = self.manifest()
        found: dict[int, list[InputFile]] = defaultdict(list)
        for file in self._log.files("requests", hours):
            found[file.hour].append(file)
        return {
            hour: files
            for hour, files in found.items()
            if {(file.name, file.size_bytes) for file in files} - stored.get(hour, set())
        }

    def store(self, hours: dict[int, list[InputFile]]) -> None:
        """Compute and store hours anew. Whoever reads them meanwhile takes them from the log."""
        for hour in hours:
            self._storage.remove(f"{_MANIFEST}/{hour}.json")
        rows = self._log.read_hours("requests", list(hours), INPUT_COLUMNS)
        for name, table in ((_REQUESTS, requests_by_key(rows)), (_LATENCIES, latencies_by_key(rows))):
            by_hour = table.repartition(*PARTITION_COLUMNS)
            by_hour.write.mode("overwrite").partitionBy(*PARTITION_COLUMNS).parquet(f"{self._root}/{name}")
        for hour, files in hours.items():
            inputs = [{"name": file.name, "size": file.size_bytes} for file in files]
            self._storage.write(f"{_MANIFEST}/{hour}.json", json.dumps({"hour": hour, "inputs": inputs}) + "\n")

    def read(self, time_range: TimeRange) -> tuple[DataFrame, DataFrame]:
        """Return the tables `requests` and `latencies` of a range: stored hours, and the rest from the log."""
        outdated = self.outdated(time_range.hours())
        stored = [hour for hour in time_range.whole_hours() if hour in self.manifest() and hour not in outdated]
        rest = self._log.read("requests", time_range, INPUT_COLUMNS)
        if not stored:
            return requests_by_key(rest), latencies_by_key(rest)
        rest = rest.where(~is_one_of(stored))
        return (
            _union(self._stored(_REQUESTS, stored), requests_by_key(rest)),
            _union(self._stored(_LATENCIES, stored), latencies_by_key(rest)),
        )

    def _stored(self, name: str, hours: Sequence[int]) -> DataFrame:
        return self._spark.read.parquet(f"{self._root}/{name}").where(is_one_of(hours))


def _union(*tables: DataFrame) -> DataFrame:
    return reduce(lambda one, other: one.unionByName(other), _with_plain_date(tables))


def _with_plain_date(tables: Iterable[DataFrame]) -> Iterable[DataFrame]:
    # Spark takes the directory date=… for a date where nobody says that it is a string.
    return (table.withColumn("date", F.col("date").cast("string")) for table in tables)
