"""Rows that come to the driver: all that a job collects comes through here, and never more than fit there.

What `first` and `take` return has its bound in the call. Everything else stays with Spark, which writes it.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, Row

from rotunda.spark.failures import JobFailed

#: More than a chart or a headline wants, and the hours of ten years.
MOST = 100_000


def rows_of(frame: DataFrame, most: int = MOST) -> list[Row]:
    """Return the rows of a frame that can have so many at most. Raises JobFailed when it has more."""
    rows = frame.limit(most + 1).collect()
    if len(rows) > most:
        columns = ", ".join(frame.columns)
        raise JobFailed(f"there are more than {most:,} rows of {columns}, which is too many: name a shorter range")
    return rows
