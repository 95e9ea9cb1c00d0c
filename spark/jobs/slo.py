"""The slo report: error budgets, their burn rates over 5m to 3d, and the time until they are used up."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the field's name for it

from rotunda.broker.text_table import counted
from rotunda.spark.analysis.burn import MINUTE_US, SPANS_US, Count, Standing, burn_rate, standing
from rotunda.spark.analysis.objectives import CHOSEN_BY, DEFAULT_OBJECTIVES, Objective, read_objectives
from rotunda.spark.bounded import rows_of
from rotunda.spark.job import Context, Job, main
from rotunda.spark.log.request_log import is_one_of
from rotunda.spark.log.schema import PARTITION_COLUMNS
from rotunda.spark.results.charts import Chart, Series
from rotunda.spark.results.result import Result
from rotunda.spark.results.text_table import cell
from rotunda.spark.time_range import HOUR_US, TimeRange, to_datetime

COLUMNS = (
    "time",
    *CHOSEN_BY.values(),
    "errorCode",
    "errorName",
    "totalTimeUs",
    "remoteTimeUs",
    "sampleWeight",
)
#: Requests of these APIs wait for others by design; the wait does not count against them.
_WAITING_APIS = ("FETCH", "JOIN_GROUP", "SYNC_GROUP")
_STEPS = 120
#: Limits of the result where rows have been deleted.
_LACKING = (
    "errors are counted by whole hours from the hourly tables there; latencies are not known, and their budgets are "
    "measured without those hours"
)
_LINES = 6
#: Description of each state.
_LABELS = {
    "exhausted": "the budget is exhausted",
    "page": "it burns so fast that somebody should be woken",
    "ticket": "it burns so fast that somebody should look in the morning",
    "burning": "it burns faster than it would last",
    "ok": "kept",
}


def counts(rows: DataFrame, objectives: Sequence[Objective], end_us: int) -> DataFrame:
    """Return `requests` and `bad` by the number of the objective and `age`, whole minutes before the end."""
    return _counted(rows, F.unix_micros("time"), F.col("sampleWeight").cast("long"), enumerate(objectives), end_us)


def hourly_counts(table: DataFrame, objectives: Sequence[Objective], end_us: int) -> DataFrame:
    """Return the result of `counts` from rows of the hourly table, which suffice for objectives on errors.

    All of an hour has the age of its first minute, so that it counts in spans that contain the whole hour.
    """
    hour = F.unix_date(F.to_date("date")) * 24 + F.col("hour")
    on_errors = [(number, each) for number, each in enumerate(objectives) if each.latency_us is None]
    return _counted(table, hour * F.lit(HOUR_US), F.col("requests"), on_errors, end_us)


def _counted(
    rows: DataFrame, time_us: Column, weight: Column, objectives: Iterable[tuple[int, Objective]], end_us: int
) -> DataFrame:
    age = F.floor((F.lit(end_us - 1) - time_us) / MINUTE_US)
    sums, numbers = [], []
    for number, objective in objectives:
        numbers.append(number)
        chosen, bad = _is_chosen(objective), _is_bad(objective)
        sums.append(F.sum(F.when(chosen, weight).otherwise(F.lit(0))).alias(f"requests{number}"))
        sums.append(F.sum(F.when(chosen & bad, weight).otherwise(F.lit(0))).alias(f"bad{number}"))
    by_minute = rows.groupBy(age.alias("age")).agg(*sums)
    each = [
        F.struct(F.lit(n).alias("objective"), F.col(f"requests{n}").alias("requests"), F.col(f"bad{n}").alias("bad"))
        for n in numbers
    ]
    one_a_row = by_minute.select("age", F.explode(F.array(*each)).alias("count")).where("count.requests > 0")
    return one_a_row.select("count.objective", "age", "count.requests", "count.bad")


def _is_chosen(objective: Objective) -> Column:
    condition = F.lit(True)
    for column, values in objective.chosen.items():
        condition &= F.col(column).isin(*values)
    return F.coalesce(condition, F.lit(False))


def _is_bad(objective: Objective) -> Column:
    if objective.latency_us is None:
        failed = F.col("errorCode") != 0
        return failed & ~F.col("errorName").isin(*objective.allowed_errors) if objective.allowed_errors else failed
    waited = F.when(F.col("requestApiKeyName").isin(*_WAITING_APIS), F.col("remoteTimeUs")).otherwise(F.lit(0))
    return F.col("totalTimeUs") - waited > objective.latency_us


def spans(counted: DataFrame, objectives: Sequence[Objective]) -> dict[int, dict[str, Count]]:
    """Return, by number of the objective, the counts of each span before the end, and of its `window`."""
    windows = F.element_at(
        F.array(*(F.lit(each.window_us // MINUTE_US) for each in objectives)), F.col("objective") + 1
    )
    within = {name: F.col("age") < span // MINUTE_US for name, span in SPANS_US.items()} | {
        "window": F.col("age") < windows
    }
    sums = [
        F.sum(F.when(condition, F.col(what)).otherwise(F.lit(0))).alias(f"{what}_{name}")
        for name, condition in within.items()
        for what in ("requests", "bad")
    ]
    nothing = {number: dict.fromkeys(within, Count(0, 0)) for number in range(len(objectives))}
    rows = rows_of(counted.groupBy("objective").agg(*sums))
    return nothing | {
        row.objective: {name: Count(row[f"requests_{name}"], row[f"bad_{name}"]) for name in within} for row in rows
    }


def history(counted: DataFrame, objectives: Sequence[Objective], time_range: TimeRange) -> DataFrame:
    """Return burn rates over time: 120 steps at most, of whole minutes, counted back from the end of the range."""
    step = step_minutes(time_range)
    names, budgets = (
        F.element_at(F.array(*map(F.lit, values)), F.col("objective") + 1)
        for values in ([each.name for each in objectives], [each.budget for each in objectives])
    )
    steps = counted.groupBy("objective", F.floor(F.col("age") / step).alias("step"))
    summed = steps.agg(F.sum("requests").alias("requests"), F.sum("bad").alias("bad"))
    begin = F.lit(time_range.end_us) - (F.col("step") + 1) * (step * MINUTE_US)
    rate = F.col("bad") / F.col("requests") / budgets
    table = summed.select(
        F.timestamp_micros(begin).alias("time"), names.alias("objective"), "requests", "bad", rate.alias("burnRate")
    )
    return table.orderBy("time", "objective")


def step_minutes(time_range: TimeRange) -> int:
    """Return the length of a step of the history, in minutes."""
    return max(1, -(-(time_range.end_us - time_range.start_us) // (MINUTE_US * _STEPS)))


def answer(context: Context) -> Result:
    """Return the status of the objectives at the end of a range."""
    objectives, time_range = context.options.objectives, context.time_range
    coverage = context.rollups.coverage(time_range)
    hours = coverage.deleted.hours
    rows = context.log.read("requests", time_range, (*COLUMNS, *PARTITION_COLUMNS)).where(~is_one_of(hours))
    counted = counts(rows, objectives, time_range.end_us)
    if hours and any(each.latency_us is None for each in objectives):
        hourly, _ = context.rollups.read(time_range)
        stored = hourly_counts(hourly.where(is_one_of(hours)), objectives, time_range.end_us)
        counted = counted.unionByName(stored)
    counted = counted.cache()
    found, rows_of_table = [], []
    for objective, (_, of_spans) in zip(objectives, sorted(spans(counted, objectives).items()), strict=True):
        known_us, measured_us = _known(objective, time_range, hours)
        stands = standing(objective, of_spans, of_spans["window"], known_us, measured_us)
        found.append((objective, of_spans["window"], stands))
        rows_of_table.append(_row(*found[-1], measured_us))
    table = context.spark.createDataFrame(rows_of_table, _SCHEMA)
    over_time = history(counted, objectives, time_range).cache()
    facts: dict[str, object] = {"objectives": len(objectives)}
    facts |= {state: sum(each.state == state for _, _, each in found) for state in _LABELS}
    tables = {"objectives": table, "burn": over_time}
    chart = _chart(over_time, objectives, time_range)
    return Result(_headline(found), tables, coverage, chart, facts, _LACKING)


def _known(objective: Objective, time_range: TimeRange, deleted_hours: Sequence[int]) -> tuple[int, int]:
    """Return the contiguous known time of an objective before the end, and the known part of its window."""
    end_us = time_range.end_us
    start_us = max(time_range.start_us, end_us - objective.window_us)
    hours = [] if objective.latency_us is None else [hour * HOUR_US for hour in deleted_hours]
    known_us = end_us - max((begin + HOUR_US for begin in hours), default=time_range.start_us)
    missing_us = sum(max(0, begin + HOUR_US - max(begin, start_us)) for begin in hours)
    return known_us, end_us - start_us - missing_us


_BURNS = ", ".join(f"burn{span} double" for span in SPANS_US)
_SCHEMA = (
    "objective string, state string, requests long, bad long, badShare double, allowedShare double, "
    f"{_BURNS}, burnMeasured double, measuredShare double, budgetLeft double, exhaustedInH double"
)


def _row(objective: Objective, measured: Count, found: Standing, measured_us: int) -> tuple[object, ...]:
    bad_share = measured.bad / measured.requests if measured.requests else None
    hours = None if found.exhausted_in_s is None else found.exhausted_in_s / 3600
    rates = [*(found.burn_rates[span] for span in SPANS_US), burn_rate(objective, measured)]
    measured_share = measured_us / objective.window_us
    budget = (objective.budget, *rates, measured_share, found.left, hours)
    return (objective.name, found.state, measured.requests, measured.bad, bad_share, *budget)


def _headline(found: Sequence[tuple[Objective, Count, Standing]]) -> str:
    bad = [(objective, each) for objective, _, each in found if each.state != "ok"]
    if not bad:
        least, each = min(((o, s) for o, _, s in found), key=lambda pair: pair[1].left)
        kept = f"{counted(len(found), 'objective')} {'is' if len(found) == 1 else 'are'} kept"
        return f"{kept}; least budget is left of {cell(least.name)}: {each.left:.1%}"
    worst, each = min(bad, key=lambda pair: pair[1].left)
    left = f"{_LABELS[each.state]}, {max(each.left, 0.0):.1%} of the budget is left"
    return f"{len(bad)} of {len(found)} objectives in danger; worst is {cell(worst.name)}: {left}"


def _chart(over_time: DataFrame, objectives: Sequence[Objective], time_range: TimeRange) -> Chart:
    names = [objective.name for objective in objectives[:_LINES]]
    begin_us = F.unix_micros("time").alias("begin_us")
    rows = rows_of(over_time.where(F.col("objective").isin(*names)).select(begin_us, "objective", "burnRate"))
    rates = {(row.begin_us, row.objective): row.burnRate for row in rows}
    step_us = step_minutes(time_range) * MINUTE_US
    steps = -(-(time_range.end_us - time_range.start_us) // step_us)
    begins = [time_range.end_us - (steps - place) * step_us for place in range(steps)]
    labels = [f"{to_datetime(begin):%m-%d %H:%M}" for begin in begins]
    series = [Series(name, [rates.get((begin, name)) for begin in begins]) for name in names]
    return Chart("Burn rate: 1 uses up the budget within its window", "lines", labels, series, "times the budget")


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--objectives",
        type=read_objectives,
        default=DEFAULT_OBJECTIVES,
        metavar="FILE",
        help="TOML, as ops/objectives.toml (default: quick Produce and Fetch, and few errors)",
    )


JOB = Job("slo", __doc__ or "", answer, _add_options)

if __name__ == "__main__":
    sys.exit(main(JOB))
