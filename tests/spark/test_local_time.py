"""Times in tables and summaries are UTC wherever the driver runs: Spark's own are local times without a zone."""

import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from pyspark.sql.types import TimestampType

from rotunda.spark.results.output import plain
from rotunda.spark.results.text_table import cell

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.fixture
def new_york(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Be in New York for a while."""
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "America/New_York")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.usefixtures("new_york")
def test_times_are_utc_in_new_york() -> None:
    collected = TimestampType().fromInternal(round(NOON.timestamp() * 1_000_000))
    assert (collected.tzinfo, collected.hour) == (None, 7)
    assert cell(collected) == cell(NOON) == "2026-03-01 12:00:00"
    assert json.dumps([collected, NOON], default=plain) == json.dumps(["2026-03-01T12:00:00+00:00"] * 2)
