"""The same jobs elsewhere: on workers of their own, and handed to spark-submit with the package as a zip file."""

import json
import os
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tests.spark.test_runs import JOB_SECONDS, RANGE, failed_with, run
from tests.support.broker_process import REPOSITORY
from tests.support.feeds import random_seed
from tests.support.generated_log import random_requests, write


@pytest.mark.slow
@pytest.mark.timeout(5 * JOB_SECONDS)
def test_workers_and_spark_submit_find_what_one_process_finds(tmp_path: Path) -> None:
    seed = random_seed()
    print(f"seed {seed}")
    write(tmp_path / "request-log", "requests", random_requests(seed, 500))
    found: dict[str, Any] = {}
    submit = [str(Path(sys.executable).with_name("spark-submit")), "--master", "local[2]", "--py-files"]
    commands = {
        "local": [sys.executable, "-m", "spark", "latency", "--master", "local[2]"],
        "workers": [sys.executable, "-m", "spark", "latency", "--master", "local-cluster[2,1,1024]"],
        "submitted": [*submit, str(_package(tmp_path)), str(REPOSITORY / "spark" / "jobs" / "latency.py")],
    }
    for name, command in commands.items():
        where = ["--input", str(tmp_path / "request-log"), "--output", str(tmp_path / name), "--by", "client"]
        done = run([*command, *where, *RANGE], {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"})
        assert done.returncode == 0, done.stderr
        assert name == "submitted" or done.stderr == ""
        found[name] = json.loads((tmp_path / name / "summary.json").read_text())["tables"]["latency"]["rows"]
    assert found["workers"] == found["local"]
    assert found["submitted"] == found["local"]


def _package(directory: Path) -> Path:
    path = directory / "spark.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for file in (REPOSITORY / "spark").rglob("*.py"):
            archive.write(file, file.relative_to(REPOSITORY))
    return path


def test_an_unknown_job_is_bad_usage_and_a_time_that_is_none_a_failure(tmp_path: Path) -> None:
    done = run([sys.executable, "-m", "spark", "nothing"])
    assert done.returncode == 2
    assert "there is no job 'nothing'" in done.stderr
    where = ["--input", str(tmp_path), "--output", str(tmp_path)]
    line = failed_with(run([sys.executable, "-m", "spark", "latency", *where, "--from", "x"]))
    assert "'x' is not a time" in line
