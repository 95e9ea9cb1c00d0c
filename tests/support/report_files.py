"""The output of a Spark job as plain files: results of any kind, without Spark."""

import json
from pathlib import Path
from typing import Any

from rotunda.spark.results.charts import Chart, Series, to_svg

CHART = Chart("Requests by client", "bars", ["app", "billing"], [Series("requests", [1200, 300])], "requests")


def summary(job: str, **changes: Any) -> dict[str, Any]:
    """Return a summary as a job writes it; `changes` are other values of its fields."""
    return {
        "version": 1,
        "job": job,
        "question": "What happened?",
        "command": f"rotunda report {job} --from 24h",
        "from": "2026-03-01T10:00:00+00:00",
        "to": "2026-03-01T12:00:00+00:00",
        "ended": "2026-03-01T12:00:09.500000+00:00",
        "tookS": 9.5,
        "headline": f"What {job} found",
        "certainty": "complete: every request of the range has its row",
        "rowsRead": 1500,
        "requests": 1500,
        "gapRows": 0,
        "facts": {"clients": 2},
        "chart": CHART.title,
        "tables": {
            "clients": {"columns": ["clientId", "requests", "p99Us"], "rows": [["app", 1200, 20.5], [None, 300, 4e6]]}
        },
        **changes,
    }


def write_report(reports: Path, job: str, chart: Chart | str | None = CHART, **changes: Any) -> Path:
    """Write a result and return its summary's file; a chart may be any text."""
    directory = reports / job
    directory.mkdir(parents=True, exist_ok=True)
    if chart is not None:
        (directory / "chart.svg").write_text(chart if isinstance(chart, str) else to_svg(chart), encoding="utf-8")
        changes = {"chart": CHART.title if isinstance(chart, str) else chart.title, **changes}
    hidden = directory / ".summary.json"
    hidden.write_text(json.dumps(summary(job, **changes)), encoding="utf-8")
    return hidden.rename(directory / "summary.json")
