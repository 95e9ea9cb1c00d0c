"""Reports on a range whose rows retention has deleted while the hourly tables remain.

Results that need only the hourly tables are equal to DuckDB's on all rows ever written, the rest to DuckDB's on the
remaining rows; and missing parts are reported.
"""

import json
import random
from argparse import ArgumentParser
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from rotunda.spark.failures import JobFailed
from rotunda.spark.hourly.rollups import Rollups
from rotunda.spark.job import Context, Job
from rotunda.spark.jobs import capacity, clients, diagnose, errors, groups, latency, quotas, replay, slo, traffic
from rotunda.spark.log.deleted_rows import Deleted
from rotunda.spark.log.request_log import RequestLog
from rotunda.spark.results.output import Run, write_summary
from rotunda.spark.results.result import Result
from rotunda.spark.time_range import TimeRange
from tests.spark.duck import ask, assert_same
from tests.support.feeds import random_seed
from tests.support.generated_log import START, random_requests, write

NOW = datetime(2026, 3, 2, tzinfo=UTC)
RANGE = ("2026-03-01T10:00:00", "2026-03-01T13:00:00")
FIRST_HOUR = 492322
TOTALS = """
SELECT {by}, sum(w)::BIGINT, sum(w * requestBytes)::BIGINT, sum(w * responseBytes)::BIGINT,
       coalesce(sum(w * records) FILTER (requestApiKeyName = 'PRODUCE'), 0)::BIGINT,
       coalesce(sum(w * records) FILTER (requestApiKeyName = 'FETCH'), 0)::BIGINT
FROM r GROUP BY {by}
"""
ERRORS = """
SELECT requestApiKeyName, errorCode, clientId, sum(w)::BIGINT, epoch_us(min(time)), epoch_us(max(time)),
       sum(w) / asked
FROM r JOIN (SELECT clientId AS id, sum(w) AS asked FROM r GROUP BY id) ON clientId IS NOT DISTINCT FROM id
WHERE errorCode <> 0 GROUP BY requestApiKeyName, errorCode, clientId, asked
"""
OBJECTIVES = """
[[objective]]
name = "errors"
error-rate = 0.01
window = "1d"

[[objective]]
name = "quick"
latency = "50ms"
target = 0.9
window = "1d"
"""


class Log:
    """Three hours in two files each: of the first both have been deleted since it was stored, of the second one."""

    def __init__(self, spark: SparkSession, directory: Path) -> None:
        self.spark, self.directory = spark, directory
        self.path, self.kept = directory / "request-log", directory / "kept"
        seed = random_seed()
        print(f"seed {seed}")
        written = []
        for number in range(2):
            rows = random_requests(seed + number, 900, 3)
            written += write(self.path, "requests", rows)
            write(self.kept, "requests", rows)
        self.rollups(self.path).store(range(FIRST_HOUR, FIRST_HOUR + 3))
        for path in written:
            if path.parent.name == "hour=10" or (path.parent.name == "hour=11" and path in written[:3]):
                path.unlink()

    def rollups(self, log: Path) -> Rollups:
        return Rollups(self.spark, str(self.directory / "rollups"), RequestLog(self.spark, str(log)))

    def report(self, job: Job, *words: str, asked: tuple[str, str] = RANGE) -> Result:
        parser = ArgumentParser()
        job.add_options(parser)
        log = RequestLog(self.spark, str(self.path))
        rollups = Rollups(self.spark, str(self.directory / "rollups"), log)
        return job.answer(Context(self.spark, log, rollups, TimeRange.of(*asked, NOW), parser.parse_args(words), NOW))

    def rows(self, log: Path) -> int:
        ((count,),) = ask(log, "requests", RANGE, "SELECT count(*) FROM r")
        return int(count)


