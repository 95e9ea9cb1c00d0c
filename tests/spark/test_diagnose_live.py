"""The diagnosis of real brokers in which the test causes the condition that is to be found."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql import Row, SparkSession

from spark.jobs.diagnose import COLUMNS, transform
from spark.load_features import features
from spark.request_log import RequestLog
from spark.time_range import TimeRange, to_us
from tests.support.caused_conditions import CONDITIONS, cause

#: All that a run leaves lies in one window, unless midnight comes between.
WINDOW_US = 86_400_000_000

#: The rule that has to hold in each condition.
FOUND = {
    "nothing": None,
    "slow disk": "slow log",
    "stopped handler": "stalled handler",
    "hot partition": "hot partition",
    "few processors": "few processors",
    "slow reader": "slow client",
    "full ring": "full ring",
    "connection storm": "connection storm",
}


def rule_besides_cpu(row: Row) -> str | None:
    """Return the first rule that holds but for a lack of CPUs, which is for the machine and not for the test to end."""
    if row.rule != "no cpu":
        return row.rule
    return row.also.split(", ")[0] if row.also else None


@pytest.mark.slow
@pytest.mark.parametrize("name", CONDITIONS)
def test_a_condition_that_the_test_causes_is_found(spark: SparkSession, tmp_path: Path, name: str) -> None:
    log = RequestLog(spark, str(cause(tmp_path, CONDITIONS[name])))
    now = datetime.now(UTC)
    around = TimeRange(to_us(now - timedelta(hours=1)), to_us(now + timedelta(hours=1)))
    requests, roles, connections, gaps = (log.read(name, around, columns) for name, columns in COLUMNS.items())
    found = transform(features(requests, roles, connections, gaps, WINDOW_US)).collect()
    assert {rule_besides_cpu(row) for row in found} == {FOUND[name]}, found
