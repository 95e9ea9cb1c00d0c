"""The columns of the request log's datasets, declared once: files, readers and docs/request-log.md derive from them.

Pure; knows neither pyarrow nor numpy. Names are KIP-673's where it has them (`D19`), with our unit as a suffix. Columns
are only ever added, and the version in the path is raised for any other change.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby

from rotunda.broker.request_log.role_counts import column_of_mutes
from rotunda.shm.metrics.catalogue import CLOSE_CAUSES, MUTE_CAUSES, PHASES
from rotunda.shm.recorder_layout import CLIENT_METRICS, HELD_BACK, INJECTED, THROTTLED_BY
from rotunda.shm.tables.process_slots import ROLES as PROCESS_ROLES
from rotunda.shm.tables.process_slots import STATES as PROCESS_STATES

#: Part of the path of every dataset.
FORMAT_VERSION = 1

#: The dataset with a retention of its own.
HISTORY = "history"

#: The percentiles that the history has of each phase, as in the names of its columns.
PERCENTILES = {"P50": 0.5, "P95": 0.95, "P99": 0.99}


def column_of_percentile(phase: str, percentile: str) -> str:
    """Return the history's column of a percentile of a phase."""
    first, *others = phase.split("_")
    return f"{first}{''.join(word.capitalize() for word in others)}{percentile}Us"


TIMESTAMP = "timestamp"
STRING = "string"
BOOL = "bool"
INT16 = "int16"
INT32 = "int32"
INT64 = "int64"
DOUBLE = "double"


@dataclass(frozen=True, slots=True)
class Column:
    """One column: its type, whether it may be null, one line of text; `source` is its name in KIP-673, if any."""

    name: str
    kind: str
    text: str
    nullable: bool = False
    source: str = ""


@dataclass(frozen=True, slots=True)
class Dataset:
    """One dataset of the request log."""

    name: str
    text: str
    columns: tuple[Column, ...]


#: Mutes of connections by processors, by cause.
_MUTES = {
    "pipeline": "how often a processor muted a connection: too many requests in flight",
    "arena": "because there was no block for a large request",
    "ring_full": "because the ring of its handler was full",
    "output": "because responses waited for the client, or for an earlier one",
    "order": "because a Produce of several partitions waited for earlier requests",
    "draining": "because the broker stops",
    "pipeline_bytes": "because of too many bytes of requests in flight",
    "throttled": "because the client had used up a quota",
}

#: The kinds of rows of the history.
HISTORY_KINDS = ("api", "client", "topic", "group", "role", "error", "throttle", "broker", "event")

#: The types of events of the history.
EVENTS = (
    *("broker_start", "broker_stop", "process_restart", "rebalance", "setting", "topic", "quota", "security"),
    *("disk_full", "disk_freed", "listener", "certificate"),
)

_CLIENT = (
    Column("connection", STRING, "processor-generation-counter, as in the broker's log", source="connection"),
    Column("clientId", STRING, "the client's own name", True, "requestHeader.clientId"),
    Column("softwareName", STRING, "client library, from ApiVersions (KIP-511)", True, "clientInformation"),
    Column("softwareVersion", STRING, "its version", True, "clientInformation"),
    Column("address", STRING, "the client's IP address", True),
    Column("principal", STRING, "authenticated user", True, "principal"),
    Column("securityProtocol", STRING, "of the listener", True, "securityProtocol"),
    Column("listener", STRING, "its name", True, "listener"),
    Column("processor", INT16, "which processor has the connection"),
)

