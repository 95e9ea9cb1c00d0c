"""The hourly tables: the requests of an hour, aggregated by every column that a report groups them by.

`requests` has a row for each key in an hour with counts and sums; `latencies` has, for the same keys by their number,
the requests in each bucket of each phase. Both are partitioned by date and hour. Sums and counts honour sampleWeight.
The manifest of an hour (`stored_hours`) names the input files that its rows include, and readers add files written
since.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from uuid import uuid4

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the field's name for it
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType, TimestampType

from rotunda.spark.bounded import rows_of
from rotunda.spark.failures import JobFailed
from rotunda.spark.hourly.histogram import packed, unpacked, with_buckets
from rotunda.spark.hourly.lock import exclusive
from rotunda.spark.hourly.stored_hours import Change, StoredHour, StoredHours, change_of, directory_of
from rotunda.spark.log.deleted_rows import Deleted
from rotunda.spark.log.request_log import (
    NOTHING,
    Coverage,
    InputFile,
    RequestLog,
    coverage_by_hour,
    coverage_of,
    coverage_of_files,
    hour_of,
)
from rotunda.spark.log.schema import PARTITION_COLUMNS, SCHEMAS, no_rows
from rotunda.spark.session import NARROW_GROUPS, configured
from rotunda.spark.time_range import TimeRange

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

#: Columns that both tables are computed from.
INPUT_COLUMNS = (
    *PARTITION_COLUMNS,
    "time",
    *KEYS,
    *(name for name in _SUMS if name not in PHASES),
    *PHASES,
    "slow",
    "sampleWeight",
)
GAP_COLUMNS = (*PARTITION_COLUMNS, "rows")

_REQUESTS, _LATENCIES = "requests", "latencies"
_COUNTS = ("requests", "rows", "slowRequests", *_SUMS)
#: Sizes of the phase's and the bucket's place in a packed histogram key, each a power of two.
_PHASE_PLACES, _BUCKET_PLACES = 8, 2048
#: The bits of a key's number that rows are sorted by: one step of a radix sort.
_SORTED_BITS = 0xFF
_HOUR = [StructField("date", StringType()), StructField("hour", IntegerType())]

#: Schema by table, as it is stored and read.
TABLES = {
    _REQUESTS: StructType(
        [
            *_HOUR,
            *(SCHEMAS["requests"][name] for name in KEYS),
            *(StructField(name, LongType()) for name in _COUNTS),
            StructField("firstTime", TimestampType()),
            StructField("lastTime", TimestampType()),
            StructField("key", LongType()),
        ]
    ),
    _LATENCIES: StructType(
        [
            *_HOUR,
            StructField("key", LongType()),
            StructField("phase", StringType()),
            StructField("bucket", IntegerType()),
            StructField("requests", LongType()),
        ]
    ),
}


def requests_by_key(rows: DataFrame) -> DataFrame:
    """Return the table `requests`: one row for each key in an hour; `key` is its number, used by `latencies`."""
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
    """Return the table `latencies`: for each key in an hour and each phase, the number of requests by bucket.

    Hour, phase and bucket are one number for the grouping: Spark hashes and compares two longs for each phase of a row.
    Rows of the same key are processed one after the other, so that their counters stay in the CPU cache; that sort is
    cheap because a row has all its buckets in one number, and uses only some bits of the key.
    """
    hour = F.unix_date(F.col("date").cast("date")).cast("long") * 24 + F.col("hour")
    by_row = with_buckets(rows.select(_key().alias("key"), "sampleWeight", hour.alias("hour"), *PHASES), PHASES)
    by_row = by_row.select("key", "sampleWeight", "hour", packed(PHASES).alias("buckets"))
    by_row = by_row.sortWithinPartitions(F.col("key").bitwiseAND(F.lit(_SORTED_BITS)))
    placed = (
        ((F.col("hour") * _PHASE_PLACES + number) * _BUCKET_PLACES + bucket).alias(phase)
        for number, (phase, bucket) in enumerate(zip(PHASES, unpacked("buckets", len(PHASES)), strict=True))
    )
    # Unpivoting is a loop in the code that Spark generates; an array to explode would be made for every row.
    by_phase = by_row.select("key", "sampleWeight", *placed).unpivot(["key", "sampleWeight"], [*PHASES], "_", "place")
    counted = by_phase.groupBy("key", "place").agg(F.sum("sampleWeight").alias("requests"))
    number = F.floor(F.col("place") / _BUCKET_PLACES)
    hour = F.floor(number / _PHASE_PLACES)
    columns = {
        "date": F.date_from_unix_date(F.floor(hour / 24).cast("int")).cast("string"),
        "hour": F.pmod(hour, F.lit(24)).cast("int"),
        "key": F.col("key"),
        "phase": F.element_at(F.array(*(F.lit(name) for name in PHASES)), (number % _PHASE_PLACES + 1).cast("int")),
        "bucket": (F.col("place") % _BUCKET_PLACES).cast("int"),
        "requests": F.col("requests"),
    }
    return counted.select(*(column.alias(name) for name, column in columns.items()))


def merged_requests(tables: DataFrame) -> DataFrame:
    """Return rows of the table `requests` with rows of the same key and hour merged."""
    times = (F.min("firstTime").alias("firstTime"), F.max("lastTime").alias("lastTime"))
    sums = (F.sum(name).alias(name) for name in _COUNTS)
    return tables.groupBy(*PARTITION_COLUMNS, *KEYS, "key").agg(*sums, *times).select(*TABLES[_REQUESTS].names)


def merged_latencies(tables: DataFrame) -> DataFrame:
    """Return rows of the table `latencies` with rows of the same bucket merged."""
    buckets = tables.groupBy(*PARTITION_COLUMNS, "key", "phase", "bucket")
    return buckets.agg(F.sum("requests").alias("requests")).select(*TABLES[_LATENCIES].names)


def _key() -> Column:
    return F.xxhash64(*KEYS)


#: By table: the settings of the query that writes it, where the session's are not the best.
_WRITTEN_WITH = {_LATENCIES: NARROW_GROUPS}
#: By table: the function that makes it from rows of the log, and the one that merges its rows.
_MADE_BY = {_REQUESTS: (requests_by_key, merged_requests), _LATENCIES: (latencies_by_key, merged_latencies)}


@dataclass(frozen=True, slots=True)
class _Compared:
    """The stored hours, the present files by dataset, and the changes between them."""

    stored: dict[int, StoredHour]
    present: dict[str, list[InputFile]]
    changes: dict[int, Change]


@dataclass(frozen=True, slots=True)
class _Parts:
    """Sources of a range's rows: stored hours, files later than these (`late`), and hours of the log.

    `hours` are those of the log by dataset; `files` are all present files. `incomplete` are stored hours of which the
    log no longer has all files.
    """

    stored: list[StoredHour]
    late: list[Change]
    hours: dict[str, list[int]]
    files: dict[str, list[InputFile]]
    incomplete: list[StoredHour]


class Rollups:
    """The stored tables below `root`, and the log for the hours they lack."""

    def __init__(self, spark: SparkSession, root: str, log: RequestLog) -> None:
        self._spark = spark
        self._root = root.rstrip("/")
        self._log = log
        self._hours = StoredHours(spark, self._root, tuple(TABLES))
        #: Of a log that is listed once.
        self._compared: dict[range, _Compared] = {}

    def outdated(self, hours: range) -> dict[int, list[InputFile]]:
        """Return, by hour, the input files that the stored rows do not include."""
        return {hour: [*change.requests, *change.gaps] for hour, change in self._compare(hours).changes.items()}

    def late(self, hours: range) -> dict[str, list[InputFile]]:
        """Return, by dataset, the files added to stored hours since they were stored."""
        changes = [change for change in self._compare(hours).changes.values() if change.before]
        return {name: [file for change in changes for file in getattr(change, name)] for name in ("requests", "gaps")}

    def store(self, hours: Iterable[int]) -> dict[int, list[InputFile]]:
        """Update the stored rows of hours and return, by hour, the files added.

        One run does this at a time; concurrent readers see the rows stored before. Raises JobFailed when another run
        holds the lock.
        """
        wanted = set(hours)
        with exclusive(self._hours.file_system, "rollup"):
            self._hours.clean_up()
            compared = self._compare(range(min(wanted, default=0), max(wanted, default=0) + 1))
            changes = {hour: change for hour, change in compared.changes.items() if hour in wanted}
            if changes:
                self._hours.begin(changes)
                self._hours.write(self._write(list(changes.values())))
                self._hours.clean_up()
        return {hour: [*change.requests, *change.gaps] for hour, change in changes.items()}

    def read(self, time_range: TimeRange) -> tuple[DataFrame, DataFrame]:
        """Return the tables `requests` and `latencies` of a range: stored hours, and the others from the log."""
        parts = self._parts(time_range)
        rest = None
        if parts.hours[_REQUESTS]:
            rest = self._log.read_hours("requests", parts.hours["requests"], INPUT_COLUMNS, time_range)
        return (
            self._table(_REQUESTS, parts, None if rest is None else requests_by_key(rest)),
            self._table(_LATENCIES, parts, None if rest is None else latencies_by_key(rest)),
        )

    def read_apart(self, time_range: TimeRange, columns: Sequence[str]) -> tuple[DataFrame, DataFrame, list[DataFrame]]:
        """Return the stored parts of both tables for a range, and columns of the log's rows that they do not include.

        A caller that adds up both need not group the rows by all keys of the tables.
        """
        parts = self._parts(time_range)
        stored = [*parts.stored, *(change.before for change in parts.late if change.before)]
        late = [file for change in parts.late for file in change.requests]
        rows = [self._log.read_files("requests", late, columns)] if late else []
        if parts.hours[_REQUESTS]:
            rows.append(self._log.read_hours("requests", parts.hours["requests"], columns, time_range))
        return self._stored(_REQUESTS, stored), self._stored(_LATENCIES, stored), rows

    def coverage(self, time_range: TimeRange) -> Coverage:
        """Return the coverage of log and stored rows for a range. Raises JobFailed when it is empty."""
        parts = self._parts(time_range)
        stored = [*parts.stored, *(change.before for change in parts.late if change.before)]
        counted = sum(
            (each.coverage for each in stored),
            coverage_of_files([file for of_it in parts.files.values() for file in of_it]),
        )
        for dataset, column in (("requests", "sampleWeight"), ("gaps", "rows")):
            late = [file for change in parts.late for file in getattr(change, dataset)]
            frames = [self._log.read_files(dataset, late, [column])] if late else []
            if parts.hours[dataset]:
                frames.append(self._log.read_hours(dataset, parts.hours[dataset], [column], time_range))
            counted += sum((coverage_of(dataset, frame) for frame in frames), NOTHING)
        counted = self._log.checked(counted, time_range)
        return counted + Coverage(deleted=self._deleted(parts, time_range))

    def coverage_of_rows(self, time_range: TimeRange) -> Coverage:
        """Return the log's own coverage of a range, for reports that need rows. Raises JobFailed when it is empty."""
        deleted = self._deleted(self._parts(time_range), time_range)
        try:
            found = self._log.coverage(time_range)
        except JobFailed:
            if not deleted.hours:
                raise
            message = f"retention has deleted all rows of {time_range} that were rolled up"
            raise JobFailed(f"{message}; the hourly tables have them, which latency, traffic and slo read") from None
        return found + Coverage(deleted=deleted)

    def _deleted(self, parts: _Parts, time_range: TimeRange) -> Deleted:
        """Return the rows of stored hours that retention has deleted."""
        hours = [each for each in parts.incomplete if each.hour in time_range.whole_hours()]
        stood_for = {each.hour: each.inputs for each in hours}
        left = [
            file for file in parts.files["requests"] if file.hour in stood_for and file.parts <= stood_for[file.hour]
        ]
        rows = coverage_of("requests", self._log.read_files("requests", left, ["sampleWeight"])).rows if left else 0
        edges = tuple(each.hour for each in parts.incomplete if each not in hours)
        return Deleted(tuple(stood_for), sum(each.coverage.rows for each in hours) - rows, edges)

    def _parts(self, time_range: TimeRange) -> _Parts:
        compared = self._compare(time_range.hours())
        anew = {hour for hour, change in compared.changes.items() if change.before is None}
        taken = {hour for hour in time_range.whole_hours() if hour in compared.stored and hour not in anew}
        files = compared.present
        by_hour = _by_hour(files["requests"])
        return _Parts(
            [each for hour, each in sorted(compared.stored.items()) if hour in taken - compared.changes.keys()],
            [change for hour, change in sorted(compared.changes.items()) if hour in taken],
            {dataset: sorted({file.hour for file in of_it} - taken) for dataset, of_it in files.items()},
            files,
            [each for hour, each in sorted(compared.stored.items()) if not each.is_whole(by_hour.get(hour, []))],
        )

    def _compare(self, hours: range) -> _Compared:
        if not self._log.is_listed_once:
            return self._look(hours)
        if hours not in self._compared:
            self._compared[hours] = self._look(hours)
        return self._compared[hours]

    def _look(self, hours: range) -> _Compared:
        stored = self._hours.read(hours)
        present = {dataset: self._log.files(dataset, hours) for dataset in ("requests", "gaps")}
        requests, gaps = (_by_hour(files) for files in present.values())
        changes = {}
        for hour in sorted({*requests, *gaps}):
            change = change_of(hour, stored.get(hour), requests.get(hour, []), gaps.get(hour, []))
            if change is not None:
                changes[hour] = change
        return _Compared(stored, present, changes)

    def _table(self, name: str, parts: _Parts, rest: DataFrame | None) -> DataFrame:
        frames = [self._stored(name, parts.stored)] if parts.stored or rest is None else []
        if parts.late:
            frames.append(self._with_late(name, parts.late))
        if rest is not None:
            frames.append(rest)
        return reduce(DataFrame.unionByName, frames)

    def _stored(self, name: str, hours: Sequence[StoredHour]) -> DataFrame:
        root = f"{self._root}/{name}"
        paths = [f"{root}/{directory_of(each.hour)}/run={each.run}" for each in hours if each.coverage.rows]
        if not paths:
            return no_rows(self._spark, TABLES[name])
        rows = self._spark.read.schema(TABLES[name]).option("basePath", root).parquet(*paths)
        return rows.select(*TABLES[name].names)

    def _with_late(self, name: str, changes: Sequence[Change]) -> DataFrame:
        """Return a table of hours from their stored rows and the files added since."""
        stored = self._stored(name, [change.before for change in changes if change.before])
        came = self._came(name, changes)
        _, merged = _MADE_BY[name]
        return stored if came is None else merged(stored.unionByName(came))

    def _came(self, name: str, changes: Sequence[Change]) -> DataFrame | None:
        files = [file for change in changes for file in change.requests]
        by_key, _ = _MADE_BY[name]
        return by_key(self._log.read_files("requests", files, INPUT_COLUMNS)) if files else None

    def _write(self, changes: Sequence[Change]) -> list[StoredHour]:
        """Write the rows of hours and return their manifests. Reads exactly the files that the manifests name."""
        run = uuid4().hex
        late = [change for change in changes if change.before and change.requests]
        anew = [change for change in changes if change.before is None and change.requests]
        for name in TABLES if late or anew else ():
            came = [self._came(name, anew), self._with_late(name, late) if late else None]
            table = reduce(DataFrame.unionByName, [each for each in came if each is not None])
            by_hour = table.withColumn("run", F.lit(run)).repartition(*PARTITION_COLUMNS)
            with configured(self._spark, _WRITTEN_WITH.get(name, {})):
                by_hour.write.mode("overwrite").partitionBy(*PARTITION_COLUMNS, "run").parquet(f"{self._root}/{name}")
        counted = self._counted([change.hour for change in (*late, *anew)], run)
        gap_files = [file for change in changes for file in change.gaps]
        gaps = coverage_by_hour("gaps", self._log.read_files("gaps", gap_files, GAP_COLUMNS)) if gap_files else {}
        return [_manifest(change, run, counted, gaps) for change in changes]

    def _counted(self, hours: Iterable[int], run: str) -> dict[int, Coverage]:
        """Return the coverage of the rows that a run wrote, by hour."""
        file_system = self._hours.file_system
        written = [hour for hour in hours if file_system.exists(f"{_REQUESTS}/{directory_of(hour)}/run={run}")]
        table = self._stored(_REQUESTS, [StoredHour(hour, run, coverage=Coverage(rows=1)) for hour in written])
        sums = table.groupBy(*PARTITION_COLUMNS).agg(F.sum("rows").alias("rows"), F.sum("requests").alias("requests"))
        return {hour_of(row.date, row.hour): Coverage(row.rows, row.requests) for row in rows_of(sums)}


def _manifest(change: Change, run: str, counted: dict[int, Coverage], gaps: dict[int, Coverage]) -> StoredHour:
    """Return the manifest of an hour whose rows were written by a run, if it had new files."""
    before = change.before or StoredHour(change.hour, run)
    requests = counted.get(change.hour, NOTHING) if change.requests else before.coverage
    lost = before.coverage + gaps.get(change.hour, NOTHING)
    return StoredHour(
        change.hour,
        run if change.requests else before.run,
        before.inputs.union(*(file.parts for file in change.requests)),
        before.gap_inputs.union(*(file.parts for file in change.gaps)),
        Coverage(requests.rows, requests.requests, lost.gap_rows, lost.lost_rows),
    )


def _by_hour(files: Iterable[InputFile]) -> dict[int, list[InputFile]]:
    found: dict[int, list[InputFile]] = defaultdict(list)
    for file in files:
        found[file.hour].append(file)
    return found
