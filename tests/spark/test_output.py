"""The output of a run, as the status page reads it."""

from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace

from pyspark.sql import SparkSession

from rotunda.spark.log.request_log import Coverage
from rotunda.spark.results.charts import Chart, Series
from rotunda.spark.results.output import SUMMARY_ROWS, Run, write_summary, write_tables
from rotunda.spark.results.result import Result
from rotunda.spark.time_range import TimeRange
from rotunda.web.reports.reports import Reports
from rotunda.web.sources import JobFacts

NOW = datetime(2026, 3, 2, tzinfo=UTC)


def test_the_page_reads_what_a_run_left(spark: SparkSession, tmp_path: Path) -> None:
    """Issue 11: names are as long as clients like, and a name that is no text is none on the page either."""
    rows = [(f"{number} {'x' * 32_000}", number, NOW) for number in range(SUMMARY_ROWS + 1)] + [(None, None, None)]
    table = spark.createDataFrame(rows, "clientId string, requests long, time timestamp").orderBy("requests")
    chart = Chart("Requests", "bars", ["a"], [Series("requests", [1.0])], "requests")
    coverage = Coverage(rows=2, requests=9, gap_rows=0, lost_rows=0)
    result = Result("One thing", {"clients": table}, coverage, chart, {"gini": 0.5, "since": "then"})
    root = str(tmp_path / "clients")
    run = Run("clients", "Who?", "rotunda report clients", TimeRange.of("24h", "now", NOW), NOW, 1.25)
    write_summary(spark, run, result, write_tables(result, root, "parquet"), root)
    facts = SimpleNamespace(data_dir="/data")
    reports = Reports(SimpleNamespace(reports=tmp_path, jobs={"clients": JobFacts("Who?", "")}, facts=facts))  # type: ignore[arg-type]
    found = reports.report("clients")
    assert found is not None
    brief = found.brief
    assert (brief.state, brief.reason, brief.headline, brief.took_s) == ("there", "", "One thing", 1.25)
    assert (brief.ended_ms, brief.to_ms) == (NOW.timestamp() * 1000, NOW.timestamp() * 1000)
    assert brief.certainty == coverage.certainty
    assert found.facts == {"gini": 0.5, "since": "then"}
    assert found.tables[0].columns == ["clientId", "requests", "time"]
    assert len(found.tables[0].rows) == SUMMARY_ROWS
    assert found.tables[0].rows[0][:2] == [None, None]
    assert str(found.tables[0].rows[1][0]).endswith("…")
    assert found.tables[0].rows[1][2] == NOW.isoformat()
    assert "aria-label" in (reports.chart("clients") or "")
