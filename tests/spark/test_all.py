"""Reports that share a session and a list of files: `rotunda report all`, and a log that grows while it is read."""

import json
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from pathlib import Path
from unittest.mock import Mock

import pytest
from pyspark.sql import SparkSession

from rotunda.spark import job
from rotunda.spark.hourly.rollups import Rollups
from rotunda.spark.jobs import ALL, JOBS, OF_ALL, errors, slo
from rotunda.spark.log.request_log import RequestLog
from rotunda.spark.time_range import TimeRange, to_us
from tests.support.generated_log import request, write


def test_all_reports_run_in_one_session_up_to_the_end_of_the_log(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ALL not in JOBS
    assert {"latency", "slo", "quotas"} <= {*OF_ALL}
    session = Mock(return_value=nullcontext(spark))
    monkeypatch.setattr(job, "session", session)
    write(tmp_path / "request-log", "requests", [request(datetime.now(UTC) - timedelta(seconds=90))])
    where = ["--input", str(tmp_path / "request-log"), "--output", str(tmp_path / "reports")]
    assert job.run_all([errors.JOB, slo.JOB], where) == 0
    session.assert_called_once_with("all", None, is_brief=False)
    printed = capsys.readouterr().out
    assert [line for line in printed.splitlines() if line.startswith("== ")] == ["== errors", "== slo"]
    assert "; the log on disk ends at " in printed
    summary = json.loads((tmp_path / "reports" / "slo" / "summary.json").read_text())
    assert summary["headline"].startswith("3 objectives are kept")
    assert " s before now" in summary["certainty"]


def test_everything_of_a_run_reads_the_files_that_were_there_first(spark: SparkSession, tmp_path: Path) -> None:
    now = datetime.now(UTC)
    time_range = TimeRange(to_us(now - timedelta(hours=1)), to_us(now))
    write(tmp_path / "request-log", "requests", [request(now - timedelta(seconds=90))])
    log = RequestLog(spark, str(tmp_path / "request-log"), is_listed_once=True)
    rollups = Rollups(spark, str(tmp_path / "rollups"), log)
    assert rollups.coverage(time_range).requests == 1
    write(tmp_path / "request-log", "requests", [request(now - timedelta(seconds=60))])
    assert log.read("requests", time_range, ["time"]).count() == 1
    _, _, rest = rollups.read_apart(time_range, ["time"])
    assert sum(rows.count() for rows in rest) == 1
    assert rollups.coverage_of_rows(time_range).requests == 1
