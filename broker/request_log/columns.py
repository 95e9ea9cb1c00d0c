"""The columns of the request log's datasets, declared once: files, readers and docs/request-log.md derive from them.

Pure; knows neither pyarrow nor numpy. Names are KIP-673's where it has them (`D19`), with the unit that is ours.
Columns are only ever added, and the version in the path is raised for any other change.
"""

from __future__ import annotations

from dataclasses import dataclass

from broker.request_log.role_counts import column_of_mutes
from shm.metrics.catalogue import CLOSE_CAUSES, MUTE_CAUSES
from shm.recorder_layout import HELD_BACK, INJECTED, THROTTLED_BY
from shm.tables.process_slots import ROLES as PROCESS_ROLES
from shm.tables.process_slots import STATES as PROCESS_STATES

#: Stands in the path of every dataset.
FORMAT_VERSION = 1

TIMESTAMP = "timestamp"
STRING = "string"
BOOL = "bool"
INT16 = "int16"
INT32 = "int32"
INT64 = "int64"
DOUBLE = "double"


@dataclass(frozen=True, slots=True)
class Column:
    """One column: its type, whether it may be null, one line of text; `source` is where KIP-673 has it, if it does."""

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


#: By cause, when processors stop reading from a connection.
_MUTES = {
    "pipeline": "how often a processor stopped reading from a connection: too many requests in flight",
    "arena": "because there was no block for a large request",
    "ring_full": "because the ring of its handler was full",
    "output": "because answers waited for the client, or for an earlier one",
    "order": "because a Produce of several partitions waited for what was in flight",
    "draining": "because the broker stops",
    "pipeline_bytes": "because of too many bytes of requests in flight",
    "throttled": "because the client had used up a quota",
}

_CLIENT = (
    Column("connection", STRING, "processor-generation-counter, as in the broker's log", source="connection"),
    Column("clientId", STRING, "what the client calls itself", True, "requestHeader.clientId"),
    Column("softwareName", STRING, "client library, from ApiVersions (KIP-511)", True, "clientInformation"),
    Column("softwareVersion", STRING, "its version", True, "clientInformation"),
    Column("address", STRING, "the client's IP address", True),
    Column("principal", STRING, "as whom it is known", True, "principal"),
    Column("securityProtocol", STRING, "of the listener", True, "securityProtocol"),
    Column("listener", STRING, "through which it came", True, "listener"),
    Column("processor", INT16, "which processor has the connection"),
)

REQUESTS = Dataset(
    "requests",
    "One row for each finished request, or for as many as sampleWeight says. Neither record contents nor keys are in "
    "it.",
    (
        Column("time", TIMESTAMP, "when the request had arrived whole"),
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
        Column("handler", INT16, "which handler answered; the controller is behind the most that there may be"),
        Column("topic", STRING, "the first that the request names, if it names partitions", True),
        Column("partition", INT32, "the first that the request names", True),
        Column(
            "partitionCount",
            INT32,
            "how many it names; of CreateTopics, CreatePartitions and DeleteTopics how many it has created or deleted, "
            "or found that it could",
        ),
        Column(
            "records",
            INT32,
            "of a Produce: records to be written; of a Fetch: offsets from the one asked for to the end of the answer, "
            "of which compaction may have removed some",
            True,
        ),
        Column("requestBytes", INT32, "size of the request, header included, without its size prefix"),
        Column("responseBytes", INT32, "size of the answer with its size prefix; 0 when none was sent"),
        Column("errorCode", INT16, "first Kafka error code in the answer; 0 is none"),
        Column("errorName", STRING, "its name"),
        Column("acks", INT16, "of a Produce: -1, 0 or 1", True),
        Column("isolationLevel", INT16, "0 read_uncommitted, 1 read_committed", True),
        Column("minBytes", INT32, "what a Fetch waits for", True),
        Column("requestQueueTimeUs", INT64, "from arrival to its handler", source="requestQueueTimeMs"),
        Column("localTimeUs", INT64, "in the handler", source="localTimeMs"),
        Column("remoteTimeUs", INT64, "waiting for others, or for data", source="remoteTimeMs"),
        Column("responseQueueTimeUs", INT64, "from its answer to the processor", source="responseQueueTimeMs"),
        Column("sendTimeUs", INT64, "until the last byte was written", source="sendTimeMs"),
        Column("totalTimeUs", INT64, "the sum of the five before", source="totalTimeMs"),
        Column("throttleTimeUs", INT64, "given to the client; no part of the total", source="throttleTimeMs"),
        Column("slow", BOOL, "as slow as request.log.slow.threshold.ms, waiting for data not counted"),
        Column("sampleWeight", INT32, "how many requests the row stands for: sums and counts multiply by it"),
        Column("codec", STRING, "of a Produce: none, gzip, snappy, lz4 or zstd; mixed when its batches differ", True),
        Column(
            "recordBytes",
            INT32,
            "of a Produce: bytes of its record batches as sent; of a Fetch: of those in the answer",
            True,
        ),
        Column("maxWaitMs", INT32, "of a Fetch: how long at most it waits for minBytes", True),
        Column(
            "throttledBy",
            STRING,
            f"what the throttle time was given for: {', '.join(THROTTLED_BY)}; {HELD_BACK} of an answer that was held "
            "back, which is remote time",
            True,
        ),
        Column("injected", STRING, f"what a test has injected: {', '.join(INJECTED)}; several have a + between", True),
        Column("deniedOperation", STRING, "of a request that ACLs do not allow: what the principal may not do", True),
        Column("deniedResourceType", STRING, "with what: Topic, Group, Cluster or TransactionalId", True),
        Column("deniedResource", STRING, "its name; of several the first that was refused with errorCode", True),
    ),
)