REQUESTS = Dataset(
    "requests",
    "One row for each finished request, or for sampleWeight of them. Contents and keys of records are not in it.",
    (
        Column("time", TIMESTAMP, "arrival of the last byte"),
        Column("requestApiKey", INT16, "API", source="requestHeader.requestApiKey"),
        Column("requestApiKeyName", STRING, "its name", source="requestHeader.requestApiKeyName"),
        Column("requestApiVersion", INT16, "its version", source="requestHeader.requestApiVersion"),
        Column(
            "requestApiVersionDeprecated",
            BOOL,
            "whether later brokers do not serve that version",
            source="requestHeader.requestApiVersionDeprecated",
        ),
        Column("correlationId", INT32, "the client's number of the request", source="requestHeader.correlationId"),
        *_CLIENT,
        Column("handler", INT16, "number of the handler; the controller has the first number after the most handlers"),
        Column("topic", STRING, "the first topic named, if the request names partitions", True),
        Column("partition", INT32, "the first partition named", True),
        Column(
            "partitionCount",
            INT32,
            "number of partitions named; of CreateTopics, CreatePartitions and DeleteTopics those created, deleted or "
            "validated",
        ),
        Column(
            "records",
            INT32,
            "of a Produce: records; of a Fetch: offsets from the requested one to the end of the response, with "
            "compacted ones",
            True,
        ),
        Column("requestBytes", INT32, "size of the request, header included, without its size prefix"),
        Column("responseBytes", INT32, "size of the response with its size prefix; 0 without a response"),
        Column("errorCode", INT16, "first Kafka error code in the response; 0 is none, or MEMBER_ID_REQUIRED"),
        Column("errorName", STRING, "its name"),
        Column("acks", INT16, "of a Produce: -1, 0 or 1", True),
        Column("isolationLevel", INT16, "0 read_uncommitted, 1 read_committed", True),
        Column("minBytes", INT32, "of a Fetch", True),
        Column("requestQueueTimeUs", INT64, "from arrival to its handler", source="requestQueueTimeMs"),
        Column("localTimeUs", INT64, "in the handler", source="localTimeMs"),
        Column("remoteTimeUs", INT64, "waiting for others, or for data", source="remoteTimeMs"),
        Column("responseQueueTimeUs", INT64, "from the response to its processor", source="responseQueueTimeMs"),
        Column("sendTimeUs", INT64, "until the last byte was written", source="sendTimeMs"),
        Column("totalTimeUs", INT64, "the sum of the five before", source="totalTimeMs"),
        Column("throttleTimeUs", INT64, "given to the client; no part of the total", source="throttleTimeMs"),
        Column("slow", BOOL, "request.log.slow.threshold.ms or longer, without the wait for data"),
        Column("sampleWeight", INT32, "number of requests that the row represents: multiply sums and counts by it"),
        Column("codec", STRING, "of a Produce: none, gzip, snappy, lz4 or zstd; mixed when its batches differ", True),
        Column(
            "recordBytes",
            INT32,
            "of a Produce or Fetch: bytes of its record batches",
            True,
        ),
        Column("maxWaitMs", INT32, "of a Fetch: longest wait for minBytes", True),
        Column(
            "throttledBy",
            STRING,
            f"cause of the throttle time: {', '.join(THROTTLED_BY)}; {HELD_BACK} of a delayed response, which is "
            "remote time",
            True,
        ),
        Column("injected", STRING, f"injected by a test: {', '.join(INJECTED)}, joined by +", True),
        Column("deniedOperation", STRING, "of a request denied by ACLs: the operation", True),
        Column("deniedResourceType", STRING, "Topic, Group, Cluster or TransactionalId", True),
        Column("deniedResource", STRING, "its name; of several the first denied", True),
    ),
)

CONNECTIONS = Dataset(
    "connections",
    "One row when a connection opens and one when it closes. A connection of a processor that was killed (see gaps) "
    "ended with it.",
    (
        Column("time", TIMESTAMP, "when it was opened or closed"),
        Column("event", STRING, "open or close"),
        *_CLIENT,
        Column("cause", STRING, f"of a close: {', '.join(CLOSE_CAUSES)}", True),
        Column("durationUs", INT64, "of a close: since it was opened", True),
        Column("requests", INT64, "completed requests, sampled or not"),
        Column("requestBytes", INT64, "their size"),
        Column("responseBytes", INT64, "size of their responses"),
        Column("errors", INT64, "number of responses with an error"),
    ),
)

