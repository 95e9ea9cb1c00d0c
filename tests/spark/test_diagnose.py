"""The diagnosis in planted conditions, and its features against the same numbers worked out by DuckDB."""

import random
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pytest
from pyspark.sql import DataFrame, SparkSession

from rotunda.spark.analysis.bottlenecks import HEALTHY
from rotunda.spark.analysis.load_features import CONNECTION_COLUMNS, REQUEST_COLUMNS, ROLE_COLUMNS, features
from rotunda.spark.jobs.diagnose import COLUMNS, headline, transform
from rotunda.spark.log.request_log import RequestLog
from rotunda.spark.time_range import TimeRange, to_us
from tests.spark.questions import FEATURES
from tests.support.feeds import random_seed
from tests.support.generated_log import LATER_COLUMNS, START, random_requests, write
from tests.support.planted_conditions import PLANTED, WINDOW_S, plant

WINDOW_US = WINDOW_S * 1_000_000
RANGE = TimeRange(to_us(START), to_us(START + timedelta(hours=3)))


def planted_log(root: Path, seed: int, *, has_roles: bool = True) -> dict[datetime, str]:
    """Write every condition in a minute of its own, in random order, and return their names by window.

    Without roles it is the log of a broker before the dataset and its columns existed.
    """
    names = random.Random(seed).sample(sorted(PLANTED), len(PLANTED))
    places = {START + timedelta(seconds=number * WINDOW_S): name for number, name in enumerate(names)}
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in COLUMNS}
    for number, (start, name) in enumerate(places.items()):
        for dataset, rows in plant(PLANTED[name], start, seed + number).items():
            found[dataset] += rows
    for dataset in found if has_roles else ("requests", "connections"):
        write(root, dataset, found[dataset], without=() if has_roles or dataset != "requests" else LATER_COLUMNS)
    return places


def window_features(spark: SparkSession, root: Path) -> DataFrame:
    """Return the features of a whole log."""
    log = RequestLog(spark, str(root))
    datasets = {name: log.read(name, RANGE, columns) for name, columns in COLUMNS.items()}
    return features(datasets, WINDOW_US, RANGE.end_us)


@pytest.mark.parametrize("has_roles", [True, False], ids=["with roles", "without roles"])
def test_every_planted_condition_is_found_and_none_in_a_healthy_load(
    spark: SparkSession, tmp_path: Path, has_roles: bool
) -> None:
    seed = random_seed()
    print(f"seed {seed}")
    names = planted_log(tmp_path, seed, has_roles=has_roles)
    found = {names[row.window.astimezone(UTC)]: row for row in transform(window_features(spark, tmp_path)).collect()}
    assert found.keys() == PLANTED.keys()
    for name, planted in PLANTED.items():
        row = found[name]
        if has_roles or planted.without_roles:
            assert (row.bottleneck, row.rule) == (planted.bottleneck, planted.rule), (name, row)
        else:
            assert row.bottleneck in (HEALTHY, "handler", planted.bottleneck), (name, row)
        assert 0 < row.certainty <= 1
        assert row.certainty >= 0.7 or not has_roles, (name, row)
        assert (row.advice is None) == (row.bottleneck == HEALTHY)


CHECKED = (
    "window", "requests", "queueMeanUs", "produceLocalMeanUs", "queueShare", "brokerUs", "sendShare", "slowHandler",
    "hotPartitionShare", "slowClientSendShare", "processorBusyMax", "handlerBusyMax", "cpuUse", "runQueueMax",
    "mutesRingFull", "slowHandlerCommitShare", "slowHandlerCommitMeanUs", "opened",
)  # fmt: skip


def test_features_are_those_of_an_independent_computation(spark: SparkSession, tmp_path: Path) -> None:
    seed = random_seed()
    print(f"seed {seed}")
    planted_log(tmp_path, seed)
    later = timedelta(hours=1)
    write(tmp_path, "requests", [row | {"time": row["time"] + later} for row in random_requests(seed, 1500, hours=1)])
    gap = {"time": START, "dataset": "requests", "source": "processor", "cause": "ring_full", "rows": 5}
    write(tmp_path, "gaps", [gap])
    found = window_features(spark, tmp_path).orderBy("window").select(*CHECKED, "lostRows").collect()
    expected = duckdb.sql(FEATURES.format(log=tmp_path, window_s=WINDOW_S)).fetchall()
    assert len(found) == len(expected) >= len(PLANTED)
    for row, numbers in zip(found, expected, strict=True):
        for name, value in zip(CHECKED, numbers, strict=True):
            is_number = isinstance(value, float | int)
            assert row[name] == (pytest.approx(value, rel=1e-9) if is_number else value), (name, row)
    assert [row.lostRows for row in found if row.lostRows] == [5]


def test_gaps_and_samples_make_a_verdict_less_sure(spark: SparkSession, tmp_path: Path) -> None:
    """The same trouble three times: as it is, with as many rows lost as there are, and with one in ten recorded."""
    planted, seed = PLANTED["slow log"], random_seed()
    print(f"seed {seed}")
    starts = [START + timedelta(seconds=number * WINDOW_S) for number in range(3)]
    whole, torn, sampled = (plant(planted, start, seed) for start in starts)
    thin = [row | {"sampleWeight": 10} for row in sampled["requests"][::10]]
    write(tmp_path, "requests", [*whole["requests"], *torn["requests"], *thin])
    write(tmp_path, "roles", [*whole["roles"], *torn["roles"], *sampled["roles"]])
    gap = {"time": starts[1], "dataset": "requests", "source": "processor", "cause": "processor_killed"}
    write(tmp_path, "gaps", [gap | {"rows": len(torn["requests"])}])
    found = transform(window_features(spark, tmp_path)).collect()
    assert [(row.rule, row.requests) for row in found] == [("slow log", planted.requests)] * 3
    sure, half, less = (row.certainty for row in found)
    assert half == pytest.approx(sure / 2, abs=0.01)
    assert half < less < sure


def test_only_what_is_needed_is_read(spark: SparkSession, tmp_path: Path) -> None:
    for dataset, rows in plant(PLANTED["connection storm"], START, 1).items():
        write(tmp_path, dataset, rows)
    spark.conf.set("spark.sql.maxMetadataStringLength", "10000")
    plan = window_features(spark, tmp_path)._jdf.queryExecution().toString()
    read = {frozenset(re.findall(r"(\w+):", schema)) for schema in re.findall("ReadSchema: struct<([^>]*)>", plan)}
    assert all(any(columns <= set(wanted) for wanted in COLUMNS.values()) for columns in read), read
    assert read >= {frozenset(REQUEST_COLUMNS), frozenset(ROLE_COLUMNS), frozenset(CONNECTION_COLUMNS)}
    assert "PartitionFilters: [isnotnull(date" in plan or "PartitionFilters: [((date" in plan


def test_the_headline_names_what_is_wrong_most_often(spark: SparkSession) -> None:
    schema = "bottleneck string, rule string, certainty double, evidence string"
    healthy = (HEALTHY, None, 0.9, "all is well")
    ill = [("log", "slow log", 0.5, "so it seems"), ("log", "slow log", 0.9, "it is"), ("cpu", "no cpu", 0.9, "busy")]
    assert headline(spark.createDataFrame([healthy] * 3, schema)) == "Healthy in all 3 windows"
    assert headline(spark.createDataFrame([healthy], schema)) == "Healthy in the one window"
    assert headline(spark.createDataFrame(ill[2:], schema)) == "No cpu in the one window: busy"
    assert headline(spark.createDataFrame([healthy] * 7 + ill, schema)) == "Slow log in 2 of 10 windows: it is"
