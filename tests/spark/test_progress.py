"""The progress line of a job."""

import io
import sys

import pytest
from pyspark.sql import SparkSession

from rotunda.spark.progress import progress
from tests.support.deadline import wait_until


class Terminal(io.StringIO):
    """A terminal's stderr."""

    def isatty(self) -> bool:
        return True


def test_a_terminal_is_shown_progress_on_one_line_that_is_cleared(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = Terminal()
    monkeypatch.setattr(sys, "stderr", shown)
    with progress(spark, "latency"):
        wait_until(lambda: "latency: planning, " in shown.getvalue(), "the line")
    assert "\n" not in shown.getvalue()
    assert shown.getvalue().endswith("\r\x1b[K")


def test_a_file_is_shown_none(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = io.StringIO()
    monkeypatch.setattr(sys, "stderr", shown)
    with progress(spark, "latency"):
        spark.range(1).count()
    assert not shown.getvalue()
