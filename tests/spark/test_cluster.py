"""The same jobs elsewhere: on executors of their own, and handed to spark-submit with the package as a zip file."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import duckdb
import pyspark
import pytest

import rotunda
from tests.integration.test_start_secure import Secured
from tests.spark.test_runs import FEW_PARTS, JOB_SECONDS, QUICK_TO_START, RANGE, failed_with, run
from tests.support.broker_process import REPOSITORY
from tests.support.deadline import wait_until
from tests.support.feeds import random_seed
from tests.support.generated_log import random_requests, write


class Cluster(NamedTuple):
    """The URL of a master, and the directory of its worker."""

    master: str
    work: Path

    def executors(self) -> int:
        """Return how many executors the worker has started."""
        return len(list(self.work.glob("app-*/*/stderr")))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Run a master and a worker of two cores, as an administrator starts them."""
    directory = tmp_path_factory.mktemp("cluster")
    with ExitStack() as started:
        listening = daemon(started, directory, "master", "master.Master", "--host", "127.0.0.1", "--port", "0")
        url = wait_until(lambda: re.search(r"spark://127\.0\.0\.1:\d+", listening()), "the master", JOB_SECONDS)[0]
        worker = daemon(
            started, directory, "worker", "worker.Worker", "--host", "127.0.0.1", "--cores", "2", "--memory", "2g",
            "--work-dir", str(directory / "worker"), url,
        )  # fmt: skip
        wait_until(lambda: "Successfully registered with master" in worker(), "a worker", JOB_SECONDS)
        yield Cluster(url, directory / "worker")


@pytest.mark.slow
@pytest.mark.timeout(4 * JOB_SECONDS)
def test_a_master_with_a_worker_runs_what_spark_submit_is_given(cluster: Cluster, tmp_path: Path) -> None:
    seed = random_seed()
    print(f"seed {seed}")
    rows = random_requests(seed, 500)
    write(tmp_path / "request-log", "requests", rows)
    before = cluster.executors()
    where = ["--input", str(tmp_path / "request-log"), "--output", str(tmp_path / "found"), "--by", "client"]
    submit = [str(Path(sys.executable).with_name("spark-submit")), "--master", cluster.master, *FEW_PARTS, "--py-files"]
    command = [*submit, str(_package(tmp_path)), str(REPOSITORY / "spark" / "jobs" / "latency.py"), *where, *RANGE]
    surroundings = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "SPARK_LOCAL_IP": "127.0.0.1"}
    done = run(command, surroundings, 2 * JOB_SECONDS)
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "found" / "summary.json").read_text())
    assert found["rowsRead"] == len(rows)
    assert found["tables"]["latency"]["rows"]
    assert cluster.executors() > before


@pytest.mark.slow
@pytest.mark.timeout(4 * JOB_SECONDS)
def test_a_master_with_a_worker_exports_a_topic_of_a_secured_broker(cluster: Cluster, tmp_path: Path) -> None:
    output, before = tmp_path / "orders", cluster.executors()
    secured = Secured(tmp_path)
    secured.start()
    try:
        records = "".join(f"{each}\n" for each in range(100))
        produce = [sys.executable, "-m", "rotunda", "produce", "orders", *secured.where]
        subprocess.run(produce, input=records, text=True, check=True, cwd=REPOSITORY, timeout=JOB_SECONDS)
        export = [sys.executable, "-m", "rotunda", "report", *secured.where, "export", "orders"]
        where = ["--output", str(output), "--master", cluster.master]
        done = run([*export, *where], {"PYSPARK_PYTHON": sys.executable}, JOB_SECONDS)
    finally:
        secured.stop()
    assert "100 records of orders: run 1" in done.stdout, done.stderr
    assert cluster.executors() > before
    with duckdb.connect() as connection:
        found = connection.sql(f"SELECT value FROM read_parquet('{output}/records/**/*.parquet')").fetchall()  # noqa: S608
    assert sorted(value.decode() for (value,) in found) == sorted(records.split())


def daemon(started: ExitStack, directory: Path, name: str, kind: str, *words: str) -> Callable[[], str]:
    """Start a process of Spark's own cluster that ends with `started`; return a function that reads its log."""
    home = Path(pyspark.__file__).parent
    log = directory / f"{name}.log"
    command = [str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{kind}", "--webui-port", "0", *words]
    surroundings = {
        **QUICK_TO_START, "SPARK_HOME": str(home), "SPARK_DAEMON_MEMORY": "256m", "SPARK_LOCAL_IP": "127.0.0.1",
    }  # fmt: skip
    with log.open("w") as output:
        process = subprocess.Popen(command, cwd=directory, env=surroundings, stdout=output, stderr=subprocess.STDOUT)
    started.callback(process.wait, JOB_SECONDS)
    started.callback(process.terminate)
    return lambda: log.read_text(errors="replace")


def _package(directory: Path) -> Path:
    path = directory / "rotunda.zip"
    subprocess.run([sys.executable, "-m", "zipfile", "-c", path, rotunda.__path__[0]], check=True)
    return path


def test_an_unknown_job_is_bad_usage_and_a_time_that_is_none_a_failure(tmp_path: Path) -> None:
    done = run([sys.executable, "-m", "rotunda.spark", "nothing"])
    assert done.returncode == 2
    assert "unknown report 'nothing'" in done.stderr
    where = ["--input", str(tmp_path), "--output", str(tmp_path)]
    line = failed_with(run([sys.executable, "-m", "rotunda.spark", "latency", *where, "--from", "x"]))
    assert "'x' is not a time" in line
