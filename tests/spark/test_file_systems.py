"""The log and its rollups on file systems that are not the local one, through Hadoop's client.

A mount table (viewfs) in front of a directory of this machine has its own scheme, so that no path counts as local.
"""

import json
import os
import socket
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from rotunda.spark.failures import JobFailed
from rotunda.spark.file_system import FileSystem
from rotunda.spark.hourly.lock import NAME, exclusive
from rotunda.spark.hourly.rollups import Rollups
from rotunda.spark.jobs import compact
from rotunda.spark.log.request_log import RequestLog, lasting
from tests.spark.test_rollups import ALL, EVER, Log
from tests.support.generated_log import random_requests, write

HOUR = 492322


@pytest.mark.parametrize("uri", ["s3a://lake/orders", "nothing://lake/orders"])
def test_a_file_system_that_spark_lacks_is_one_clear_line(spark: SparkSession, uri: str) -> None:
    with pytest.raises(JobFailed, match=f"^{uri} cannot be used: .*; Spark needs the jar of its file system$"):
        FileSystem(spark, uri)


def test_small_files(spark: SparkSession, mounted: str, tmp_path: Path) -> None:
    file_system = FileSystem(spark, mounted)
    assert file_system.local_path is None
    assert FileSystem(spark, f"file://{tmp_path}").local_path == tmp_path
    assert file_system.create("one", "first")
    assert not file_system.create("one", "second")
    assert file_system.read("one") == "first"
    file_system.write("one", "third")
    assert (file_system.read("one"), file_system.names()) == ("third", ["one"])
    file_system.remove("one")
    assert file_system.names() == []


def test_who_comes_second_learns_who_writes(spark: SparkSession, mounted: str, tmp_path: Path) -> None:
    file_system = FileSystem(spark, mounted)
    with exclusive(file_system, "rollup"):
        with pytest.raises(JobFailed) as failure, exclusive(file_system, "rollup"):
            pass
        # The one that failed has not removed the other's lock.
        assert (tmp_path / NAME).exists()
    said = str(failure.value)
    assert f"another rollup writes to {mounted}: process {os.getpid()} on {socket.gethostname()}, since " in said
    assert said.endswith(f"; if that is gone, remove {mounted}/{NAME}")
    assert not (tmp_path / NAME).exists()
    with exclusive(file_system, "rollup"):
        pass


@pytest.mark.parametrize("which", ["local", "file", "mounted"])
def test_the_lock_of_a_dead_process_is_taken_over(
    spark: SparkSession, mounted: str, tmp_path: Path, which: str
) -> None:
    root = {"local": str(tmp_path), "file": f"file://{tmp_path}", "mounted": mounted}[which]
    here = {"host": socket.gethostname(), "pid": os.getpid(), "at": "2026-03-01 10:00:00 UTC"}
    # A process of this number, but started at another time.
    (tmp_path / NAME).write_text(json.dumps(here | {"start": "1"}))
    with exclusive(FileSystem(spark, root), "rollup"):
        assert json.loads((tmp_path / NAME).read_text())["start"] != "1"
    elsewhere = json.dumps(here | {"start": "1", "host": "elsewhere"})
    (tmp_path / NAME).write_text(elsewhere)
    if which == "mounted":
        with pytest.raises(JobFailed, match="on elsewhere"), exclusive(FileSystem(spark, root), "rollup"):
            pass
        assert (tmp_path / NAME).read_text() == elsewhere


class MountedLog(Log):
    """A log that Spark reads through the mount table."""

    root = ""

    def rollups(self) -> Rollups:
        return Rollups(self.spark, f"{self.root}/rollups", RequestLog(self.spark, f"{self.root}/request-log"))


def test_rollups_elsewhere_are_those_of_an_independent_computation(
    spark: SparkSession, mounted: str, tmp_path: Path
) -> None:
    log = MountedLog(spark, tmp_path)
    log.root = mounted
    assert set(log.rollups().store(EVER)) == {HOUR, HOUR + 1}
    # A manifest that is replaced, and an hour that gets a late file.
    (late,) = log.add(log.seed + 1, 100, 1)
    assert [file.name for file in log.rollups().outdated(EVER)[HOUR]] == [late.name]
    assert list(log.rollups().store(EVER)) == [HOUR]
    assert log.rollups().outdated(EVER) == {}
    late.unlink()
    log.check()


@pytest.mark.parametrize("which", ["local", "file", "mounted"])
def test_what_goes_while_it_is_read_is_looked_for_anew(
    spark: SparkSession, mounted: str, tmp_path: Path, which: str
) -> None:
    root = {"local": str(tmp_path), "file": f"file://{tmp_path}", "mounted": mounted}[which]
    first, second = (write(tmp_path, "requests", random_requests(number, 50, 1))[0] for number in (1, 2))
    log = RequestLog(spark, root)
    tries = []

    def count() -> int:
        rows = log.read("requests", ALL, ["time", "clientId"])
        if not tries:
            first.unlink()
        tries.append(len(rows.inputFiles()))
        return len(rows.collect())

    assert lasting(count) == 50
    assert tries == [2, 1]
    assert second.exists()


def test_compact_says_that_it_needs_a_local_file_system(spark: SparkSession, mounted: str, tmp_path: Path) -> None:
    write(tmp_path / "request-log", "requests", random_requests(1, 10, 1))
    log = RequestLog(spark, f"{mounted}/request-log")
    context: Any = type("Context", (), {"log": log})
    with pytest.raises(JobFailed, match="on a local file system alone"):
        compact.answer(context)
