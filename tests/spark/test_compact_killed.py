"""`rotunda report compact` as a process: killed at several points and repeated, while others read all the time."""

import subprocess
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path

import duckdb
import pytest

from rotunda.broker.request_log import log_reader, part_files
from rotunda.broker.request_log.log_reader import Query
from rotunda.spark.hourly.compaction import ASIDE
from tests.spark.test_compact import counted_all_the_time
from tests.spark.test_runs import JOB_SECONDS, QUICK_TO_START, command, run
from tests.support.broker_process import REPOSITORY
from tests.support.deadline import wait_until
from tests.support.feeds import random_seed
from tests.support.generated_log import random_requests, write
from tests.support.sampling import Sampling

HOURS, FILES, ROWS = 8, 3, 240
RANGE = ["--from", "2026-03-01T10:00", "--to", "2026-03-01T18:00"]


class Log:
    """Hours of some small files each."""

    def __init__(self, root: Path) -> None:
        self.root = root
        seed = random_seed()
        print(f"seed {seed}")
        for number in range(FILES):
            write(root, "requests", random_requests(seed + number, ROWS, HOURS))
        self.files = f"read_parquet('{root}/requests/**/*.parquet', hive_partitioning = false)"

    def count(self) -> int:
        with duckdb.connect() as connection:
            ((rows,),) = connection.sql(f"SELECT count(*) FROM {self.files}").fetchall()  # noqa: S608
        return int(rows)

    def content(self) -> Counter[str]:
        """Return all rows, each as a text."""
        sql = f"SELECT * REPLACE (epoch_us(time) AS time) FROM {self.files}"  # noqa: S608
        with duckdb.connect() as connection:
            return Counter(map(repr, connection.sql(sql).fetchall()))

    def hours_done(self) -> int:
        return len(list((self.root / "requests").rglob(part_files.REPLACED)))

    def is_writing(self) -> bool:
        """Return whether Spark is at writing the new files of an hour."""
        return any((self.root / ASIDE / "written").rglob("*.parquet"))

    def is_aside(self) -> bool:
        """Return whether there is a directory that is to change places with an hour's, or has."""
        return any((self.root / ASIDE / "requests").glob("*/*/*/*"))


@pytest.mark.slow
@pytest.mark.timeout(14 * JOB_SECONDS)
def test_killed_at_any_point_and_repeated_every_reader_has_every_row_once(tmp_path: Path, sampling: Sampling) -> None:
    log = Log(tmp_path / "request-log")
    before = log.content()
    arguments = command(tmp_path, "compact", *RANGE)
    with counted_all_the_time(
        log.count, lambda: len(log_reader.read(log.root, "requests", Query(0))), pause_s=1.0
    ) as seen:
        points: list[tuple[str, Callable[[int], bool]]] = [
            ("new files are being written", lambda _: log.is_writing()),
            # A directory is moved aside for some milliseconds: if all scans miss it, one more hour is done.
            ("a directory stands aside", lambda done: log.is_aside() or log.hours_done() > done),
            ("two hours more are done", lambda done: log.hours_done() >= done + 2),
        ]
        for what, is_reached in sampling.some(1, points):
            kill(log, arguments, what, partial(is_reached, log.hours_done()))
            assert log.content() == before
        last = run(arguments, seconds=4 * JOB_SECONDS)
        assert (last.returncode, last.stderr) == (0, "")
    assert seen == [{FILES * ROWS}, {FILES * ROWS}]
    assert log.content() == before
    names = [part.path.name for part in part_files.finished(log.root)]
    assert len(names) == HOURS
    assert all(name.startswith(part_files.COMPACTED) for name in names)
    assert not (log.root / ASIDE).exists()
    assert "files became" in last.stdout


def kill(log: Log, arguments: list[str], what: str, reached: Callable[[], bool]) -> None:
    """Start the job and end it with SIGKILL at a point of its work."""
    with subprocess.Popen(
        arguments, cwd=REPOSITORY, env=QUICK_TO_START, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as running:
        try:
            wait_until(lambda: reached() or running.poll() is not None, what, 3 * JOB_SECONDS)
        finally:
            running.kill()
        _, errors = running.communicate()
    assert running.returncode < 0, f"it had ended before: {what}; {errors}"
    assert log.hours_done() < HOURS
