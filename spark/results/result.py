"""The result of a job: a headline, tables, perhaps a chart, and the coverage of the range."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from rotunda.spark.log.request_log import Coverage
    from rotunda.spark.results.charts import Chart


@dataclass(frozen=True, slots=True)
class Result:
    """A result: a headline of one sentence, tables by name (the first is printed), perhaps a chart.

    `coverage` is the log's coverage of the range. `facts` are single numbers for the summary. `lacking` describes the
    result's limits in hours whose rows retention has deleted; empty if the hourly tables suffice. `unwritten` is about
    requests that are not on disk yet.
    """

    headline: str
    tables: dict[str, DataFrame]
    coverage: Coverage
    chart: Chart | None = None
    facts: dict[str, object] = field(default_factory=dict)
    lacking: str = ""
    unwritten: str = ""

    @property
    def certainty(self) -> str:
        """The effect of sampling, gaps, deleted and unwritten rows on the result, as a sentence."""
        deleted = self.coverage.deleted.sentence(self.lacking)
        counted = self.coverage.certainty if not deleted or not self.coverage.is_complete else ""
        return "; ".join(filter(None, (counted, deleted, self.unwritten)))
