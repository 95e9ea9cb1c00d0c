"""The queues before handlers: arrivals, service times and waits of requests, window by window.

Pure functions of data frames, with the terms of `spark.analysis.queueing`. A partition belongs to one handler, so each
handler is a queue of its own. Sums of sampled rows are weighted, and the variation of arrivals is corrected for
sampling.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - the field's name for it

from rotunda.spark.analysis.load_features import window_of
from rotunda.spark.analysis.queueing import mean_wait, unthinned_variation

REQUEST_COLUMNS = ("time", "handler", "requestQueueTimeUs", "localTimeUs", "sampleWeight")
ROLE_COLUMNS = (
    "time",
    "intervalUs",
    "traffic",
    "role",
    "index",
    "cpus",
    "idleShare",
    "cpuTimeUs",
    "runQueueTimeUs",
    "requests",
)

#: Least rows of a handler in a window for a meaningful variation.
LEAST_ROWS = 30
#: Share of requests with the shortest waits: their wait is the delay to the handler, not a queue.
_FREE_WAY = 0.1


def queues(requests: DataFrame, roles: DataFrame, window_us: int) -> DataFrame:
    """Return a row for each handler and window with enough requests: arrivals, service, their variations, and waits.

    A service time is the handler's busy time per request from the roles; else the local time of the request, which is
    too long where requests are served together. Times are microseconds, `arrivals` are per second.
    """
    found = _arrivals(requests, window_us).join(_service_times(roles, window_us), ["window", "handler"], "left")
    service = F.coalesce("busyUs", "localUs")
    kept = F.col("rows") / F.col("requests")
    timed = found.where(F.col("rows") >= LEAST_ROWS).withColumn("arrivals", F.col("requests") / F.col("spanUs") * 1e6)
    return timed.select(
        "window",
        "handler",
        "requests",
        "arrivals",
        service.alias("serviceUs"),
        (F.col("arrivals") * service / 1e6).alias("utilisation"),
        F.greatest(unthinned_variation(F.col("gapVariation"), kept), F.lit(0.0)).alias("arrivalVariation"),
        "serviceVariation",
        "waitUs",
        "freeWayUs",
    )


def _arrivals(requests: DataFrame, window_us: int) -> DataFrame:
    rows = requests.select(
        window_of(F.col("time"), window_us).alias("window"),
        "handler",
        F.unix_micros("time").alias("us"),
        F.col("requestQueueTimeUs").alias("wait"),
        F.col("localTimeUs").cast("double").alias("local"),
        F.col("sampleWeight").alias("weight"),
    )
    before = F.lag("us").over(Window.partitionBy("window", "handler").orderBy("us"))
    gaps = rows.withColumn("gap", (F.col("us") - before).cast("double"))
    span = F.max("last").over(Window.partitionBy("window")) - F.min("first").over(Window.partitionBy("window"))
    weighted = gaps.groupBy("window", "handler").agg(
        F.count("*").alias("rows"),
        F.sum("weight").alias("requests"),
        F.min("us").alias("first"),
        F.max("us").alias("last"),
        _variation(F.avg("gap"), F.avg(F.col("gap") * F.col("gap"))).alias("gapVariation"),
        _mean("local").alias("localUs"),
        _variation(_mean("local"), _mean("local", "local")).alias("serviceVariation"),
        _mean("wait").alias("waitUs"),
        F.percentile_approx("wait", _FREE_WAY).alias("freeWayUs"),
    )
    return weighted.withColumn("spanUs", F.greatest(span, F.lit(1)))


def _mean(*factors: str) -> Column:
    product = reduce(lambda one, other: one * other, (F.col(name) for name in factors))
    return F.sum(product * F.col("weight")) / F.sum("weight")


def _variation(mean: Column, mean_square: Column) -> Column:
    """Return the squared coefficient of variation."""
    return F.coalesce(F.try_divide(mean_square - mean * mean, mean * mean), F.lit(1.0))


def busy_us() -> Column:
    """Return the time that a process of `roles` was busy in an interval, or was runnable and waited for a CPU.

    A loop counts itself idle until it runs; for its queue that is service time too. Null where neither is known.
    """
    looped = (1 - F.col("idleShare")) * F.col("intervalUs")
    return F.greatest(looped, (F.col("cpuTimeUs") + F.col("runQueueTimeUs")).cast("double"))


def window_of_interval(window_us: int) -> Column:
    """Return the window that contains the middle of an interval of `roles`."""
    return window_of(
        F.timestamp_micros(F.unix_micros("time") - F.floor(F.col("intervalUs") / 2).cast("long")), window_us
    )


def _service_times(roles: DataFrame, window_us: int) -> DataFrame:
    """Return the handlers' busy time per request."""
    window, handler = window_of_interval(window_us).alias("window"), F.col("index").alias("handler")
    known = F.when(busy_us().isNotNull(), F.col("requests"))
    by_window = roles.where("traffic and role = 'handler'").groupBy(window, handler)
    return by_window.agg(F.try_divide(F.sum(busy_us()), F.sum(known)).alias("busyUs"))


def predicted(found: DataFrame, loads: Sequence[float]) -> DataFrame:
    """Return the same rows with the wait predicted at multiples of the load, null beyond saturation.

    `wait<i>Us` and `busy<i>` are those at `loads[i]`. The delay to the handler is added to the wait in the queue.
    """
    free_way = F.min("freeWayUs").over(Window.partitionBy("handler"))
    columns = []
    for place, load in enumerate(loads):
        busy = F.col("utilisation") * F.lit(load)
        variations = (F.col("arrivalVariation"), F.col("serviceVariation"))
        # Beyond saturation the value is discarded, but must not divide by zero.
        queued = mean_wait(F.least(busy, F.lit(1 - 1e-9)), F.col("serviceUs"), *variations)
        columns += [busy.alias(f"busy{place}"), F.when(busy < 1, queued + free_way).alias(f"wait{place}Us")]
    return found.select("*", *columns)
