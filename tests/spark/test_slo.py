"""The report on objectives against the same numbers computed by DuckDB, and against a log with known content."""

from argparse import Namespace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from rotunda.spark.analysis.objectives import Objective
from rotunda.spark.hourly.rollups import Rollups
from rotunda.spark.job import Context
from rotunda.spark.jobs.slo import COLUMNS, answer, counts, history, spans
from rotunda.spark.log.request_log import RequestLog
from rotunda.spark.time_range import TimeRange
from tests.spark.duck import ask, assert_same
from tests.spark.questions import OBJECTIVE, OBJECTIVE_BY_MINUTE
from tests.support.feeds import random_seed
from tests.support.generated_log import START, random_requests, request, write

RANGE = ("2026-03-01T10:07:00.123", "2026-03-01T11:55:00.456")
NOW = datetime(2026, 3, 2, tzinfo=UTC)
DAY_US = 86_400_000_000
OBJECTIVES = [
    Objective("quick", 0.9, 50_000, 30 * DAY_US, {"requestApiKeyName": ("PRODUCE", "FETCH")}),
    Objective("orders", 0.99, None, DAY_US, {"clientId": ("app",), "topic": ("orders",)}, ("ILLEGAL_GENERATION",)),
    Objective("inside", 0.5, None, 1_800_000_000, {"listener": ("INTERNAL",)}),
    Objective("nobody", 0.5, None, DAY_US, {"clientId": ("nobody",)}),
]
#: The requests that each selects, and the bad ones of those.
SQL = [
    (
        "requestApiKeyName IN ('PRODUCE', 'FETCH')",
        "totalTimeUs - if(requestApiKeyName = 'FETCH', remoteTimeUs, 0) > 50000",
    ),
    ("clientId = 'app' AND topic = 'orders'", "errorCode <> 0 AND errorName <> 'ILLEGAL_GENERATION'"),
    ("listener = 'INTERNAL'", "errorCode <> 0"),
]


def test_every_number_is_that_of_an_independent_computation(spark: SparkSession, tmp_path: Path) -> None:
    seed = random_seed()
    print(f"seed {seed}")
    write(tmp_path, "requests", random_requests(seed, 3000))
    log, time_range = RequestLog(spark, str(tmp_path)), TimeRange.of(*RANGE, NOW)
    counted = counts(log.read("requests", time_range, COLUMNS), OBJECTIVES, time_range.end_us).cache()
    found = spans(counted, OBJECTIVES)
    for number, (chosen, bad) in enumerate(SQL):
        window = OBJECTIVES[number].window_us // 1_000_000
        for name, seconds in (("5m", 300), ("30m", 1800), ("1h", 3600), ("6h", 6 * 3600), ("window", window)):
            sql = OBJECTIVE.format(chosen=chosen, bad=bad, end=RANGE[1], seconds=seconds)
            assert found[number][name] == ask(tmp_path, "requests", RANGE, sql)[0], (number, name)
    assert set(found[3].values()) == {(0, 0)}
    over_time = [
        row
        for objective, (chosen, bad) in zip(OBJECTIVES, SQL, strict=False)
        for row in ask(
            tmp_path,
            "requests",
            RANGE,
            OBJECTIVE_BY_MINUTE.format(
                name=objective.name, chosen=chosen, bad=bad, end=RANGE[1], budget=objective.budget
            ),
        )
    ]
    table = history(counted, OBJECTIVES, time_range)
    assert_same(table.selectExpr("unix_micros(time)", "objective", "requests", "bad", "burnRate"), over_time)


def test_an_hour_that_fails_is_found(spark: SparkSession, tmp_path: Path) -> None:
    """One request a second for two hours; in the last ten minutes one of five fails, and the client's own do not."""
    rows = []
    for second in range(7200):
        fails = second >= 6600 and second % 5 == 0
        rows.append(request(START + timedelta(seconds=second), errorCode=6 if fails else 0))
    rows += [request(START + timedelta(seconds=i), clientId="other", errorCode=6) for i in range(100)]
    write(tmp_path, "requests", rows)
    log = RequestLog(spark, str(tmp_path))
    objectives = [
        Objective("nothing fails", 0.99, None, 30 * DAY_US, {"clientId": ("app",)}),
        Objective("quick", 0.99, 1_000_000, 30 * DAY_US, {}),
    ]
    time_range = TimeRange.of("2026-03-01T10:00", "2026-03-01T12:00", NOW)
    rollups = Rollups(spark, str(tmp_path / "r"), log)
    result = answer(Context(spark, log, rollups, time_range, Namespace(objectives=objectives), NOW))
    failing, quick = result.tables["objectives"].collect()
    assert (failing.requests, failing.bad, quick.requests, quick.bad) == (7200, 120, 7300, 0)
    assert (failing.burn5m, failing.burn1h, failing.burn6h) == (pytest.approx(20), pytest.approx(10 / 3), None)
    assert failing.budgetLeft == pytest.approx(1 - (120 / 7200) / 0.01 * 2 / 720)
    assert (failing.state, quick.state, quick.exhaustedInH) == ("burning", "ok", None)
    assert result.headline == (
        "1 of 2 objectives in danger; worst is nothing fails: it burns faster than it would last, 99.5% of the budget "
        "is left"
    )
    assert result.chart is not None
    assert result.chart.series[0].values[-10:] == pytest.approx([20.0] * 10)
    assert set(result.chart.series[0].values[:-10]) == {0}