GROUPS = Dataset(
    "groups",
    "Events of groups, with the reason. A rebalance ends with stable, or with empty when no member remains. One that "
    "begins before another has ended is a row of its own; the duration counts from the first. A row lag is of a group "
    "and topic, at most every request.log.roles.interval.ms, and only when it has changed: it holds until the next "
    "row. Partitions with unknown lag are left out. A row deliveries is of a share group and topic, with the growth of "
    "its counts since the row before.",
    (
        Column("time", TIMESTAMP, "time of the event"),
        Column("group", STRING, "the group's id"),
        Column("member", STRING, "the member's id; null for an event of all", True),
        Column(
            "event",
            STRING,
            "join, replace, leave, expire (a member); rebalance, stable, empty, lag, deliveries (the group)",
        ),
        Column("reason", STRING, "why", True),
        Column("handler", INT16, "the coordinator, or owner of a share group's state"),
        Column("kind", STRING, "classic, consumer (KIP-848) or share (KIP-932)", True),
        Column("generation", INT32, "the generation, or epoch, after it; of rebalance the one before", True),
        Column("members", INT32, "number after it", True),
        Column(
            "durationUs",
            INT64,
            "of stable and empty: since the rebalance began; of lag: age of the oldest unread record, null if unknown",
            True,
        ),
        Column("topic", STRING, "of lag and deliveries", True),
        Column("partition", INT32, "of lag: the one with most unread records, or null", True),
        Column("records", INT64, "of lag: unread offsets of the topic", True),
        Column("delivered", INT64, "of deliveries: records acquired", True),
        Column("redelivered", INT64, "not for the first time", True),
        Column("accepted", INT64, "records accepted", True),
        Column("released", INT64, "records released", True),
        Column("rejected", INT64, "records rejected", True),
        Column("locksExpired", INT64, "records whose lock ran out", True),
        Column("deadLetters", INT64, "records given up to a dead letter topic", True),
    ),
)

CLIENT_METRICS_ROWS = Dataset(
    CLIENT_METRICS,
    "Metrics that clients push (KIP-714), with `client.telemetry.receiver.enable`. A subscription "
    "(`kafka-client-metrics`) chooses them. One row per value.",
    (
        Column("time", TIMESTAMP, "time of the push"),
        Column("valueTime", TIMESTAMP, "time of the value, by the client's clock"),
        Column("clientInstanceId", STRING, "the instance, as clients and tools write it"),
        Column("clientId", STRING, "client.id of the client"),
        Column("user", STRING, "user name; ANONYMOUS for unauthenticated clients"),
        Column("softwareName", STRING, "client library; empty if unknown"),
        Column("softwareVersion", STRING, "its version; empty if unknown"),
        Column("address", STRING, "IP address of the client"),
        Column("name", STRING, "name of the metric"),
        Column("attributes", STRING, "its attributes, a JSON object"),
        Column("kind", STRING, "gauge, sum, histogram"),
        Column("isDelta", BOOL, "the value is the growth since the previous push"),
        Column("value", DOUBLE, "the value; of a histogram the sum of its values"),
        Column("count", INT64, "of a histogram: number of values; else 1"),
        Column("handler", INT16, "number of the handler that received it"),
    ),
)

