"""The skew of a load: the Gini coefficient and the largest member.

Pure transforms. A Gini coefficient is 0 when all members have the same share and approaches 1 when one has everything.
Members without traffic have no row in the log and do not count.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - the field's name for it


def skew(shares: DataFrame, scope: Sequence[str]) -> DataFrame:
    """Return a row for each scope: `members`, `bytes`, `gini`, `hottest` and `hottestShare`.

    `shares` has the columns of the scope, `member` and `bytes`, a row for each member. Among equal largest members, the
    last by name is the hottest.
    """
    upward = Window.partitionBy(*scope).orderBy("bytes", "member")
    ranked = shares.select(*scope, "member", "bytes", F.row_number().over(upward).alias("place"))
    summed = ranked.groupBy(*scope).agg(
        F.count("*").alias("members"),
        F.sum("bytes").alias("bytes"),
        F.sum(F.col("place") * F.col("bytes")).alias("_ranked"),
        F.max(F.struct("bytes", "member")).alias("_most"),
    )
    members, whole = F.col("members"), F.col("bytes")
    gini = 2 * F.col("_ranked") / (members * whole) - (members + 1) / members
    has_bytes = whole > 0
    return summed.select(
        *scope,
        "members",
        "bytes",
        F.when(has_bytes, gini).alias("gini"),
        F.col("_most.member").alias("hottest"),
        F.when(has_bytes, F.col("_most.bytes") / whole).alias("hottestShare"),
    )
