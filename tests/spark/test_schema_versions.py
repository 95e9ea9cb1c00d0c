"""Files of several schemas in one log: older ones lack columns, newer ones have unknown ones."""

from contextlib import nullcontext
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from rotunda.spark import job
from rotunda.spark.analysis.batching import COLUMNS as PRODUCE_COLUMNS
from rotunda.spark.analysis.batching import batch_sizes
from rotunda.spark.hourly.rollups import Rollups
from rotunda.spark.jobs import rollup
from rotunda.spark.jobs.traffic import COLUMNS, flows, transform
from rotunda.spark.log.request_log import RequestLog
from rotunda.spark.time_range import TimeRange
from tests.spark.duck import ask, assert_same
from tests.support.feeds import random_seed
from tests.support.generated_log import LATER_COLUMNS, random_requests, write

HOUR = 492322
RANGE = ("2026-03-01T10:00:00", "2026-03-01T12:00:00")


def newer(path: Path) -> None:
    """Add two columns unknown to this version to a file, one of them nested, before and after the others."""
    table = pq.read_table(path, partitioning=None)
    tags = pa.array([[{"key": "a", "value": n}] for n in range(table.num_rows)])
    table = table.add_column(0, "zone", pa.array(["eu"] * table.num_rows)).append_column("tags", tags)
    pq.write_table(table, path)


def test_older_and_newer_files_count_together(spark: SparkSession, tmp_path: Path) -> None:
    seed = random_seed()
    print(f"seed {seed}")
    log = tmp_path / "request-log"
    write(log, "requests", random_requests(seed, 300), LATER_COLUMNS)
    write(log, "requests", random_requests(seed + 1, 300))
    for path in write(log, "requests", random_requests(seed + 2, 300)):
        newer(path)
    rollups = Rollups(spark, str(tmp_path / "rollups"), RequestLog(spark, str(log)))
    assert set(rollups.store([HOUR, HOUR + 1])) == {HOUR, HOUR + 1}
    time_range = TimeRange.of(*RANGE, datetime(2026, 3, 2, tzinfo=UTC))
    assert rollups.coverage(time_range).rows == 900
    requests, _ = rollups.read(time_range)
    sums = requests.groupBy("clientId", "requestApiKeyName").agg({"requests": "sum", "recordBytes": "sum"})
    assert_same(
        sums.select("clientId", "requestApiKeyName", "sum(requests)", "sum(recordBytes)"),
        ask(log, "requests", RANGE, "SELECT clientId, requestApiKeyName, sum(w)::BIGINT, sum(w * recordBytes)::BIGINT "
            "FROM r GROUP BY ALL"),
    )  # fmt: skip
    raw = RequestLog(spark, str(log))
    topics = transform(flows(raw.read("requests", time_range, COLUMNS)), ("topic",))
    assert_same(
        topics.select("topic", "requests", "bytesIn"),
        ask(log, "requests", RANGE, "SELECT topic, sum(w)::BIGINT, sum(w * requestBytes)::BIGINT FROM r GROUP BY ALL"),
    )
    produces = raw.read("requests", time_range, ("requestApiKeyName", *PRODUCE_COLUMNS))
    batches = batch_sizes(produces.where("requestApiKeyName = 'PRODUCE'"))
    # Batches of the older files have neither codec nor size: a row of their own, or none.
    assert_same(
        batches.where("codec IS NOT NULL").select("clientId", "codec", "requests", "bytes"),
        ask(log, "requests", RANGE, "SELECT clientId, codec, sum(w)::BIGINT, sum(w * recordBytes)::BIGINT FROM r "
            "WHERE requestApiKeyName = 'PRODUCE' AND codec IS NOT NULL GROUP BY ALL"),
    )  # fmt: skip


def test_a_later_format_beside_this_one_ends_a_rollup_with_one_line_and_nothing_written(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(job, "session", lambda *_, **__: nullcontext(spark))
    write(tmp_path / "request-log", "requests", random_requests(1, 50))
    later = tmp_path / "request-log" / "groups" / "v=2"
    later.mkdir(parents=True)
    where = ["--input", str(tmp_path / "request-log"), "--output", str(tmp_path / "out")]
    assert job.main(rollup.JOB, [*where, "--from", "2026-03-01T10:00", "--to", "2026-03-01T12:00"]) == 1
    assert capsys.readouterr() == (
        "",
        f"rotunda report rollup: {later} has a format that this job does not know; it knows v=1. "
        "Use the job of the broker that wrote it\n",
    )
    assert not (tmp_path / "rollups").exists()
