"""Jobs as they are started: as processes, with errors in one line and exit code 1."""

import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import duckdb
import pytest
from pyspark.sql import SparkSession

from rotunda.spark.failures import JobFailed
from rotunda.spark.log.request_log import RequestLog
from tests.spark.class_archive import JAVA_OPTIONS
from tests.support.broker_process import REPOSITORY
from tests.support.deadline import wait_until
from tests.support.feeds import random_seed
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


@pytest.mark.slow
@pytest.mark.timeout(4 * JOB_SECONDS)
def test_a_run_that_is_killed_in_the_middle_and_repeated_leaves_the_right_tables(tmp_path: Path) -> None:
    seed = random_seed()
    print(f"seed {seed}")
    rows = random_requests(seed, 2000)
    write(tmp_path / "request-log", "requests", rows)
    arguments = command(tmp_path, "rollup", *RANGE)
    rollups = tmp_path / "rollups"
    first = subprocess.Popen(
        arguments, cwd=REPOSITORY, env=QUICK_TO_START, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    wait_until((rollups / "manifest" / "_under_way.json").exists, "the run has begun to write", JOB_SECONDS)
    first.send_signal(signal.SIGKILL)
    first.wait()
    second = subprocess.Popen(
        arguments, cwd=REPOSITORY, env=QUICK_TO_START, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    third = run(arguments)
    out, errors = second.communicate(timeout=JOB_SECONDS)
    # At the same time: one does the job, the other finds it done or names the running one.
    codes = sorted((second.returncode, third.returncode))
    assert codes in ([0, 0], [0, 1]), errors + third.stderr
    for code, text in ((second.returncode, errors), (third.returncode, third.stderr)):
        assert not text if code == 0 else "another rollup writes to" in text and len(text.splitlines()) == 1
    assert out + third.stdout
    (hours, total) = duckdb.sql(
        f"SELECT count(DISTINCT hour), sum(rows) FROM read_parquet('{rollups}/requests/**/*.parquet')"  # noqa: S608
    ).fetchall()[0]
    assert (hours, total) == (2, len(rows))
    assert not (rollups / "manifest" / "_under_way.json").exists()


@pytest.mark.slow
@pytest.mark.timeout(2 * JOB_SECONDS)
def test_a_terminal_is_shown_progress_on_one_line_that_goes_again(tmp_path: Path) -> None:
    rows = random_requests(1, 200)
    write(tmp_path / "request-log", "requests", rows)
    ours, its = pty.openpty()
    arguments = command(tmp_path, "latency", *RANGE, "--format", "json")
    running = subprocess.Popen(arguments, cwd=REPOSITORY, env=QUICK_TO_START, stdout=subprocess.PIPE, stderr=its)
    os.close(its)
    shown = b""
    # A terminal whose last writer has closed is at its end, which Linux reports as an error.
    with suppress(OSError), os.fdopen(ours, "rb", buffering=0) as terminal:
        while part := terminal.read(4096):
            shown += part
    answer, _ = running.communicate(timeout=JOB_SECONDS)
    assert running.returncode == 0
    summary = json.loads((tmp_path / "out" / "latency" / "summary.json").read_text())
    assert summary["rowsRead"] == len(rows)
    assert summary["certainty"] in answer.decode()
    assert b"latency: " in shown
    assert b"\n" not in shown
    assert shown.endswith(b"\r\x1b[K")
