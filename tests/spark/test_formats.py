"""The output of a run, read back: every format, for all names of clients."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from rotunda.spark.job import FORMATS
from rotunda.spark.log.request_log import Coverage
from rotunda.spark.results.output import Run, write_summary, write_tables
from rotunda.spark.results.result import Result
from rotunda.spark.time_range import TimeRange

HOSTILE = [
    "plain",
    None,
    "",
    " blanks ",
    'a "quoted", one',
    "two\nlines",
    "back\\slash\\",
    "null",
    "ünï",
    "'; --",
    "\t",
]
NOW = datetime(2026, 3, 2, 12, 30, 15, 123456, UTC)


@pytest.mark.parametrize("file_format", FORMATS)
def test_tables_are_read_back_as_they_were(spark: SparkSession, tmp_path: Path, file_format: str) -> None:
    # CSV has only the empty text for a missing value.
    names = [name for name in HOSTILE if name != "" or file_format != "csv"]
    rows = [(name, number, number / 8, NOW, number % 2 == 0) for number, name in enumerate(names)]
    table = spark.createDataFrame(rows, "clientId string, requests long, share double, time timestamp, slow boolean")
    result = Result("a headline", {"clients": table}, Coverage(10, 70, 1, 5, 3, 4096))
    written = write_tables(result, str(tmp_path / "out"), file_format)
    assert sorted(written["clients"].collect(), key=lambda row: row.requests) == table.collect()
    run = Run("clients", "Who?", "rotunda report clients", TimeRange.of("1h", "now", NOW), NOW, 1.5)
    write_summary(spark, run, result, written, str(tmp_path / "out"))
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    counts = {name: summary[name] for name in ("rowsRead", "requests", "gapRows", "inputFiles", "inputBytes")}
    assert counts == {"rowsRead": 10, "requests": 70, "gapRows": 1, "inputFiles": 3, "inputBytes": 4096}
    assert [row[0] for row in sorted(summary["tables"]["clients"]["rows"], key=lambda row: row[1])] == names
    (name,) = summary["tables"]["clients"]["files"]
    assert name.endswith(f".{file_format}")
    assert summary["certainty"] == ("sampled: 10 rows for 70 requests (14%); 1 gap: up to 5 rows known to be missing")