CONNECTIONS = Dataset(
    "connections",
    "One row for each connection opened, one for each closed. A connection without an end, on a processor that gaps "
    "says was killed, ended with it.",
    (
        Column("time", TIMESTAMP, "when it was opened or closed"),
        Column("event", STRING, "open or close"),
        *_CLIENT,
        Column("cause", STRING, f"of a close: {', '.join(CLOSE_CAUSES)}", True),
        Column("durationUs", INT64, "of a close: since it was opened", True),
        Column("requests", INT64, "requests done with in its life; sampling does not touch these counts"),
        Column("requestBytes", INT64, "their size"),
        Column("responseBytes", INT64, "size of their answers"),
        Column("errors", INT64, "how many were answered with an error"),
    ),
)

GROUPS = Dataset(
    "groups",
    "What happened to groups, with the reason. A rebalance ends with stable, or with empty when nobody is left; one "
    "that begins before another has ended is a row of its own, and the duration counts from the first. A row lag is of "
    "each group and topic with committed offsets, every request.log.roles.interval.ms at most, when a handler begins "
    "and then only if what the group has committed or has still to read differs from the row before, which holds "
    "until then (the age of what is unread grows with the clock). Partitions whose lag cannot be known are left out.",
    (
        Column("time", TIMESTAMP, "when it happened"),
        Column("group", STRING, "the group's id"),
        Column("member", STRING, "the member's id; null for what concerns all", True),
        Column("event", STRING, "join, replace, leave, expire (a member); rebalance, stable, empty, lag (the group)"),
        Column("reason", STRING, "why", True),
        Column("handler", INT16, "which handler coordinates the group"),
        Column("kind", STRING, "classic or consumer (KIP-848)", True),
        Column("generation", INT32, "the generation, or epoch, after it; of rebalance the one that it leaves", True),
        Column("members", INT32, "how many there were after it", True),
        Column(
            "durationUs",
            INT64,
            "of stable and empty: since the rebalance began; of lag: age of the oldest unread record, null if unknown",
            True,
        ),
        Column("topic", STRING, "of lag", True),
        Column("partition", INT32, "of lag: the one with most unread; null when nothing is", True),
        Column("records", INT64, "of lag: offsets that the group has still to read of the topic", True),
    ),
)

