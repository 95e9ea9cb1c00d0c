"""The diagnosis by window: connection set-up, network, request queue, handler, log, disk, cpu, client, quota, consumer.

With the evidence, the certainty, and the setting to change in which direction; healthy without a bottleneck.
"""

from __future__ import annotations

import argparse
import sys

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the field's name for it

from rotunda.broker.text_table import counted
from rotunda.spark.analysis.bottlenecks import HEALTHY, verdicts
from rotunda.spark.analysis.load_features import (
    CONNECTION_COLUMNS,
    GAP_COLUMNS,
    GROUP_COLUMNS,
    REQUEST_COLUMNS,
    ROLE_COLUMNS,
    features,
)
from rotunda.spark.bounded import rows_of
from rotunda.spark.job import Context, Job, main
from rotunda.spark.options import length_us
from rotunda.spark.results.result import Result

#: Columns to read of each dataset.
COLUMNS = {
    "requests": REQUEST_COLUMNS,
    "roles": ROLE_COLUMNS,
    "connections": CONNECTION_COLUMNS,
    "gaps": GAP_COLUMNS,
    "groups": GROUP_COLUMNS,
}


def transform(features: DataFrame) -> DataFrame:
    """Return one row for each window, in order: its verdict, evidence, certainty and advice."""
    return verdicts(features)


def headline(table: DataFrame) -> str:
    """Return a sentence with the most frequent bottleneck, and its frequency."""
    by_rule = table.groupBy("bottleneck", "rule").agg(
        F.count("*").alias("windows"), F.max_by("evidence", "certainty").alias("evidence")
    )
    rows = rows_of(by_rule.orderBy(F.desc("windows"), "rule"))
    everything = sum(row.windows for row in rows)
    ill = [row for row in rows if row.bottleneck != HEALTHY]
    if not ill:
        return f"Healthy in {_of_windows(everything, everything)}"
    return f"{ill[0].rule.capitalize()} in {_of_windows(ill[0].windows, everything)}: {ill[0].evidence}"


def _of_windows(some: int, everything: int) -> str:
    if everything == 1:
        return "the one window"
    windows = counted(everything, "window")
    return f"all {windows}" if some == everything else f"{some:,} of {windows}"


#: Limits of the result where rows have been deleted.
_LACKING = "windows in them have only the remaining rows"


def answer(context: Context) -> Result:
    """Return the verdicts of a range, and the features they are based on."""
    window_us = context.options.window
    coverage = context.rollups.coverage_of_rows(context.time_range)
    datasets = {name: context.log.read(name, context.time_range, columns) for name, columns in COLUMNS.items()}
    found = features(datasets, window_us, context.time_range.end_us).persist()
    table = transform(found).persist()
    facts = {"windowUs": window_us, "hasRoles": context.log.has("roles")}
    return Result(
        headline(table),
        {"diagnose": table, "features": found.orderBy("window")},
        coverage,
        facts=facts,
        lacking=_LACKING,
    )


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--window", type=length_us, default="1m", metavar="TIME", help="length of a window, like 30s or 10m (1m)"
    )


JOB = Job("diagnose", __doc__ or "", answer, _add_options)

if __name__ == "__main__":
    sys.exit(main(JOB))
