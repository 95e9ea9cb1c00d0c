"""The features of a window: one row that aggregates all requests, processes and connections of about a minute.

Pure functions of data frames; knows no rule. Times are microseconds and sums of sampled rows are weighted. A fetch's
wait for data and a member's wait for its group are normal and are left out; a column is null where the log lacks it.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - the field's name for it

from rotunda.spark.analysis.lag import spans
from rotunda.spark.hourly.histogram import quantiles, with_buckets

#: Columns to read of each dataset.
REQUEST_COLUMNS = (
    "time", "requestApiKey", "clientId", "handler", "topic", "partition", "requestQueueTimeUs", "localTimeUs",
    "remoteTimeUs", "responseQueueTimeUs", "sendTimeUs", "sampleWeight", "maxWaitMs", "throttleTimeUs", "errorCode",
)  # fmt: skip
ROLE_COLUMNS = (
    "time", "intervalUs", "traffic", "role", "index", "cpus", "idleShare", "cpuTimeUs", "runQueueTimeUs",
    "ringFillPeak", "arenaDepletedUs", "connectionsRefused", "blockedUs", "commits", "commitTimeUs", "mutesPipeline",
    "mutesArena", "mutesRingFull", "mutesOutput",
)  # fmt: skip
CONNECTION_COLUMNS = ("time", "event", "durationUs")
GAP_COLUMNS = ("time", "dataset", "rows")
GROUP_COLUMNS = ("time", "group", "event", "durationUs", "topic", "records")

#: Phases of a request as the features name them, and the column of each.
PHASES = {
    "queue": "requestQueueTimeUs",
    "local": "localTimeUs",
    "remote": "remoteTimeUs",
    "responseQueue": "responseQueueTimeUs",
    "send": "sendTimeUs",
}
#: Phases in which a request waits for the broker, not for its client.
BROKER_PHASES = ("queue", "local", "remote", "responseQueue")
_CLASSES = {0: "produce", 1: "fetch"}
#: A connection with no longer lifetime could have been reused by its client.
SHORT_LIFE_US = 5_000_000
_STORAGE_ERROR = 56
_MUTES = ("mutesPipeline", "mutesArena", "mutesRingFull", "mutesOutput")


def features(datasets: Mapping[str, DataFrame], window_us: int, end_us: int) -> DataFrame:
    """Return one row for each window with requests or new connections; `window` is its first moment.

    The last lag of a group holds until `end_us`.
    """
    measured = _measured(datasets["requests"], window_us)
    grouped = _grouped(measured).persist()
    slowest = _slowest_handlers(grouped)
    processes = _processes(datasets["roles"], window_us).persist()
    parts = [
        _totals(grouped),
        _connections(datasets["connections"], window_us),
        _quantiles(measured),
        slowest,
        _hot_partitions(grouped, slowest),
        _slow_clients(grouped),
        _of_roles(processes),
        _of_handler(processes, slowest),
        _gaps(datasets["gaps"], window_us),
        _throttles_and_failures(grouped),
        _expirations(datasets["groups"].where("event = 'expire'"), window_us),
        _lags(spans(datasets["groups"].where("event = 'lag'"), end_us), window_us),
    ]
    both = parts[0].join(parts[1], "window", "full")
    joined = reduce(lambda table, part: table.join(part, "window", "left"), parts[2:], both)
    return _derived(joined)


def window_of(time: Column, window_us: int) -> Column:
    """Return the first moment of the window that contains a time."""
    return F.timestamp_micros((F.floor(F.unix_micros(time) / window_us) * window_us).cast("long"))


def _measured(requests: DataFrame, window_us: int) -> DataFrame:
    is_produce, is_fetch = F.col("requestApiKey") == 0, F.col("requestApiKey") == 1
    beyond_wait = F.greatest(F.col("remoteTimeUs") - F.col("maxWaitMs") * F.lit(1000), F.lit(0))
    remote = F.when(is_produce, F.col("remoteTimeUs")).when(is_fetch, F.coalesce(beyond_wait, F.lit(0))).otherwise(0)
    kind = F.when(is_produce, "produce").when(is_fetch, "fetch").otherwise("other")
    return requests.select(
        window_of(F.col("time"), window_us).alias("window"),
        kind.alias("kind"),
        *("clientId", "handler", "topic", "partition"),
        F.col("sampleWeight").cast("long").alias("weight"),
        *(F.col(column).alias(f"{phase}Us") for phase, column in PHASES.items() if phase != "remote"),
        remote.cast("long").alias("remoteUs"),
        F.col("throttleTimeUs").alias("throttleUs"),
        (F.col("errorCode") == _STORAGE_ERROR).alias("isStorageError"),
    )


def _grouped(measured: DataFrame) -> DataFrame:
    keys = ("window", "kind", "clientId", "handler", "topic", "partition")
    return measured.groupBy(*keys).agg(
        F.count("*").alias("rows"),
        F.sum("weight").alias("requests"),
        *(F.sum(F.col(f"{phase}Us") * F.col("weight")).alias(f"{phase}Us") for phase in PHASES),
        F.max("queueUs").alias("queueMaxUs"),
        F.sum(F.when(F.col("throttleUs") > 0, F.col("weight"))).alias("throttledRequests"),
        F.max("throttleUs").alias("throttleMaxUs"),
        F.sum(F.when(F.col("isStorageError"), F.col("weight"))).alias("storageErrors"),
    )


def _totals(grouped: DataFrame) -> DataFrame:
    sums = [F.sum(name).alias(name) for name in ("rows", "requests", *(f"{phase}Us" for phase in PHASES))]
    by_kind = [
        F.sum(F.when(F.col("kind") == kind, F.col(name)).otherwise(0)).alias(f"{kind}{name[0].upper()}{name[1:]}")
        for kind in (*_CLASSES.values(), "other")
        for name in ("requests", *(f"{phase}Us" for phase in PHASES))
    ]
    return grouped.groupBy("window").agg(*sums, *by_kind, F.max("queueMaxUs").alias("queueMaxUs"))


def _quantiles(measured: DataFrame) -> DataFrame:
    """Return the 95th percentile of each phase."""
    phases = [F.struct(F.lit(phase).alias("phase"), F.col(f"{phase}Us").alias("bucket")) for phase in PHASES]
    bucketed = with_buckets(measured, [f"{phase}Us" for phase in PHASES])
    placed = bucketed.select("window", "weight", F.explode(F.array(*phases)).alias("place"))
    counted = placed.select("window", "place.phase", "place.bucket", "weight")
    found = quantiles(counted, ("window", "phase"), {"p95": 0.95}, "weight")
    by_phase = [F.max(F.when(F.col("phase") == phase, F.col("p95"))).alias(f"{phase}P95Us") for phase in PHASES]
    return found.groupBy("window").agg(*by_phase)


def _first(table: DataFrame, keys: tuple[str, ...], by: str, ties: str) -> DataFrame:
    """Return the row of each key with the greatest value of a column."""
    order = Window.partitionBy(*keys).orderBy(F.desc(by), ties)
    return table.withColumn("_place", F.row_number().over(order)).where("_place = 1").drop("_place")


def _slowest_handlers(grouped: DataFrame) -> DataFrame:
    """Return the handler of each window where requests spent most time."""
    at_handler = F.sum(F.col("queueUs") + F.col("localUs"))
    by_handler = grouped.groupBy("window", "handler").agg(
        at_handler.alias("slowHandlerUs"),
        F.sum("requests").alias("slowHandlerRequests"),
        F.sum("queueUs").alias("slowHandlerQueueUs"),
        F.max("queueMaxUs").alias("slowHandlerQueueMaxUs"),
    )
    return _first(by_handler, ("window",), "slowHandlerUs", "handler").withColumnRenamed("handler", "slowHandler")


def _hot_partitions(grouped: DataFrame, slowest: DataFrame) -> DataFrame:
    """Return the partition with most of the time that requests spent at the slowest handler, and its share."""
    own = slowest.select("window", F.col("slowHandler").alias("handler"), "slowHandlerUs")
    by_partition = (
        grouped.where("topic is not null").groupBy("window", "handler", "topic", "partition")
        .agg(F.sum(F.col("queueUs") + F.col("localUs")).alias("_us"))
        .join(own, ["window", "handler"])
    )  # fmt: skip
    return _first(by_partition, ("window",), "_us", "topic").select(
        "window",
        F.col("topic").alias("hotTopic"),
        F.col("partition").alias("hotPartition"),
        _ratio("_us", "slowHandlerUs").alias("hotPartitionShare"),
    )


def _slow_clients(grouped: DataFrame) -> DataFrame:
    """Return the client of each window with the longest send time, and its share of all send time."""
    by_client = grouped.groupBy("window", "clientId").agg(F.sum("sendUs").alias("_us"), F.sum("requests").alias("_n"))
    everywhere = F.sum("_us").over(Window.partitionBy("window"))
    found = _first(by_client.withColumn("_all", everywhere), ("window",), "_us", "clientId")
    return found.select(
        "window",
        F.col("clientId").alias("slowClient"),
        _ratio("_us", "_all").alias("slowClientSendShare"),
        _ratio("_us", "_n").alias("slowClientSendMeanUs"),
    )


def _processes(roles: DataFrame, window_us: int) -> DataFrame:
    """Return one row for each process in a window; an interval belongs to the window of its middle."""
    middle = F.timestamp_micros(F.unix_micros("time") - F.floor(F.col("intervalUs") / 2).cast("long"))
    known = F.when(F.col("idleShare").isNotNull(), F.col("intervalUs"))
    timed = F.when(F.col("cpuTimeUs").isNotNull() & F.col("runQueueTimeUs").isNotNull(), F.col("intervalUs"))
    # A loop that is runnable and waits for a CPU counts itself idle.
    active = F.try_divide(F.sum("cpuTimeUs") + F.sum("runQueueTimeUs"), F.sum(timed))
    sums = (
        "cpuTimeUs",
        "runQueueTimeUs",
        "commits",
        "commitTimeUs",
        "arenaDepletedUs",
        "connectionsRefused",
        "blockedUs",
        *_MUTES,
    )
    return (
        roles.where("traffic").groupBy(window_of(middle, window_us).alias("window"), "role", "index")
        .agg(
            F.sum("intervalUs").alias("intervalUs"),
            F.max("cpus").alias("cpus"),
            F.greatest(1 - F.try_divide(F.sum(F.col("idleShare") * known), F.sum(known)), active).alias("busyShare"),
            F.sum(timed).alias("timedUs"),
            F.max("ringFillPeak").alias("ringFillPeak"),
            *(F.sum(name).alias(name) for name in sums),
        )
    )  # fmt: skip


def _of_roles(processes: DataFrame) -> DataFrame:
    is_processor, is_handler = F.col("role") == "processor", F.col("role") == "handler"
    is_server = is_processor | is_handler
    cpu_share = _ratio("cpuTimeUs", "timedUs")
    run_queue_share = _ratio("runQueueTimeUs", "timedUs")
    handlers, busiest = F.count(F.when(is_handler, 1)), F.max(F.when(is_handler, F.col("busyShare")))
    busy_others = F.sum(F.when(is_handler, F.col("busyShare"))) - busiest
    others = F.try_divide(busy_others, F.count(F.when(is_handler, F.col("busyShare"))) - 1)
    return processes.groupBy("window").agg(
        F.count(F.when(is_processor, 1)).alias("processors"),
        handlers.alias("handlers"),
        F.max("cpus").alias("cpus"),
        F.max(F.when(is_processor, F.col("busyShare"))).alias("processorBusyMax"),
        busiest.alias("handlerBusyMax"),
        others.alias("handlerBusyOthers"),
        (F.sum(cpu_share) / F.max("cpus")).alias("cpuUse"),
        F.max(F.when(is_server, run_queue_share)).alias("runQueueMax"),
        F.max(F.when(is_handler, F.col("ringFillPeak"))).alias("requestRingPeak"),
        F.max(F.when(is_processor, F.col("ringFillPeak"))).alias("responseRingPeak"),
        F.max(_ratio("arenaDepletedUs", "intervalUs")).alias("arenaDepletedShare"),
        F.max(_ratio("blockedUs", "intervalUs")).alias("blockedShare"),
        *(F.sum(name).alias(name) for name in ("connectionsRefused", *_MUTES)),
    )


def _of_handler(processes: DataFrame, slowest: DataFrame) -> DataFrame:
    """Return the measures of the handler where requests spent most time."""
    own = slowest.select("window", F.col("slowHandler").alias("index"))
    active = F.try_divide(F.col("cpuTimeUs") + F.col("runQueueTimeUs"), F.col("timedUs"))
    return processes.where("role = 'handler'").join(own, ["window", "index"]).select(
        "window",
        F.col("busyShare").alias("slowHandlerBusy"),
        active.alias("slowHandlerActive"),
        _ratio("commitTimeUs", "intervalUs").alias("slowHandlerCommitShare"),
        _ratio("commitTimeUs", "commits").alias("slowHandlerCommitMeanUs"),
    )  # fmt: skip


def _connections(connections: DataFrame, window_us: int) -> DataFrame:
    is_short = (F.col("event") == "close") & (F.col("durationUs") <= SHORT_LIFE_US)
    return connections.groupBy(window_of(F.col("time"), window_us).alias("window")).agg(
        F.count(F.when(F.col("event") == "open", 1)).alias("opened"),
        F.count(F.when(is_short, 1)).alias("shortLived"),
        (F.max(F.unix_micros("time")) - F.min(F.unix_micros("time"))).alias("connectionSpanUs"),
    )


def _gaps(gaps: DataFrame, window_us: int) -> DataFrame:
    by_window = gaps.where(F.col("dataset") == "requests").groupBy(window_of(F.col("time"), window_us).alias("window"))
    return by_window.agg(F.count("*").alias("gapRows"), F.sum("rows").alias("lostRows"))


def _throttles_and_failures(grouped: DataFrame) -> DataFrame:
    """Return the throttled requests of each window with the client throttled longest, and those the disk failed."""
    return grouped.groupBy("window").agg(
        F.sum("throttledRequests").alias("throttledRequests"),
        F.max("throttleMaxUs").alias("throttleMaxUs"),
        F.max_by("clientId", "throttleMaxUs").alias("throttledClient"),
        F.sum("storageErrors").alias("storageErrors"),
    )


def _expirations(expired: DataFrame, window_us: int) -> DataFrame:
    """Return the group of each window that removed most members for their silence, and their number."""
    by_group = expired.groupBy(window_of(F.col("time"), window_us).alias("window"), "group").agg(
        F.count("*").alias("expiredMembers")
    )
    most = _first(by_group, ("window",), "expiredMembers", "group")
    return most.select("window", F.col("group").alias("expiredGroup"), "expiredMembers")


def _lags(held: DataFrame, window_us: int) -> DataFrame:
    """Return the group of each window whose oldest unread record is oldest, its age and the unread records."""
    numbers = F.sequence(F.floor(F.col("fromUs") / window_us), F.floor((F.col("untilUs") - 1) / window_us))
    placed = held.where("oldestUs is not null and fromUs < untilUs").withColumn("number", F.explode(numbers))
    age = F.least(F.col("untilUs"), (F.col("number") + 1) * window_us) - F.col("oldestUs")
    by_topic = placed.groupBy("number", "group", "topic").agg(
        F.max(age).alias("lagAgeUs"), F.max_by("records", "fromUs").alias("records")
    )
    by_group = by_topic.groupBy("number", "group").agg(
        F.max("lagAgeUs").alias("lagAgeUs"), F.sum("records").alias("lagRecords")
    )
    return _first(by_group, ("number",), "lagAgeUs", "group").select(
        F.timestamp_micros((F.col("number") * window_us).cast("long")).alias("window"),
        F.col("group").alias("lagGroup"),
        "lagAgeUs",
        "lagRecords",
    )


def _derived(joined: DataFrame) -> DataFrame:
    """Return all features with means and shares: broker phases as shares of their sum, send time of the total."""
    counts = ("rows", "requests", "opened", "shortLived", "gapRows", "lostRows")
    broker = reduce(lambda one, other: one + other, (F.col(f"{phase}Us") for phase in BROKER_PHASES))
    filled = joined.fillna(0, subset=list(counts)).withColumn("brokerUs", broker)
    means = [_ratio(f"{phase}Us", "requests").alias(f"{phase}MeanUs") for phase in PHASES]
    shares = [_ratio(f"{phase}Us", "brokerUs").alias(f"{phase}Share") for phase in BROKER_PHASES]
    of_everything = F.try_divide(F.col("sendUs"), F.col("brokerUs") + F.col("sendUs"))
    return filled.select(
        "*",
        *means,
        *shares,
        of_everything.alias("sendShare"),
        _ratio("produceLocalUs", "produceRequests").alias("produceLocalMeanUs"),
        _ratio("fetchLocalUs", "fetchRequests").alias("fetchLocalMeanUs"),
        _ratio("otherLocalUs", "otherRequests").alias("otherLocalMeanUs"),
    )


def _ratio(part: str, whole: str) -> Column:
    return F.try_divide(F.col(part), F.col(whole))
