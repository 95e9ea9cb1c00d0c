"""Jobs that change log or hourly tables, killed anywhere and repeated: no row is lost, and none counts twice."""

import os
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterable
from itertools import count
from pathlib import Path
from types import FrameType

import pytest
from pyspark.sql import SparkSession

from rotunda.broker.request_log.part_files import finished
from rotunda.spark.hourly.compaction import ASIDE, HourCompaction, recover
from rotunda.spark.hourly.stored_hours import StoredHour, StoredHours
from rotunda.spark.log.request_log import Part
from tests.spark.test_rollups import ALL, EVER, Log
from tests.support.sampling import Sampling
from tests.support.stepped_broker import Killed

HOUR = "requests/v=1/date=2026-03-01/hour=10"


class Hour:
    """An hour's files below a log; a row is a line."""

    def __init__(self, root: Path) -> None:
        self.root, self.directory = root, root / HOUR
        self.directory.mkdir(parents=True)
        self._numbers = count()
        for _ in range(3):
            self.add()

    def add(self) -> str:
        """Add a file as the recorder does."""
        number = next(self._numbers)
        name = f"part-1.1-1-{number}.parquet"
        (self.directory / name).write_text(f"{number} a\n{number} b\n")
        return name

    def rows(self) -> Counter[str]:
        """Return the rows that a reader finds."""
        return Counter(line for part in finished(self.root) for line in part.path.read_text().splitlines())

    def names(self) -> set[str]:
        """Return the names of the files that a reader finds."""
        return {part.path.name for part in finished(self.root)}

    def compact(self, attempt: str, except_for: str = "") -> None:
        """Compact the files but one, as the job does once Spark has written the new one."""
        parts = sorted(part for part in finished(self.root) if part.path.name != except_for)
        # A task that Spark has not finished either.
        written = self.root / ASIDE / "written"
        for path in (written / "part-0.parquet", written / "_temporary" / "0" / "task_1" / "part-0.parquet"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("".join(part.path.read_text() for part in parts))
        listed = {part.path.name: frozenset({Part(part.path.name, part.size_bytes)}) for part in parts}
        HourCompaction(self.directory, self.root / ASIDE / HOUR / attempt, listed).replace([written / "part-0.parquet"])


def is_killed_at(line: int, do: Callable[[], object]) -> bool:
    """Call `do` in a child that is killed before the `line`-th line of the compaction; return whether it was."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    left = line

    def step(frame: FrameType, event: str, _: object) -> object:
        nonlocal left
        if not frame.f_code.co_filename.endswith(("/compaction.py", "/shutil.py")):
            return None
        left -= event == "line"
        if left <= 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return step

    try:
        sys.settrace(step)
        do()
        os._exit(0)
    finally:
        os._exit(1)


@pytest.mark.parametrize("is_added", [False, True], ids=["alone", "while a file is added"])
def test_a_compaction_that_is_killed_anywhere(tmp_path: Path, sampling: Sampling, *, is_added: bool) -> None:
    for line in sampling.walk(2):
        hour = Hour(tmp_path / f"{line}")
        unlisted = hour.add()
        before = hour.rows()
        was_killed = is_killed_at(line, lambda: hour.compact("first", unlisted))  # noqa: B023
        assert hour.rows() == before, line
        if is_added:
            before += Counter((hour.directory / hour.add()).read_text().splitlines())
        recover(hour.root)
        assert hour.rows() == before, line
        assert not (hour.root / ASIDE).exists()
        hour.compact("second")
        recover(hour.root)
        assert hour.rows() == before, line
        assert len(hour.names()) == 1
        if not was_killed:
            return


def test_rollups_that_die_between_steps(spark: SparkSession, tmp_path: Path, sampling: Sampling) -> None:
    log = Log(spark, tmp_path)
    log.rollups().store(EVER)
    rows = log.rollups().coverage(ALL).rows
    for step in sampling.some(1, ("begin", "write", "a manifest", "clean_up")):
        log.add(log.seed + rows, rows=20)
        rows += 20
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(StoredHours, *dying(step))
            with pytest.raises(Killed):
                log.rollups().store(EVER)
        assert log.rollups().coverage(ALL).rows == rows, step
    log.rollups().store(EVER)
    assert log.rollups().outdated(EVER) == {}
    assert len(log.runs()) == 4
    log.check()


def dying(step: str) -> tuple[str, Callable[..., None]]:
    """Return a method of the stored hours in which a run dies: before it, or after the first of two manifests."""
    write = StoredHours.write

    def killed(hours: StoredHours, stored: Iterable[StoredHour] = (), *_: object) -> None:
        if step == "a manifest":
            write(hours, [*stored][:1])
        # The first clean-up removes what an earlier run has left.
        if step != "clean_up" or hours.file_system.exists("manifest/_under_way.json"):
            raise Killed

    return ("write" if step == "a manifest" else step), killed
