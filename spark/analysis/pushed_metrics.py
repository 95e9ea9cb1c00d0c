"""The metrics that clients push (KIP-714), one row for each client instance. Pure transforms.

Clients push the average and maximum of each interval; an interval without requests has 0. Java and librdkafka use the
same names. Latencies are milliseconds.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the field's name for it

#: Columns that the transform reads of the dataset client_metrics.
PUSHED_COLUMNS = (
    "time",
    "clientInstanceId",
    "clientId",
    "softwareName",
    "softwareVersion",
    "address",
    "name",
    "isDelta",
    "value",
)

#: Requests whose response waits for no records: Produce, and a consumer's commits.
_REQUEST = r"\.(producer\.request|consumer\.coordinator\.commit)\.latency\."
_FETCH = r"\.fetch\.manager\.fetch\.latency\."
_LAG = r"\.fetch\.manager\.records\.lag\.max$"
_OPENED = r"\.connection\.creation\.total$"


def by_instance(rows: DataFrame) -> DataFrame:
    """Return names, latencies, lag, opened connections and last push of each instance, the slowest first."""
    table = rows.groupBy("clientInstanceId").agg(
        # A value of a handler that has not seen the client's ApiVersions is empty.
        *(F.max(name).alias(name) for name in ("clientId", "softwareName", "softwareVersion", "address")),
        F.avg(F.nullif(_of(_REQUEST + "avg$"), F.lit(0.0))).alias("requestMeanMs"),
        F.max(_of(_REQUEST + "max$")).alias("requestMaxMs"),
        F.avg(F.nullif(_of(_FETCH + "avg$"), F.lit(0.0))).alias("fetchMeanMs"),
        F.max(_of(_FETCH + "max$")).alias("fetchMaxMs"),
        F.max(_of(_LAG)).alias("lagMax"),
        _total(_of(_OPENED)).cast("long").alias("connectionsOpened"),
        F.max("time").alias("lastPush"),
    )
    return table.orderBy(F.desc_nulls_last("requestMeanMs"), F.desc("lastPush"), "clientInstanceId")


def _of(name: str) -> Column:
    return F.when(F.col("name").rlike(name), F.col("value"))


def _total(values: Column) -> Column:
    """Return the total of a sum that is pushed as its growth, or else as itself."""
    return F.coalesce(F.sum(F.when(F.col("isDelta"), values)), F.max(values))
