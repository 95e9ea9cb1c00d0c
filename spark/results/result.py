"""The answer of a job: a headline, tables, perhaps a chart, and how much of the range it stands on."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from rotunda.spark.log.request_log import Coverage
    from rotunda.spark.results.charts import Chart


@dataclass(frozen=True, slots=True)
class Result:
    """An answer: a headline of one sentence, tables by name (the first is printed), perhaps a chart.

    `coverage` says what the log has of the range. `facts` are single numbers for the summary. `lacking` says what the
    answer lacks in hours whose rows retention has deleted; nothing if the hourly tables have all that it needs.
    """

    headline: str
    tables: dict[str, DataFrame]
    coverage: Coverage
    chart: Chart | None = None
    facts: dict[str, object] = field(default_factory=dict)
    lacking: str = ""

    @property
    def certainty(self) -> str:
        """What sampling, gaps and deleted rows do to the answer, in a sentence."""
        deleted = self.coverage.deleted.sentence(self.lacking)
        if not deleted:
            return self.coverage.certainty
        return deleted if self.coverage.is_complete else f"{self.coverage.certainty}; {deleted}"
