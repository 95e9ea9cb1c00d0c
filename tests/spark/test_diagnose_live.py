"""The diagnosis of real brokers in which the test causes the condition that is to be found."""

from collections import defaultdict
from datetime import datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyspark.sql import Row, SparkSession

from rotunda.broker.request_log.part_files import hour_path
from rotunda.spark.analysis.load_features import features
from rotunda.spark.jobs.diagnose import COLUMNS, transform
from rotunda.spark.log.request_log import RequestLog
from rotunda.spark.time_range import TimeRange, to_us
from tests.support.caused_conditions import CONDITIONS, build_load_generator, cause
from tests.support.generated_log import START
from tests.support.sampling import Sampling

#: All that a run leaves lies in one window.
WINDOW = timedelta(days=1)
WINDOW_US = WINDOW // timedelta(microseconds=1)
DAY_S = WINDOW // timedelta(seconds=1)

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


def put(log: Path, together: Path, start: datetime) -> None:
    """Add a log's rows to another, moved in time so that its first request is at `start`."""
    tables = {}
    for name in COLUMNS:
        if files := sorted((log / name).rglob("part-*.parquet")):
            tables[name] = pa.concat_tables([pq.ParquetFile(file).read() for file in files])
    later = pa.scalar(start) - pc.min(tables["requests"]["time"])
    for name, table in tables.items():
        time = pc.add(table["time"], later)
        path = hour_path(together, name, int(start.timestamp()) // 3600) / f"part-{log.parent.parent.name}-1-1.parquet"
        path.parent.mkdir(parents=True)
        pq.write_table(table.set_column(table.schema.get_field_index("time"), table.field("time"), time), path)


@pytest.mark.slow
@pytest.mark.timeout(450)
def test_conditions_that_the_test_causes_are_found(spark: SparkSession, tmp_path: Path, sampling: Sampling) -> None:
    """Each leaves a log, which becomes a day of one: a query needs more time than the load."""
    load_generator = build_load_generator(tmp_path)
    names = {START + number * WINDOW: name for number, name in enumerate(sampling.some(2, list(CONDITIONS)))}
    for start, name in names.items():
        left = cause(tmp_path / name.replace(" ", "-"), CONDITIONS[name], load_generator)
        put(left, tmp_path / "together", start)
    log = RequestLog(spark, str(tmp_path / "together"))
    days = TimeRange(to_us(START - WINDOW), to_us(START + len(names) * WINDOW))
    datasets = {name: log.read(name, days, columns) for name, columns in COLUMNS.items()}
    rows = transform(features(datasets, WINDOW_US, days.end_us)).collect()
    found: dict[str, set[str | None]] = defaultdict(set)
    for row in rows:
        [name] = (name for start, name in names.items() if row.window.timestamp() == start.timestamp() // DAY_S * DAY_S)
        found[name].add(rule_besides_cpu(row))
    assert found == {name: {FOUND[name]} for name in names.values()}, rows