ROLES = Dataset(
    "roles",
    "How each process of the broker has done: one row for each, all with the same time, every "
    "request.log.roles.interval.ms in which there were requests, and once more, with traffic false, when an interval "
    "has passed without any. Nothing is written then until requests come again: who finds rows with traffic false "
    "last finds a broker that was idle since, and who finds such with traffic true last, more than two intervals ago, "
    "one that is gone. A broker that is stopped writes the interval under way. After a pause an interval begins at "
    "most two seconds before the requests that end the pause. Counts are what has come to a counter in the interval; "
    "where a role does not have a column, it is null.",
    (
        Column("time", TIMESTAMP, "when the interval ended"),
        Column("intervalUs", INT64, "its length; it begins with the rows before, unless there was a pause"),
        Column("traffic", BOOL, "whether any request came in it; the same in all rows of one time"),
        Column("role", STRING, ", ".join(PROCESS_ROLES)),
        Column("index", INT16, "which one of its role"),
        Column("generation", INT32, "raised with each start of the process"),
        Column("restarts", INT32, "how often it has died and was replaced, ever"),
        Column("state", STRING, ", ".join(PROCESS_STATES)),
        Column("pid", INT32, "process id", True),
        Column("cpus", INT32, "processors of the machine that the broker may use"),
        Column(
            "idleShare",
            DOUBLE,
            "of a processor, a handler, the controller: share of the interval, 0 to 1, in which its loop waited; null "
            "when it has published nothing in it",
            True,
        ),
        Column("cpuTimeUs", INT64, "processor time, user and system, used in it (or since the process's start)", True),
        Column("runQueueTimeUs", INT64, "time in which its main thread could run and had no processor", True),
        Column("pssBytes", INT64, "memory, with its part of what is shared, at the end", True),
        Column(
            "ringFill",
            DOUBLE,
            "share of the fullest ring that it reads, 0 to 1, at the end: of requests (handler, controller), of "
            "answers (processor), of rows (recorder)",
            True,
        ),
        Column(
            "ringFillPeak",
            DOUBLE,
            "the highest fill seen in it: one look in 250 ms at least, so what comes and goes between two is not in it",
            True,
        ),
        Column(
            "arenaUsedBytes", INT64, "of a processor: what large requests take of its memory area, at the end", True
        ),
        Column("arenaBytes", INT64, "of a processor: size of that area", True),
        Column("arenaDepletedUs", INT64, "of a processor: time in which a large request waited for that area", True),
        Column("connections", INT64, "open at the end: of a processor its own, of the acceptor all", True),
        Column("connectionsOpened", INT64, "taken over (processor), accepted (acceptor)", True),
        Column("connectionsClosed", INT64, "of processor and acceptor", True),
        Column("connectionsRefused", INT64, "of the acceptor: beyond max.connections.per.ip", True),
        Column(
            "blockedUs",
            INT64,
            "of the acceptor: time in which a listener was not accepted from; of the worst",
            True,
        ),
        Column("requests", INT64, "received (processor), taken (handler, controller)", True),
        Column("errors", INT64, "of handler and controller: answers with an error code", True),
        Column("bytesReceived", INT64, "of a processor", True),
        Column("bytesSent", INT64, "of a processor", True),
        Column("recordsAppended", INT64, "of a handler, to its logs", True),
        Column("bytesAppended", INT64, "of a handler, to its logs", True),
        Column("commits", INT64, "of a handler: writes to logs", True),
        Column("commitTimeUs", INT64, "of a handler: time that those writes took", True),
        Column("fetchesParked", INT64, "of a handler: fetches that had to wait for data", True),
        Column("slowTurns", INT64, "of processor, handler, controller: turns of its loop of more than 50 ms", True),
        *(Column(column_of_mutes(cause), INT64, _MUTES[cause], True) for cause in MUTE_CAUSES),
    ),
)

GAPS = Dataset(
    "gaps",
    "What the other datasets miss. Without a row here nothing is missing.",
    (
        Column("time", TIMESTAMP, "when the loss was noticed"),
        Column("since", TIMESTAMP, "when it can have begun", True),
        Column("dataset", STRING, "of what rows are missing"),
        Column("source", STRING, "processor, target, recorder or broker: whose rows"),
        Column("index", INT16, "which of them", True),
        Column(
            "cause",
            STRING,
            "ring_full, recorder_killed, processor_killed, broker_killed, write_failed",
        ),
        Column("rows", INT64, "how many at most; null when nobody knows", True),
    ),
)

#: Columns by which readers choose rows: files say what values of them each row group has, so that some are passed over.
CHOSEN_BY = frozenset({"time", "requestApiKeyName", "clientId", "topic", "errorCode", "totalTimeUs", "group"})

DATASETS: dict[str, Dataset] = {each.name: each for each in (REQUESTS, CONNECTIONS, GROUPS, ROLES, GAPS)}

_PREAMBLE = """# The request log

What every request did, as Parquet files. Any reader opens them:

```
rotunda requests --slow              # single requests: --errors, --follow, --api, --client, --topic
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
- Times are microseconds. The durations of a request add up to `totalTimeUs`.

Names are those of KIP-673; brackets have its name where it differs. Printed by `broker/request_log/columns.py`.
"""


def describe_markdown() -> str:
    """Return the text of docs/request-log.md."""
    parts = [_PREAMBLE.replace("VERSION", str(FORMAT_VERSION))]
    for dataset in DATASETS.values():
        parts.append(f"## {dataset.name}\n\n{dataset.text}\n")
        parts += ["| column | type | meaning |", "|---|---|---|"]
        parts += [_row(column) for column in dataset.columns]
        parts.append("")
    return "\n".join(parts)


def _row(column: Column) -> str:
    kind = _TYPE_TEXTS.get(column.kind, column.kind) + (" or null" if column.nullable else "")
    source = column.source.rpartition(".")[2]
    return f"| {column.name} | {kind} | {column.text}{f' ({source})' if source not in {'', column.name} else ''} |"


_TYPE_TEXTS = {TIMESTAMP: "timestamp (UTC, µs)"}
