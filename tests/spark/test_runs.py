"""Jobs as they are started: as processes, with errors in one line and exit code 1."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from rotunda.spark.failures import JobFailed
from rotunda.spark.log.request_log import RequestLog
from tests.spark.class_archive import JAVA_OPTIONS
from tests.support.broker_process import REPOSITORY
from tests.support.generated_log import random_requests, write

RANGE = ["--from", "2026-03-01T10:00", "--to", "2026-03-01T12:00"]
JOB_SECONDS = 250
#: Of few rows each of the 200 parts that Spark makes of a table is a task without any.
FEW_PARTS = ["--conf", "spark.sql.shuffle.partitions=2"]
QUICK_TO_START = {
    **os.environ, "JAVA_TOOL_OPTIONS": JAVA_OPTIONS, "PYSPARK_SUBMIT_ARGS": " ".join([*FEW_PARTS, "pyspark-shell"]),
}  # fmt: skip


def command(directory: Path, name: str, *arguments: str) -> list[str]:
    """Return the command line of a job over the log in a directory."""
    where = ["--input", str(directory / "request-log"), "--output", str(directory / "out" / name)]
    return [sys.executable, "-m", "rotunda", "report", name, *where, "--master", "local[2]", *arguments]


def run(
    arguments: list[str], environment: Mapping[str, str] | None = None, seconds: float = JOB_SECONDS
) -> subprocess.CompletedProcess[str]:
    """Run a job to its end."""
    surroundings = {**QUICK_TO_START, **(environment or {})}
    return subprocess.run(
        arguments, capture_output=True, text=True, check=False, timeout=seconds, cwd=REPOSITORY, env=surroundings
    )


def failed_with(done: subprocess.CompletedProcess[str]) -> str:
    """Return the one line that a failed job leaves on stderr."""
    assert done.returncode == 1, done.stderr
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    return line


def test_without_java_a_job_says_what_to_install(tmp_path: Path) -> None:
    write(tmp_path / "request-log", "requests", random_requests(1, 10))
    line = failed_with(run(command(tmp_path, "latency", *RANGE), {"JAVA_HOME": str(tmp_path)}))
    assert line == (
        f"rotunda report latency: no Java found in JAVA_HOME={tmp_path}; "
        "Spark needs Java 17 or later: install a JRE, or set JAVA_HOME"
    )


def test_a_range_without_length_is_one_line(tmp_path: Path) -> None:
    line = failed_with(run(command(tmp_path, "latency", "--from", "1h", "--to", "2h")))
    assert "the range from 1h to 2h is empty" in line


def test_without_a_log_a_job_names_the_option(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(JobFailed, match=f"no request log in {tmp_path}/none; name its directory with --input"):
        RequestLog(spark, f"{tmp_path}/none")
