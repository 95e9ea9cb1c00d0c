"""The answer of a job: a headline, tables, perhaps a chart, and how much of the range it stands on."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from spark.charts import Chart
    from spark.request_log import Coverage


@dataclass(frozen=True, slots=True)
class Result:
    """An answer: a headline of one sentence, tables by name (the first is printed), perhaps a chart.

    `coverage` says what the log has of the range. `facts` are single numbers for the summary.
    """

    headline: str
    tables: dict[str, DataFrame]
    coverage: Coverage
    chart: Chart | None = None
    facts: dict[str, object] = field(default_factory=dict)
