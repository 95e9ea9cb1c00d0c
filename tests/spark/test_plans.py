"""The input of the jobs, by Spark's own plan: the directories of the range, the columns of the query, and no Python."""

import re
from collections import defaultdict
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from rotunda.spark.analysis import handler_queues, load_features
from rotunda.spark.analysis.batching import COLUMNS as PRODUCE_COLUMNS
from rotunda.spark.analysis.batching import batch_sizes, savings
from rotunda.spark.analysis.connections import EVENT_COLUMNS, REQUEST_COLUMNS, by_client, is_idle, is_short_lived, lives
from rotunda.spark.analysis.lag import Bounds, episodes, spans
from rotunda.spark.analysis.objectives import Objective
from rotunda.spark.analysis.pushed_metrics import PUSHED_COLUMNS, by_instance
from rotunda.spark.analysis.quota_charges import (
    CONNECTION_COLUMNS,
    connection_charges,
    mutation_charges,
    request_charges,
)
from rotunda.spark.analysis.quota_charges import REQUEST_COLUMNS as CHARGED_COLUMNS
from rotunda.spark.hourly.rollups import (
    INPUT_COLUMNS,
    PHASES,
    latencies_by_key,
    merged_latencies,
    merged_requests,
    requests_by_key,
)
from rotunda.spark.jobs import (
    JOBS,
    capacity,
    clients,
    compact,
    diagnose,
    errors,
    groups,
    latency,
    quotas,
    replay,
    slo,
    traffic,
)
from rotunda.spark.log.request_log import RequestLog
from rotunda.spark.log.schema import PARTITION_COLUMNS
from rotunda.spark.time_range import TimeRange
from tests.support.generated_log import START, request, write

RANGE = TimeRange.of("2026-03-01T10:00", "2026-03-01T11:00", datetime(2026, 3, 2, tzinfo=UTC))
OBJECTIVE = Objective("quick", 0.9, 50_000, 60_000_000, {"topic": ("events",)})


def read(log: RequestLog, columns: tuple[str, ...]) -> DataFrame:
    return log.read("requests", RANGE, columns)


def lived(log: RequestLog) -> DataFrame:
    found = lives(log.read("connections", RANGE, EVENT_COLUMNS), read(log, REQUEST_COLUMNS), RANGE.end_us)
    return by_client(found, is_idle(1, 1), is_short_lived(1), 1)


def grouped(log: RequestLog) -> DataFrame:
    rows = log.read("groups", RANGE, groups.COLUMNS)
    held = spans(rows.where("event = 'lag'"), RANGE.end_us)
    events = rows.where("event != 'lag'")
    found = groups.with_unread(groups.rebalances(events), held)
    return groups.transform(events, found, episodes(held, Bounds(1, 1, 1), RANGE.end_us))


def throttled(log: RequestLog) -> DataFrame:
    rows = read(log, CHARGED_COLUMNS)
    together = request_charges(rows, ["fetch", "request"], ["clientId"])
    for more in (
        mutation_charges(rows, ["clientId"], 1.0),
        connection_charges(log.read("connections", RANGE, CONNECTION_COLUMNS)),
    ):
        together = together.unionByName(more, allowMissingColumns=True)
    bounds = dict.fromkeys(["fetch", "request", "mutation", "connection"], 1.0)
    entity = ["clientId", "address"]
    return quotas.transform(quotas.with_any(quotas.throttles(together, bounds, entity), entity), entity)


def replayed(log: RequestLog) -> DataFrame:
    connections = log.read("connections", RANGE, replay.CONNECTION_COLUMNS)
    return replay.transform(read(log, replay.REQUEST_COLUMNS), connections)


def modelled(log: RequestLog) -> DataFrame:
    roles = log.read("roles", RANGE, handler_queues.ROLE_COLUMNS)
    found = handler_queues.queues(read(log, handler_queues.REQUEST_COLUMNS), roles, 60_000_000)
    return capacity.transform(found, capacity.processes(found, roles, 60_000_000), capacity.LOADS, 0.7)


def diagnosed(log: RequestLog) -> DataFrame:
    datasets = {name: log.read(name, RANGE, columns) for name, columns in diagnose.COLUMNS.items()}
    return diagnose.transform(load_features.features(datasets, 60_000_000, RANGE.end_us))


def rolled_up(log: RequestLog) -> DataFrame:
    rows = read(log, INPUT_COLUMNS)
    requests, latencies = merged_requests(requests_by_key(rows)), merged_latencies(latencies_by_key(rows))
    return requests.unionByName(latencies, allowMissingColumns=True)