ROLES = Dataset(
    "roles",
    "One row for each process, all with the same time, every request.log.roles.interval.ms with requests. The first "
    "interval without requests is written too, with traffic false; then nothing until the next request. So a last row "
    "with traffic false means an idle broker, and one with traffic true, older than two intervals, a broker that has "
    "ended. A stop writes the current interval. After a pause an interval begins at most two seconds before the first "
    "request. Counts are the growth in the interval; a column that a role lacks is null.",
    (
        Column("time", TIMESTAMP, "when the interval ended"),
        Column("intervalUs", INT64, "its length; it begins at the rows before, except after a pause"),
        Column("traffic", BOOL, "whether it had any request; equal in all rows of one time"),
        Column("role", STRING, ", ".join(PROCESS_ROLES)),
        Column("index", INT16, "number within its role"),
        Column("generation", INT32, "raised with each start of the process"),
        Column("restarts", INT32, "number of replacements, ever"),
        Column("state", STRING, ", ".join(PROCESS_STATES)),
        Column("pid", INT32, "process id", True),
        Column("cpus", INT32, "CPUs that the broker may use"),
        Column(
            "idleShare",
            DOUBLE,
            "of a processor, a handler, the controller: share of the interval, 0 to 1, in which its loop waited; null "
            "without a reading",
            True,
        ),
        Column("cpuTimeUs", INT64, "CPU time, user and system (or since the process's start)", True),
        Column("runQueueTimeUs", INT64, "time in which its main thread was ready and had no CPU", True),
        Column("pssBytes", INT64, "memory with its share of shared pages, at the end", True),
        Column(
            "ringFill",
            DOUBLE,
            "fill of its fullest ring, 0 to 1, at the end: of requests (handler, controller), responses (processor) or "
            "rows (recorder)",
            True,
        ),
        Column(
            "ringFillPeak",
            DOUBLE,
            "highest fill of at least one sample every 250 ms; shorter peaks are missed",
            True,
        ),
        Column("arenaUsedBytes", INT64, "of a processor: bytes of large requests in its arena, at the end", True),
        Column("arenaBytes", INT64, "of a processor: size of its arena", True),
        Column("arenaDepletedUs", INT64, "of a processor: time in which a large request waited for its arena", True),
        Column("connections", INT64, "open at the end: of a processor its own, of the acceptor all", True),
        Column("connectionsOpened", INT64, "received (processor), accepted (acceptor)", True),
        Column("connectionsClosed", INT64, "of processor and acceptor", True),
        Column("connectionsRefused", INT64, "of the acceptor: beyond max.connections.per.ip", True),
        Column(
            "blockedUs",
            INT64,
            "of the acceptor: time in which the most blocked listener did not accept",
            True,
        ),
        Column("requests", INT64, "received (processor), handled (handler, controller)", True),
        Column("errors", INT64, "of handler and controller: responses with an error code", True),
        Column("bytesReceived", INT64, "of a processor", True),
        Column("bytesSent", INT64, "of a processor", True),
        Column("recordsAppended", INT64, "of a handler, to its logs", True),
        Column("bytesAppended", INT64, "of a handler, to its logs", True),
        Column("commits", INT64, "of a handler: writes to logs", True),
        Column("commitTimeUs", INT64, "of a handler: time of those writes", True),
        Column("fetchesParked", INT64, "of a handler: fetches that waited for data", True),
        Column("slowTurns", INT64, "of processor, handler, controller: turns of its loop of more than 50 ms", True),
        *(Column(column_of_mutes(cause), INT64, _MUTES[cause], True) for cause in MUTE_CAUSES),
    ),
)

GAPS = Dataset(
    "gaps",
    "Losses of the other datasets. Without a row here they are complete.",
    (
        Column("time", TIMESTAMP, "time of detection"),
        Column("since", TIMESTAMP, "earliest possible time", True),
        Column("dataset", STRING, "dataset of the missing rows"),
        Column("source", STRING, "processor, target, recorder or broker"),
        Column("index", INT16, "its number", True),
        Column(
            "cause",
            STRING,
            "ring_full, recorder_killed, processor_killed, broker_killed, write_failed",
        ),
        Column("rows", INT64, "upper bound; null if unknown", True),
    ),
)

_HISTORY_BYTES = "of requests and responses; of a topic: appended and fetched"
_HISTORY_SHARE = "of a role: share of time, 0 to 1, in which the busiest process worked, and the mean of all"

HISTORY_ROWS = Dataset(
    HISTORY,
    "What happened in each minute, for history.retention.ms: a row for each name of a kind. The largest have rows, the "
    "rest is the row others. A minute without requests and events has no rows; after a restart a name may have two. "
    "Clients, and bytesOut of an API, are estimated from the rows of requests, the rest is exact.",
    (
        Column("time", TIMESTAMP, "begin of the minute; of an event its time"),
        Column("kind", STRING, ", ".join(HISTORY_KINDS)),
        Column(
            "name",
            STRING,
            "API, client id (empty: not named), topic and so on; of an event: " + ", ".join(EVENTS),
        ),
        Column("detail", STRING, "of an event", True),
        Column("requests", INT64, "of api, client, broker; of error and throttle: those with it", True),
        Column("errors", INT64, "of api and client: those with an error code", True),
        Column("bytesIn", INT64, _HISTORY_BYTES, True),
        Column("bytesOut", INT64, _HISTORY_BYTES, True),
        Column("records", INT64, "of a topic: appended; of a group: unread, at the end", True),
        Column("lagUs", INT64, "of a group: age of the oldest unread record, at the end", True),
        Column("throttleTimeUs", INT64, "of throttle: sum of the throttle times", True),
        Column("utilisation", DOUBLE, _HISTORY_SHARE, True),
        Column("utilisationMean", DOUBLE, _HISTORY_SHARE, True),
        Column("ringFillPeak", DOUBLE, "of a role: highest fill of a ring that it reads, as in roles", True),
        Column("cpuTimeUs", INT64, "of a role: CPU time of its processes", True),
        *(Column(name, INT64, "of broker", True) for name in ("connectionsOpened", "connectionsClosed")),
        Column("connectionsRefused", INT64, "of broker", True),
        *(Column(name, INT64, "of broker, at the end", True) for name in ("connections", "logBytes")),
        *(Column(name, INT64, "of broker, at the end", True) for name in ("diskFreeBytes", "diskBytes")),
        *(
            Column(column_of_percentile(phase, percentile), INT64, "of api: percentiles by phase", True)
            for phase in PHASES
            for percentile in PERCENTILES
        ),
    ),
)


