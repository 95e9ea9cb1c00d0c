"""The capacity report: waits at 2, 5 and 10 times the load, and the processes needed for it.

Each handler is modelled as a queue of its own (M/G/1 with Pollaczek and Khinchine's formula, for arrivals in bursts
G/G/1 as Allen and Cunneen approximate it), and the model is compared with the waits in the same log.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence

from pyspark.sql import Column, DataFrame, Row, Window
from pyspark.sql import functions as F  # noqa: N812 - the field's name for it

from rotunda.broker.text_table import counted
from rotunda.spark.analysis.handler_queues import (
    LEAST_ROWS,
    REQUEST_COLUMNS,
    ROLE_COLUMNS,
    busy_us,
    predicted,
    queues,
    window_of_interval,
)
from rotunda.spark.bounded import rows_of
from rotunda.spark.failures import JobFailed
from rotunda.spark.job import Context, Job, main
from rotunda.spark.options import length_us, positive
from rotunda.spark.results.charts import Chart, Series
from rotunda.spark.results.result import Result

#: Multiples of the load in the table, and points of the chart up to saturation.
LOADS = (1, 2, 5, 10)
_POINTS = 10
#: The chart ends before the waits become unbounded.
_NEAR_SATURATION = 0.95


def held_against(found: DataFrame) -> DataFrame:
    """Return by handler the model's prediction at the present load, the measured wait, and the prediction's error."""
    weight = F.col("requests")
    predictable = F.when(F.col("wait0Us").isNotNull(), weight)
    summed = predicted(found, (1,)).groupBy("handler").agg(
        F.sum("requests").alias("requests"),
        _mean("arrivals", weight).alias("arrivalsPerSecond"),
        _mean("serviceUs", weight).alias("serviceUs"),
        _mean("serviceVariation", weight).alias("serviceVariation"),
        _mean("arrivalVariation", weight).alias("arrivalVariation"),
        _mean("utilisation", weight).alias("utilisation"),
        F.max("utilisation").alias("peakUtilisation"),
        _mean("waitUs", predictable).alias("measuredWaitUs"),
        _mean("wait0Us", predictable).alias("predictedWaitUs"),
    )  # fmt: skip
    error = F.try_divide(F.col("predictedWaitUs") - F.col("measuredWaitUs"), F.col("measuredWaitUs"))
    return summed.select("*", error.alias("error")).orderBy("handler")


def transform(found: DataFrame, processes: DataFrame, loads: Sequence[float], target: float) -> DataFrame:
    """Return by multiple of the load and role: utilisation, waits of requests, and the number of processes needed.

    `utilisation` is that of the busiest window, the mean of all of the role; `busiest` that of its busiest process.
    `saturatedShare` is the share of requests in windows beyond their handler's capacity, whose wait cannot be
    predicted. `needed` keeps the busiest at the target, if the load is shared out as unevenly as it is now.
    """
    by_role = processes.withColumn("load", F.explode(F.array(*(F.lit(float(load)) for load in loads))))
    waits = _waits(found, loads)
    busiest = F.col("peak") * F.col("load")
    table = by_role.join(waits, ["role", "load"], "left").select(
        "load",
        "role",
        F.col("count").alias("now"),
        (F.col("mean") * F.col("load")).alias("utilisation"),
        busiest.alias("busiest"),
        "waitUs",
        "saturatedShare",
        F.greatest(F.ceil(F.col("count") * busiest / F.lit(target) - 1e-9), F.lit(1)).cast("int").alias("needed"),
    )
    return table.orderBy("load", "role")


def _waits(found: DataFrame, loads: Sequence[float]) -> DataFrame:
    """Return the mean wait of all requests at each multiple of the load, and the share beyond saturation."""
    pairs = (
        F.struct(F.lit(float(load)).alias("load"), F.col(f"wait{place}Us").alias("us"))
        for place, load in enumerate(loads)
    )
    each = predicted(found, loads).select("requests", F.explode(F.array(*pairs)).alias("at"))
    fine = F.when(F.col("at.us").isNotNull(), F.col("requests"))
    return each.groupBy(F.col("at.load").alias("load")).agg(
        F.lit("handler").alias("role"),
        F.try_divide(F.sum(F.col("at.us") * fine), F.sum(fine)).alias("waitUs"),
        (1 - F.coalesce(F.sum(fine), F.lit(0)) / F.sum("requests")).alias("saturatedShare"),
    )


def _mean(name: str, weight: Column) -> Column:
    return F.try_divide(F.sum(F.col(name) * weight), F.sum(weight))


def processes(found: DataFrame, roles: DataFrame, window_us: int) -> DataFrame:
    """Return by role the number of processes and their utilisation in the window that is busiest for one of them.

    Handlers are measured by their queues, processors by the roles, if the log has any.
    """
    handlers = found.select("window", F.lit("handler").alias("role"), F.col("handler").alias("index"), "utilisation")
    known = F.when(busy_us().isNotNull(), F.col("intervalUs"))
    of_processors = roles.where("traffic and role = 'processor'")
    processors = of_processors.groupBy(window_of_interval(window_us).alias("window"), "role", "index").agg(
        F.try_divide(F.sum(busy_us()), F.sum(known)).alias("utilisation")
    )
    counts = roles.groupBy("role").agg(F.countDistinct("index").alias("started"))
    seen = F.size(F.collect_set("index").over(Window.partitionBy("role")))
    both = (
        handlers.unionByName(processors.where("utilisation is not null"))
        .withColumn("seen", seen)
        .join(counts, "role", "left")
    )
    by_window = both.groupBy("window", "role", F.coalesce("started", "seen").alias("count")).agg(
        (F.sum("utilisation") / F.col("count")).alias("mean"), F.max("utilisation").alias("peak")
    )
    order = Window.partitionBy("role").orderBy(F.desc("peak"), "window")
    first = by_window.withColumn("_place", F.row_number().over(order)).where("_place = 1")
    return first.select("role", "count", "mean", "peak")


#: Limits of the result where rows have been deleted.
_LACKING = "windows in them have only the remaining rows"


def answer(context: Context) -> Result:
    """Return the effects of multiples of a range's load, and the model's error at the present load."""
    window_us, target = context.options.window, context.options.target / 100
    coverage = context.rollups.coverage_of_rows(context.time_range)
    requests = context.log.read("requests", context.time_range, REQUEST_COLUMNS)
    roles = context.log.read("roles", context.time_range, ROLE_COLUMNS)
    found = queues(requests, roles, window_us).persist()
    by_role = processes(found, roles, window_us).persist()
    model = held_against(found).persist()
    peaks = {row.role: row for row in rows_of(by_role)}
    if "handler" not in peaks:
        raise JobFailed(f"no handler has {LEAST_ROWS} requests in a window: name a longer --window or a longer range")
    table = transform(found, by_role, LOADS, target).persist()
    measured = model.agg(
        _mean("measuredWaitUs", F.col("requests")), _mean("predictedWaitUs", F.col("requests"))
    ).first()
    doubled = {row.role: row.needed for row in rows_of(table.where("load = 2"))}
    text = headline(peaks, doubled, measured)
    facts = {"target": target, "windowUs": window_us, "hasRoles": context.log.has("roles")}
    return Result(
        text,
        {"capacity": table, "model": model},
        coverage,
        _chart(found, peaks["handler"].peak),
        facts,
        lacking=_LACKING,
    )


def headline(peaks: Mapping[str, Row], doubled: Mapping[str, int], waits: Row | None) -> str:
    """Return the peak utilisation, the load it allows, the needs of a doubled one and the model's error."""
    busy = ", ".join(f"{role}s {row.peak:.0%}" for role, row in sorted(peaks.items()))
    lasts = min(1 / row.peak for row in peaks.values())
    wants = " and ".join(counted(count, role) for role, count in sorted(doubled.items()))
    text = f"Peak utilisation: {busy}; headroom {lasts:,.1f}x; 2x the load needs {wants}"
    if waits is None or waits[0] is None:
        return text
    return f"{text}; mean wait {waits[0] / 1000:,.2f} ms, predicted {waits[1] / 1000:,.2f}"


def _chart(found: DataFrame, peak: float) -> Chart:
    """Return a chart of waits from the present load up to the saturation of the busiest handler."""
    furthest = max(1.0, min(float(LOADS[-1]), _NEAR_SATURATION / peak))
    loads = [1 + (furthest - 1) * place / (_POINTS - 1) for place in range(_POINTS)]
    waits = {row.load: None if row.saturatedShare else row.waitUs for row in rows_of(_waits(found, loads))}
    series = Series("predicted mean wait", [waits[load] for load in loads])
    return Chart("Wait for a handler by multiple of the load", "lines", [f"{x:.2g} x" for x in loads], [series], "µs")


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--window", type=length_us, default="1m", metavar="TIME", help="length of a window, such as 30s or 10m (1m)"
    )
    parser.add_argument(
        "--target", type=positive, default="70", metavar="PERCENT", help="maximum utilisation of a process (70)"
    )


JOB = Job("capacity", __doc__ or "", answer, _add_options)

if __name__ == "__main__":
    sys.exit(main(JOB))