@pytest.fixture(scope="module")
def log(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Log:
    return Log(spark, tmp_path_factory.mktemp("deleted"))


def assert_says(log: Log, result: Result, lacking: str) -> None:
    gone = log.rows(log.kept) - log.rows(log.path)
    assert result.coverage.deleted == Deleted((FIRST_HOUR, FIRST_HOUR + 1), gone)
    span = "2026-03-01 10:00 to 2026-03-01 12:00 UTC"
    assert f"retention has deleted {gone:,} rows of {span}: {lacking}" in result.certainty
    assert "complete" not in result.certainty


def test_traffic(log: Log) -> None:
    found = log.report(traffic.JOB)
    assert_says(log, found, "topics and clients are from the hourly tables")
    sums = ("requests", "bytesIn", "bytesOut", "recordsIn", "recordsOut")
    for table, by in (("topics", "topic"), ("clients", "clientId")):
        assert_same(found.tables[table].select(by, *sums), ask(log.kept, "requests", RANGE, TOTALS.format(by=by)))
    left = ask(log.path, "requests", RANGE, TOTALS.format(by="topic, partition"))
    partitions = found.tables["partitions"].select("topic", "partition", *sums)
    assert_same(partitions, [row for row in left if row[1] is not None])


def test_errors(log: Log) -> None:
    found = log.report(errors.JOB)
    assert_says(log, found, "errors are from the hourly tables")
    table = found.tables["errors"].selectExpr(
        "requestApiKeyName", "errorCode", "clientId", "errors", "unix_micros(firstSeen)", "unix_micros(lastSeen)",
        "shareOfClient",
    )  # fmt: skip
    assert_same(table, ask(log.kept, "requests", RANGE, ERRORS))
    # Bursts are known only for the hour whose rows are all there.
    assert all(row.firstSeen.astimezone(UTC).hour == 12 for row in found.tables["bursts"].collect())


def test_slo(log: Log, tmp_path: Path) -> None:
    (tmp_path / "objectives.toml").write_text(OBJECTIVES)
    found = log.report(slo.JOB, f"--objectives={tmp_path / 'objectives.toml'}")
    assert_says(log, found, "errors are counted by whole hours from the hourly tables")
    failing, quick = found.tables["objectives"].collect()
    counted = "SELECT sum(w)::BIGINT, sum(w) FILTER (errorCode <> 0)::BIGINT FROM r"
    assert [(failing.requests, failing.bad)] == ask(log.kept, "requests", RANGE, counted)
    assert failing.measuredShare == pytest.approx(3 / 24)
    assert failing.burn1h is not None
    slow = "totalTimeUs - if(requestApiKeyName = 'FETCH', remoteTimeUs, 0) > 50000"
    counted = f"SELECT sum(w)::BIGINT, sum(w) FILTER ({slow})::BIGINT FROM r"  # noqa: S608
    last = ("2026-03-01T12:00:00", RANGE[1])
    assert [(quick.requests, quick.bad)] == ask(log.kept, "requests", last, counted)
    assert quick.measuredShare == pytest.approx(1 / 24)
    assert quick.budgetLeft == pytest.approx(1 - quick.bad / quick.requests / 0.1 / 24)
    assert (quick.burn1h is not None, quick.burn6h) == (True, None)
    assert sum(row.requests for row in found.tables["burn"].collect()) == failing.requests + quick.requests


def test_an_objective_on_errors_counts_an_hour_in_spans_that_have_the_whole_of_it(log: Log, tmp_path: Path) -> None:
    (tmp_path / "objectives.toml").write_text(OBJECTIVES)
    asked = (RANGE[0], "2026-03-01T12:30:00")
    failing, quick = log.report(
        slo.JOB, f"--objectives={tmp_path / 'objectives.toml'}", asked=asked
    ).tables["objectives"].collect()  # fmt: skip
    counted = "SELECT sum(w) FILTER (errorCode <> 0) / sum(w) / 0.01 FROM r"
    ((rate,),) = ask(log.kept, "requests", ("2026-03-01T12:00:00", asked[1]), counted)
    # The hour before was there half an hour before the range's last one.
    assert failing.burn1h == pytest.approx(rate)
    assert (quick.burn30m is not None, quick.burn1h) == (True, None)


@pytest.mark.parametrize(
    ("job", "words", "lacking"),
    [
        (groups.JOB, (), "group activity of that time is partly missing"),
        (quotas.JOB, ("--produce-bytes-per-second=1000",), "charges of that time are partly missing"),
        (diagnose.JOB, (), "windows in them have only the remaining rows"),
        (capacity.JOB, ("--window=1h",), "windows in them have only the remaining rows"),
        (replay.JOB, (), "the profile has only the remaining rows"),
        (clients.JOB, (), "software and versions are from the hourly tables"),
        (latency.JOB, ("--window=30m",), "windows in them have only the remaining rows"),
    ],
    ids=lambda value: value.name if isinstance(value, Job) else None,
)
def test_what_needs_rows_says_what_it_lacks(log: Log, job: Job, words: tuple[str, ...], lacking: str) -> None:
    found = log.report(job, *words)
    assert_says(log, found, lacking)
    is_from_both = job.name == "clients"
    assert found.coverage.rows == log.rows(log.kept if is_from_both else log.path)


def test_latency_by_the_hour_lacks_nothing_and_says_nothing(log: Log) -> None:
    found = log.report(latency.JOB, "--by=all")
    (row,) = found.tables["latency"].collect()
    assert ask(log.kept, "requests", RANGE, "SELECT sum(w)::BIGINT FROM r") == [(row.requests,)]
    assert "retention" not in found.certainty


def test_a_deleted_hour_that_the_range_has_in_part_is_said(log: Log) -> None:
    found = log.report(latency.JOB, "--by=all", asked=("2026-03-01T11:30:00", RANGE[1]))
    assert found.coverage.deleted == Deleted(edges=(FIRST_HOUR + 1,))
    said = "retention has deleted rows of 2026-03-01 11:00 to 2026-03-01 12:00 UTC, only partly in the range"
    assert said in found.certainty


def test_without_any_rows_traffic_responses_and_quotas_end_with_one_line(log: Log, tmp_path: Path) -> None:
    hour = (RANGE[0], "2026-03-01T11:00:00")
    found = log.report(traffic.JOB, asked=hour)
    sums = ("requests", "bytesIn", "bytesOut", "recordsIn", "recordsOut")
    expected = ask(log.kept, "requests", hour, TOTALS.format(by="topic"))
    assert_same(found.tables["topics"].select("topic", *sums), expected)
    assert found.tables["partitions"].count() == 0
    run = Run("traffic", "?", "rotunda report traffic", TimeRange.of(*hour, NOW), NOW, 1.0)
    write_summary(log.spark, run, found, {}, str(tmp_path))
    summary: dict[str, Any] = json.loads((tmp_path / "summary.json").read_text())
    assert summary["deletedHours"] == [["2026-03-01T10:00:00+00:00", "2026-03-01T11:00:00+00:00"]]
    assert summary["deletedRows"] == summary["rowsRead"] > 0
    assert summary["certainty"] == found.certainty
    with pytest.raises(JobFailed, match="retention has deleted all rows of 2026-03-01 10:00:00 to"):
        log.report(quotas.JOB, "--produce-bytes-per-second=1", asked=hour)


def test_many_deleted_hours_are_one_span_of_text() -> None:
    chance = random.Random(random_seed())
    first = chance.randrange(400_000, 500_000)
    text = Deleted(tuple(first + 2 * number for number in range(10)), 5).sentence("nothing")
    begin = datetime.fromtimestamp(first * 3600, UTC)
    assert text == (
        f"retention has deleted 5 rows of 10 hours within {begin:%Y-%m-%d %H:%M} to "
        f"{begin + timedelta(hours=19):%Y-%m-%d %H:%M} UTC: nothing"
    )
    assert Deleted((1,), 5).sentence("") == Deleted().sentence("nothing") == ""
    assert START.timestamp() // 3600 == FIRST_HOUR
