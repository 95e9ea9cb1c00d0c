"""The progress line: the state of a job on stderr, if that is a terminal.

A thread polls Spark for the finished tasks of the active stages. It overwrites its own line and clears it at the end.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_EVERY_S = 0.5
_CLEAR = "\r\x1b[K"


@contextmanager
def progress(spark: SparkSession, name: str) -> Iterator[None]:
    """Show Spark's progress while the block runs."""
    if not sys.stderr.isatty():
        yield
        return
    done = threading.Event()
    thread = threading.Thread(target=_show, args=(spark, name, done), daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
        print(_CLEAR, end="", file=sys.stderr, flush=True)


def _show(spark: SparkSession, name: str, done: threading.Event) -> None:
    tracker = spark.sparkContext.statusTracker()
    seconds = 0.0
    while not done.wait(_EVERY_S):
        seconds += _EVERY_S
        stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
        finished = sum(stage.numCompletedTasks for stage in stages if stage)
        tasks = sum(stage.numTasks for stage in stages if stage)
        under_way = f"{finished} of {tasks} tasks" if tasks else "planning"
        print(f"{_CLEAR}{name}: {under_way}, {seconds:.0f} s", end="", file=sys.stderr, flush=True)
