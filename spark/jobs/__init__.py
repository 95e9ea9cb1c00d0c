"""One file per report: a pure `transform` of data frames, and the job around it.

`JOBS` lists them all, so that a command need not import the jobs that it does not run, nor PySpark.
"""

from __future__ import annotations

import ast
from importlib.util import find_spec
from pathlib import Path

#: Module by name of the job.
JOBS = {
    name: f"rotunda.spark.jobs.{name}"
    for name in (
        "rollup",
        "capacity",
        "compact",
        "clients",
        "diagnose",
        "errors",
        "groups",
        "latency",
        "quotas",
        "replay",
        "slo",
        "traffic",
    )
}

#: The job over the records of topics: it has options and an output of its own.
EXPORT = "export"
#: Every report in one session: the jobs that neither change the log or its tables nor write a load profile.
ALL = "all"
OF_ALL = tuple(name for name in JOBS if name not in ("rollup", "compact", "replay"))
_MODULES = {**JOBS, EXPORT: "rotunda.spark.jobs.export"}


def source_of(name: str) -> ast.Module:
    """Return the syntax tree of a job's file."""
    spec = find_spec(_MODULES[name])
    return ast.parse("" if spec is None or spec.origin is None else Path(spec.origin).read_text(encoding="utf-8"))


def question_of(tree: ast.Module) -> str:
    """Return the question that a job answers: the first paragraph of its docstring."""
    return " ".join((ast.get_docstring(tree) or "").partition("\n\n")[0].split())
