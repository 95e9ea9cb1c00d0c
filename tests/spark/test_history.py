"""The history as the jobs read it: rows of a range, with the columns of their kind."""

from pathlib import Path

from pyspark.sql import SparkSession

from rotunda.broker.request_log.history.hour_files import HourFiles
from rotunda.spark.log.request_log import RequestLog
from rotunda.spark.time_range import TimeRange
from tests.support.generated_log import START


def test_the_history_is_a_dataset_of_the_log(spark: SparkSession, tmp_path: Path) -> None:
    files = HourFiles(tmp_path)
    begin_us = int(START.timestamp()) * 1_000_000
    for minute in range(90):
        time_us = begin_us + minute * 60_000_000
        files.add({"time": time_us, "kind": "api", "name": "PRODUCE", "requests": minute, "totalP99Us": 1_000})
        files.add({"time": time_us, "kind": "role", "name": "handler", "utilisation": 0.5})
        files.save()
    found = RequestLog(spark, str(tmp_path)).read(
        "history", TimeRange(begin_us, begin_us + 70 * 60_000_000), ["kind", "name", "requests", "utilisation"]
    )
    assert sorted(map(tuple, found.where("kind = 'api' AND requests >= 68").collect())) == [
        ("api", "PRODUCE", 68, None),
        ("api", "PRODUCE", 69, None),
    ]
    assert found.where("utilisation = 0.5").count() == 70
