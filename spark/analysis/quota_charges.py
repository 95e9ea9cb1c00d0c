"""The charges of each quota: rows of the request log as amounts by entity and second.

Pure transforms of rows. Knows nothing of bounds, except for the token bucket, which is drained request by request.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import or_
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the field's name for it

from rotunda.spark.analysis.quota_windows import second_of, with_token_throttle

PRODUCE, FETCH, REQUEST, CONNECTION, MUTATION = "produce", "fetch", "request", "connection", "mutation"
REQUEST_COLUMNS: Final = (
    "time", "requestApiKey", "requestApiKeyName", "requestApiVersion", "clientId", "topic", "address",
    "principal", "partitionCount", "requestBytes", "responseBytes", "acks", "requestQueueTimeUs", "localTimeUs",
    "remoteTimeUs", "sendTimeUs", "sampleWeight",
)  # fmt: skip
CONNECTION_COLUMNS: Final = ("time", "event", "address")
#: Requests that create or delete partitions, and their first version that is rejected over the quota (`E15`).
STRICT_FROM: Final = {19: 6, 20: 5, 37: 3}
_US: Final = 1_000_000


def request_charges(requests: DataFrame, quotas: Sequence[str], by: Sequence[str]) -> DataFrame:
    """Return the charges of requests by quota, entity and second: `amount`, and the number of `requests` in it.

    Charged when the response is made. A Produce is charged its size, a Fetch its response's size (`E11`); every request
    its time in the handler and its send time, in microseconds, except a Produce without a response (`E13`).
    """
    is_produce, is_fetch = (F.col("requestApiKeyName") == name for name in ("PRODUCE", "FETCH"))
    is_exempt = F.col("acks").eqNullSafe(F.lit(0))
    amounts = {
        PRODUCE: F.when(is_produce, F.col("requestBytes").cast("long")),
        FETCH: F.when(is_fetch, F.col("responseBytes").cast("long")),
        REQUEST: F.when(~is_exempt, F.col("localTimeUs") + F.col("sendTimeUs")),
    }
    answered = second_of(F.col("time"), F.col("requestQueueTimeUs") + F.col("localTimeUs") + F.col("remoteTimeUs"))
    charges = F.explode(F.array(*(F.struct(F.lit(name).alias("quota"), amounts[name].alias("one")) for name in quotas)))
    rows = requests.select(*by, answered.alias("second"), "sampleWeight", charges.alias("charge"))
    charged = rows.where(F.col("charge.one").isNotNull()).withColumn("quota", F.col("charge.quota"))
    weighted = F.sum(F.col("charge.one") * F.col("sampleWeight")).alias("amount")
    return charged.groupBy("quota", *by, "second").agg(weighted, F.sum("sampleWeight").alias("requests"))


def mutation_charges(requests: DataFrame, by: Sequence[str], bound: float) -> DataFrame:
    """Return the charges of requests that create or delete partitions, by entity and second.

    `amount` is the number of partitions, and `bucketS` the longest throttle of the token bucket (`E15`).
    """
    key, weight = F.col("requestApiKey"), F.col("sampleWeight")
    taken_us = F.unix_micros(F.col("time")) + F.col("requestQueueTimeUs")
    changes = requests.where(key.isin(*STRICT_FROM) & (F.col("partitionCount") > 0)).select(
        *by,
        "sampleWeight",
        taken_us.alias("timeUs"),
        (F.col("partitionCount").cast("long") * weight).alias("tokens"),
        reduce(or_, ((key == api) & (F.col("requestApiVersion") >= at) for api, at in STRICT_FROM.items())).alias(
            "isStrict"
        ),
    )
    placed = with_token_throttle(changes, by, bound).withColumn("second", F.floor(F.col("timeUs") / _US).cast("long"))
    summed = placed.groupBy(*by, "second").agg(
        F.sum("tokens").alias("amount"),
        F.sum("sampleWeight").alias("requests"),
        F.max("throttleS").alias("bucketS"),
    )
    return summed.withColumn("quota", F.lit(MUTATION))


def connection_charges(connections: DataFrame) -> DataFrame:
    """Return the number of connections that each address opened per second, as `amount` and `requests` (`A11`)."""
    opened = connections.where(F.col("event") == "open")
    placed = opened.select(
        F.lit(CONNECTION).alias("quota"), "address", second_of(F.col("time"), F.lit(0)).alias("second")
    )
    counted = placed.groupBy("quota", "address", "second").agg(F.count("*").alias("requests"))
    return counted.withColumn("amount", F.col("requests"))
