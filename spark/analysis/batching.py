"""Batch sizes of producers, and the number of requests with a longer linger or larger batches.

Pure transforms of Produce rows. The model divides time into windows as long as the linger, at multiples of it. Records
that a client sends to one partition within one window share requests: as many as batches of the given size need, and
never more than the log has. A real producer's window begins with its first record, so requests on both sides of an edge
could share a request: the model underestimates the savings. It ignores requests with several partitions (a row names
only the first) and the better compression of larger batches. A row with sample weight w counts as w windows like its
own.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the field's name for it

#: Columns that both transforms read.
COLUMNS = ("time", "clientId", "topic", "partition", "records", "requestBytes", "recordBytes", "codec", "sampleWeight")
_QUANTILES = {"P50": 0.5, "P95": 0.95}


def batch_sizes(produces: DataFrame) -> DataFrame:
    """Return records and bytes of a request by client and codec: means, medians and 95th percentiles."""
    sized = _sized(produces)
    measures = {"records": "recordsPerRequest", "bytes": "bytesPerRequest"}
    weight = F.col("weight")
    found = sized.groupBy("clientId", "codec").agg(
        F.sum(weight).alias("requests"),
        *(F.sum(F.col(measure) * weight).alias(measure) for measure in measures),
        *(
            F.percentile(measure, fraction, weight).alias(f"{name}{quantile}")
            for measure, name in measures.items()
            for quantile, fraction in _QUANTILES.items()
        ),
    )
    means = [(F.col(measure) / F.col("requests")).alias(f"{name}Mean") for measure, name in measures.items()]
    quantiles = [f"{name}{quantile}" for name in measures.values() for quantile in _QUANTILES]
    table = found.select("clientId", "codec", "requests", "records", "bytes", *means, *quantiles)
    return table.orderBy(F.desc("requests"), "clientId", "codec")


def savings(produces: DataFrame, lingers_ms: Sequence[int], batch_bytes: Sequence[int]) -> DataFrame:
    """Return the requests sent and the requests of the model, by client, linger and batch size."""
    lingers = F.explode(F.array(*(F.lit(linger) for linger in lingers_ms)))
    asked = _sized(produces).select("*", lingers.alias("lingerMs"))
    place = F.floor(F.unix_micros("time") / (F.col("lingerMs") * 1000))
    windows = asked.groupBy("clientId", "topic", "partition", "lingerMs", place.alias("place")).agg(
        F.sum("weight").alias("requests"),
        F.max("weight").alias("alike"),
        F.sum(F.col("bytes") * F.col("weight")).alias("bytes"),
    )
    sizes = F.explode(F.array(*(F.lit(size).cast("long") for size in batch_bytes)))
    sent = windows.select("*", sizes.alias("batchBytes"))
    batches = F.greatest(F.ceil(F.col("bytes") / F.col("alike") / F.col("batchBytes")), F.lit(1))
    needed = F.least(F.col("requests"), F.col("alike") * batches)
    summed = sent.groupBy("clientId", "lingerMs", "batchBytes").agg(
        F.sum("requests").alias("requests"), F.sum(needed).alias("requestsThen")
    )
    saved = 1 - F.col("requestsThen") / F.col("requests")
    table = summed.select("clientId", "lingerMs", "batchBytes", "requests", "requestsThen", saved.alias("savedShare"))
    most = F.desc(F.col("requests") - F.col("requestsThen"))
    return table.orderBy(most, "clientId", "lingerMs", "batchBytes")


def _sized(produces: DataFrame) -> DataFrame:
    # Older logs lack batch sizes: use the size of the request.
    return produces.select(
        "time",
        "clientId",
        "topic",
        "partition",
        "codec",
        F.coalesce("records", F.lit(0)).alias("records"),
        F.coalesce("recordBytes", "requestBytes").cast("long").alias("bytes"),
        F.col("sampleWeight").cast("long").alias("weight"),
    )