#: Name: the frame, and the columns of requests that it may read.
QUESTIONS: dict[str, tuple[Callable[[RequestLog], DataFrame], set[str]]] = {
    "traffic": (
        lambda log: traffic.transform(traffic.flows(read(log, traffic.COLUMNS)), ("topic",)),
        {*traffic.COLUMNS},
    ),
    "skew": (
        lambda log: traffic.skews(traffic.flows(read(log, traffic.COLUMNS))),
        {"clientId", "topic", "partition", "requestBytes", "responseBytes", "sampleWeight"},
    ),
    "batches": (lambda log: batch_sizes(read(log, PRODUCE_COLUMNS)), {*PRODUCE_COLUMNS} - {"topic", "partition"}),
    "savings": (
        lambda log: savings(read(log, PRODUCE_COLUMNS), [5, 20], [1000]),
        {*PRODUCE_COLUMNS} - {"records", "codec"},
    ),
    "errors": (lambda log: errors.runs(read(log, errors.COLUMNS), 1), {*errors.COLUMNS}),
    "dropped": (lambda log: clients.dropped(read(log, clients.DEPRECATED_COLUMNS)), {*clients.DEPRECATED_COLUMNS}),
    "pushed": (lambda log: by_instance(log.read("client_metrics", RANGE, PUSHED_COLUMNS)), set()),
    "clients": (lived, {"connection", "clientId", "sampleWeight"}),
    "slo": (
        lambda log: slo.counts(read(log, slo.COLUMNS), [OBJECTIVE], RANGE.end_us),
        {"topic", "totalTimeUs", "remoteTimeUs", "requestApiKeyName", "sampleWeight"},
    ),
    "latency": (
        lambda log: latency.counts_of_rows(
            read(log, ("time", "clientId", *PHASES, "sampleWeight")), ("clientId",), 60_000_000
        ),
        {"clientId", *PHASES, "sampleWeight"},
    ),
    "groups": (grouped, set()),
    "quotas": (throttled, {*CHARGED_COLUMNS} - {"topic", "principal", "requestBytes", "address"}),
    "replay": (replayed, {*replay.REQUEST_COLUMNS}),
    "capacity": (modelled, {*handler_queues.REQUEST_COLUMNS}),
    "diagnose": (diagnosed, {*load_features.REQUEST_COLUMNS}),
    "rollup": (rolled_up, {*INPUT_COLUMNS} - {*PARTITION_COLUMNS}),
    "compact": (lambda log: compact.transform(read(log, INPUT_COLUMNS), 2), {*INPUT_COLUMNS} - {*PARTITION_COLUMNS}),
}

#: Of other datasets, by query: its allowed columns.
OTHERS = {
    ("clients", "connections"): {*EVENT_COLUMNS},
    ("pushed", "client_metrics"): {*PUSHED_COLUMNS},
    ("groups", "groups"): {*groups.COLUMNS},
    ("quotas", "connections"): {"event", "address"},
    ("replay", "connections"): {*replay.CONNECTION_COLUMNS},
    ("capacity", "roles"): {*handler_queues.ROLE_COLUMNS},
    ("diagnose", "roles"): {*load_features.ROLE_COLUMNS},
    ("diagnose", "connections"): {*load_features.CONNECTION_COLUMNS},
    ("diagnose", "gaps"): {*load_features.GAP_COLUMNS},
    ("diagnose", "groups"): {*load_features.GROUP_COLUMNS},
}


@pytest.fixture(scope="module")
def log(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> RequestLog:
    root = tmp_path_factory.mktemp("log")
    write(root, "requests", [request(START)])
    write(root, "connections", [{"time": START, "event": "open", "connection": "0-1-1"}])
    write(root, "client_metrics", [{"time": START, "valueTime": START}])
    write(root, "roles", [{"time": START, "role": "handler", "index": 0}])
    write(root, "gaps", [{"time": START, "rows": 1}])
    write(root, "groups", [{"time": START, "event": "join", "group": "mailer"}])
    return RequestLog(spark, str(root))


def test_every_job_is_looked_at() -> None:
    assert JOBS.keys() <= QUESTIONS.keys()


@pytest.mark.parametrize("name", QUESTIONS)
def test_only_what_the_question_needs_is_read(spark: SparkSession, log: RequestLog, name: str) -> None:
    build, columns = QUESTIONS[name]
    spark.conf.set("spark.sql.maxMetadataStringLength", 10_000)
    try:
        frame: Any = build(log)
        plan = frame._jdf.queryExecution().executedPlan().toString()
    finally:
        spark.conf.unset("spark.sql.maxMetadataStringLength")
    assert not re.search("Python|Pandas|Arrow", plan)
    scans = [line for line in plan.splitlines() if "FileScan parquet" in line]
    assert scans
    read_of: dict[str, set[str]] = defaultdict(set)
    for scan in scans:
        assert "PartitionFilters: [isnotnull(date" in scan or "PartitionFilters: [((date" in scan, scan
        schema = re.search(r"ReadSchema: struct<(.*?)>", scan)
        assert schema is not None
        found = {column.partition(":")[0] for column in schema[1].split(",")}
        dataset = re.search(r"/(\w+)/v=1", scan)
        assert dataset is not None
        read_of[dataset[1]] |= found
        assert "PushedFilters: [IsNotNull(time)" in scan or "GreaterThanOrEqual(time" in scan
    for of, found in read_of.items():
        # The time chooses the rows of the range.
        allowed = columns if of == "requests" else OTHERS[name, of]
        assert found <= allowed | {"time"}
        assert found == allowed | {"time"} or of != "requests"
