"""The output of a run: the tables, a chart, and a summary that is written last and names the others.

In `--output`: `<table>/` in the requested format, `chart.html` and `chart.svg`, `summary.json`. A run replaces the
output of the previous one; until its summary is written, readers have the previous summary.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING

from rotunda.spark.file_system import FileSystem
from rotunda.spark.log.deleted_rows import spans_of
from rotunda.spark.results.charts import to_html, to_svg
from rotunda.spark.time_range import HOUR_US, to_datetime

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

    from rotunda.spark.results.result import Result
    from rotunda.spark.time_range import TimeRange

#: Rows of each table that the summary repeats, for showing a result without Spark.
SUMMARY_ROWS = 200
#: Longest text in them. A client's id may have 32 kB.
_LONGEST = 300
SUMMARY_VERSION = 1

_TIMES = {"timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX"}
#: Names of clients and topics may contain quotes, line ends and blanks; readers get them unchanged.
_OPTIONS = {
    "csv": {
        "header": "true",
        "escape": '"',
        "multiLine": "true",
        "ignoreLeadingWhiteSpace": "false",
        "ignoreTrailingWhiteSpace": "false",
        **_TIMES,
    },
    "json": _TIMES,
}


@dataclass(frozen=True, slots=True)
class Run:
    """The run of a summary: the job, its command and range, end time and duration."""

    job: str
    question: str
    command: str
    time_range: TimeRange
    ended: datetime
    took_s: float


def write_tables(result: Result, root: str, file_format: str) -> dict[str, DataFrame]:
    """Write every table of a result and return them as written: shown rows are not computed again."""
    options = _OPTIONS.get(file_format, {})
    for name, table in result.tables.items():
        writer = table.coalesce(1).write.mode("overwrite").options(**options)
        writer.format(file_format).save(f"{root.rstrip('/')}/{name}")
    spark = next(iter(result.tables.values())).sparkSession
    return {
        name: spark.read.schema(table.schema).options(**options).format(file_format).load(f"{root.rstrip('/')}/{name}")
        for name, table in result.tables.items()
    }


def write_summary(
    spark: SparkSession, run: Run, result: Result, tables: dict[str, DataFrame], root: str
) -> dict[str, list[Row]]:
    """Write chart and summary of a run whose tables exist; return the rows that it repeats, by table."""
    file_system = FileSystem(spark, root)
    for name, render in (("chart.html", to_html), ("chart.svg", to_svg)):
        if result.chart is None:
            file_system.remove(name)
        else:
            file_system.write(name, render(result.chart))
    rows = {name: table.take(SUMMARY_ROWS) for name, table in tables.items()}
    file_system.write("summary.json", json.dumps(_summary(run, result, tables, rows), default=plain, indent=1) + "\n")
    return rows


def _summary(run: Run, result: Result, tables: dict[str, DataFrame], rows: dict[str, list[Row]]) -> dict[str, object]:
    return {
        "version": SUMMARY_VERSION,
        "job": run.job,
        "question": run.question,
        "command": run.command,
        "from": run.time_range.start,
        "to": run.time_range.end,
        "ended": run.ended,
        "tookS": round(run.took_s, 3),
        "headline": result.headline,
        "certainty": result.certainty,
        "rowsRead": result.coverage.rows,
        "requests": result.coverage.requests,
        "gapRows": result.coverage.gap_rows,
        "deletedRows": result.coverage.deleted.rows,
        "deletedHours": [
            [to_datetime(hour * HOUR_US) for hour in span]
            for span in spans_of(sorted({*result.coverage.deleted.hours, *result.coverage.deleted.edges}))
        ],
        "inputFiles": result.coverage.files,
        "inputBytes": result.coverage.file_bytes,
        "facts": result.facts,
        "chart": None if result.chart is None else result.chart.title,
        "tables": {
            name: {
                "columns": table.columns,
                "rows": [[_cut(value) for value in row] for row in rows[name]],
                "files": sorted(table.inputFiles()),
            }
            for name, table in tables.items()
        },
    }


def _cut(value: object) -> object:
    return f"{value[: _LONGEST - 1]}…" if isinstance(value, str) and len(value) > _LONGEST else value


def plain(value: object) -> object:
    """Return a value as a JSON type: times in UTC, decimals as floats."""
    if isinstance(value, datetime):
        # Spark returns times to the driver in the machine's time zone, without a zone.
        return value.astimezone(UTC).isoformat()
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Decimal):
        return float(value)
    raise TypeError(f"{type(value)} does not go into a summary")
