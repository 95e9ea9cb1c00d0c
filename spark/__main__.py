"""`python -m rotunda.spark NAME …`: runs the job with this name."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module

from rotunda.broker.text_table import did_you_mean
from rotunda.spark.job import main as run_job
from rotunda.spark.job import run_all
from rotunda.spark.jobs import ALL, EXPORT, JOBS, OF_ALL


def main(arguments: Sequence[str]) -> int:
    """Run the job named by the first argument and return its exit code; 2 for an unknown name."""
    name = arguments[0] if arguments else ""
    if name == EXPORT:
        return int(import_module("rotunda.spark.jobs.export").main(arguments[1:]))
    if name == ALL:
        return run_all([import_module(JOBS[each]).JOB for each in OF_ALL], arguments[1:])
    if name not in JOBS:
        known = (*JOBS, ALL, EXPORT)
        hint = did_you_mean(name, known)
        print(f"rotunda report: unknown report {name!r}{hint}; there are {', '.join(known)}", file=sys.stderr)
        return 2
    return run_job(import_module(JOBS[name]).JOB, arguments[1:])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
