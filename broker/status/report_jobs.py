"""The Spark jobs for the status page: a description and the required options of each.

Their source files are read and never imported, because an import would load PySpark, which the broker does not need.
"""

from __future__ import annotations

import ast
from importlib import import_module
from typing import TYPE_CHECKING

from rotunda.web.sources import JobFacts

if TYPE_CHECKING:
    from collections.abc import Iterator


def report_jobs() -> dict[str, JobFacts]:
    """Return the facts of each job, by its name."""
    jobs = import_module("rotunda.spark.jobs")
    trees: dict[str, ast.Module] = {name: jobs.source_of(name) for name in jobs.JOBS}
    return {name: JobFacts(jobs.question_of(tree), " ".join(_required(tree))) for name, tree in trees.items()}


def _required(tree: ast.Module) -> Iterator[str]:
    """Yield each required option of a command line, with the name of its value."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "add_argument":
            given = {each.arg: each.value for each in node.keywords}
            texts = [each.value for each in (*node.args, given.get("metavar")) if isinstance(each, ast.Constant)]
            is_required = given.get("required")
            if isinstance(is_required, ast.Constant) and is_required.value is True:
                yield " ".join(str(text) for text in texts)
