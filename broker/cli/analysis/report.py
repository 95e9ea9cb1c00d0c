"""`rotunda report NAME`: runs a Spark job over the request log of this broker, on this machine by default.

Adds the paths of the log and of the result; all other options are the job's. Needs no running broker, and PySpark only
here.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from rotunda.broker.errors import BootFailed, RotundaError
from rotunda.broker.request_log.part_files import DIRECTORY
from rotunda.broker.runtime import run_dir
from rotunda.broker.text_table import aligned

#: Below the data directory: results of jobs, each in a directory of its own, and the hourly tables.
REPORTS, ROLLUPS = "reports", "rollups"
_NOT_RUNNING_EXIT_CODE = 3


def run(parsed: argparse.Namespace, environment: Mapping[str, str]) -> int:
    """Run a job and return its exit code; without a name list the jobs.

    Raises RotundaError when PySpark or the log is missing.
    """
    if parsed.name is None:
        jobs = import_module("rotunda.spark.jobs")
        rows = [(name, jobs.question_of(jobs.source_of(name))) for name in jobs.JOBS]
        print("\n".join(aligned(("REPORT", "QUESTION"), rows)))
        return 0
    if find_spec("pyspark") is None:
        raise RotundaError("PySpark is not installed; install it with: pip install 'pyspark>=4,<5'")
    where = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    where.add_argument("--run-dir", type=Path, default=parsed.run_dir)
    where.add_argument("--data-dir", default=parsed.data_dir)
    where.add_argument("--input")
    where.add_argument("--output")
    where.add_argument("--rollups")
    where.add_argument("--master", default="local[*]")
    given, rest = where.parse_known_args(parsed.arguments)
    if "--help" in rest or "-h" in rest:
        return _job(parsed.name, ["--help"])
    if given.input is None or given.output is None:
        data_dir = _data_dir(given, environment)
        given.input = given.input or str(data_dir / DIRECTORY)
        given.output = given.output or str(data_dir / REPORTS / parsed.name)
        given.rollups = given.rollups or str(data_dir / ROLLUPS)
    if given.rollups is not None:
        rest += ["--rollups", given.rollups]
    return _job(parsed.name, ["--input", given.input, "--output", given.output, "--master", given.master, *rest])


def _job(name: str, arguments: list[str]) -> int:
    code: int = import_module("rotunda.spark.__main__").main([name, *arguments])
    return code


def _data_dir(given: argparse.Namespace, environment: Mapping[str, str]) -> Path:
    if given.data_dir is not None:
        return Path(given.data_dir)
    path = given.run_dir or run_dir.default_path(environment)
    record = run_dir.read(path)
    if record is None:
        message = (
            f"no broker runs with run directory {path}; name a data directory with --data-dir, or a log with --input "
            "and a directory for the result with --output"
        )
        raise BootFailed(message, _NOT_RUNNING_EXIT_CODE)
    return Path(record.data_dir)
