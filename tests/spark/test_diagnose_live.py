"""The diagnosis of real brokers in which the test causes the condition that is to be found."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark.jobs.diagnose import COLUMNS, transform
from spark.load_features import features
from spark.request_log import RequestLog
from spark.time_range import TimeRange, to_us
from tests.support.caused_conditions import CONDITIONS, cause

#: All that a run leaves lies in one window, unless midnight comes between.
WINDOW_US = 86_400_000_000

FOUND = {
    "nothing": ("healthy", None),
    "slow disk": ("log", "slow log"),
    "stopped handler": ("handler", "stalled handler"),
    "hot partition": ("handler", "hot partition"),
    "few processors": ("network", "few processors"),
    "slow reader": ("client", "slow client"),
    "full ring": ("request queue", "full ring"),
    "connection storm": ("connection set-up", "connection storm"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CONDITIONS)
def test_a_condition_that_the_test_causes_is_found(spark: SparkSession, tmp_path: Path, name: str) -> None:
    log = RequestLog(spark, str(cause(tmp_path, CONDITIONS[name])))
    now = datetime.now(UTC)
    around = TimeRange(to_us(now - timedelta(hours=1)), to_us(now + timedelta(hours=1)))
    requests, roles, connections, gaps = (log.read(name, around, columns) for name, columns in COLUMNS.items())
    found = transform(features(requests, roles, connections, gaps, WINDOW_US)).collect()
    assert {(row.bottleneck, row.rule) for row in found} == {FOUND[name]}, found
