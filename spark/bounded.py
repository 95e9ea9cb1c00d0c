"""Rows collected to the driver: every collect of a job is bounded here, so that the driver's memory suffices.

`first` and `take` have their bound in the call. All other rows stay in Spark, which writes them.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, Row

from rotunda.spark.failures import JobFailed

#: More than a chart or a headline needs, and the hours of ten years.
MOST = 100_000


def rows_of(frame: DataFrame, most: int = MOST) -> list[Row]:
    """Return the rows of a frame with at most `most` rows. Raises JobFailed when it has more."""
    rows = frame.limit(most + 1).collect()
    if len(rows) > most:
        columns = ", ".join(frame.columns)
        raise JobFailed(f"there are more than {most:,} rows of {columns}, which is too many: name a shorter range")
    return rows