DATASETS: dict[str, Dataset] = {
    each.name: each for each in (REQUESTS, CONNECTIONS, GROUPS, CLIENT_METRICS_ROWS, ROLES, GAPS, HISTORY_ROWS)
}

_PREAMBLE = """# The request log

What every request did, as Parquet files. Any reader opens them:

```
rotunda requests --slow              # single requests: --errors, --slower-than 50, --client 'app-*', --user, --topic
rotunda report latency               # Spark jobs over all of them
```

```python
pandas.read_parquet("request-log/requests")
polars.scan_parquet("request-log/requests/**/*.parquet")
spark.read.parquet("request-log/requests")
```

```sql
SELECT clientId, topic, sum(sampleWeight) AS requests, max(totalTimeUs) AS slowest_us
FROM read_parquet('request-log/requests/**/*.parquet', hive_partitioning = true)
WHERE requestApiKeyName = 'PRODUCE' GROUP BY ALL ORDER BY requests DESC;
```

## Files

    request-log/<dataset>/v=VERSION/date=YYYY-MM-DD/hour=HH/part-<run>-<generation>-<number>.parquet

- They are below the data directory, in UTC. A file has its name when it is complete.
- `request.log.roll.ms` and `request.log.roll.bytes` end a file; `rotunda requests --follow` ends it every second.
- `request.log.retention.ms` and `request.log.retention.bytes` delete the oldest.
- Columns are only added. To read old and new files together use DuckDB's `union_by_name = true`, Spark's `mergeSchema`
  or Polars' `extra_columns="ignore"`.
- Above `request.log.rows.per.second` ordinary requests are sampled, and `sampleWeight` is the number of requests that a
  row stands for. Failed and slow requests always have a row.
- Every loss is a row of `gaps`: a full ring, a killed process, a failed write. A killed recorder loses its unfinished
  file, a killed processor half a second.
- Times are microseconds. The durations of a request add up to `totalTimeUs`. A type with `?` may be null.

Names are those of KIP-673; brackets have its name where it differs. Printed by `broker/request_log/columns.py`.
"""


def describe_markdown() -> str:
    """Return the text of docs/request-log.md."""
    parts = [_PREAMBLE.replace("VERSION", str(FORMAT_VERSION))]
    for dataset in DATASETS.values():
        parts.append(f"## {dataset.name}\n\n{dataset.text}\n")
        parts += ["| column | type | meaning |", "|---|---|---|"]
        known = DATASETS["requests"].columns if dataset.name == "connections" else ()
        new = [column for column in dataset.columns if column not in known]
        parts += [_row(list(columns)) for _, columns in groupby(new, lambda each: (each.text, each.kind))]
        if known:
            shared = ", ".join(column.name for column in dataset.columns if column in known)
            parts.append(f"\nThe other columns are those of `requests`: {shared}.")
        parts.append("")
    return "\n".join(parts)


def _row(columns: list[Column]) -> str:
    """Return the line of columns with the same text."""
    column = columns[0]
    kind = _TYPE_TEXTS.get(column.kind, column.kind) + ("?" if column.nullable else "")
    source = column.source.rpartition(".")[2]
    names = ", ".join(each.name for each in columns)
    return f"| {names} | {kind} | {column.text}{f' ({source})' if source not in {'', column.name} else ''} |"


_TYPE_TEXTS = {TIMESTAMP: "timestamp (UTC, µs)"}
