"""The metrics of the background processes: cleaner, recorder and status page. Declarations only."""

from __future__ import annotations

from rotunda.shm.metrics.metric import COUNTER, GAUGE, Metric

CLEANER_METRICS = (
    Metric(
        "segments_deleted",
        COUNTER,
        "segments",
        "Segments removed by age, by size or below the log start.",
        "Not those that DeleteRecords removed at once.",
    ),
    Metric("bytes_deleted", COUNTER, "bytes", "Size of the segments removed.", "Log files, without their indexes."),
    Metric(
        "compactions",
        COUNTER,
        "runs",
        "Compacted partitions.",
        "A partition counts several times if its keys do not fit log.cleaner.dedupe.buffer.size.",
    ),
    Metric("compaction_ns", COUNTER, "ns", "Time of compactions.", "Waiting for the owner and throttling included."),
    Metric(
        "bytes_read",
        COUNTER,
        "bytes",
        "Bytes of segments read for compaction.",
        "Dirty segments are read twice: for their keys, and to be rewritten.",
    ),
    Metric(
        "bytes_written",
        COUNTER,
        "bytes",
        "Bytes of compacted segments written.",
        "Divided by the growth of bytes_read it is Kafka's cleaner-recopy-percent.",
    ),
    Metric(
        "records_removed",
        COUNTER,
        "records",
        "Records removed by compaction.",
        "Superseded records, tombstones, markers, aborted records.",
    ),
    Metric(
        "max_dirty_percent",
        GAUGE,
        "percent",
        "Largest uncompacted share of a partition.",
        "As of the last check. Kafka's max-dirty-percent; above min.cleanable.dirty.ratio the partition is due for "
        "compaction.",
        exposed="cleaner_max_dirty_ratio",
    ),
    Metric(
        "uncleanable_partitions",
        GAUGE,
        "partitions",
        "Partitions that cannot be compacted.",
        "Their files could not be read; the log has the reason. Retried after a restart of the cleaner.",
    ),
    Metric(
        "last_look_ms",
        GAUGE,
        "ms",
        "Unix time of the last check for partitions to compact.",
        "Kafka's time-since-last-run-ms is the time since.",
        exposed="cleaner_last_look_timestamp_seconds",
    ),
)

RECORDER_METRICS = (
    Metric("rows_written", COUNTER, "rows", "Rows in finished files of the request log.", "All datasets together."),
    Metric(
        "rows_lost",
        COUNTER,
        "rows",
        "Rows lost to the request log.",
        "Each loss is a row of the dataset gaps, with its time and cause.",
    ),
    Metric("files_written", COUNTER, "files", "Finished files of the request log.", "At least one an hour."),
    Metric("files_removed", COUNTER, "files", "Files of the request log removed by age or size.", "See retention."),
)

WEB_METRICS = (
    Metric(
        "connections",
        GAUGE,
        "connections",
        "Open connections of the status page.",
        "At most status.max.connections: browsers, Prometheus and probes, not Kafka clients.",
    ),
    Metric(
        "streams",
        GAUGE,
        "streams",
        "Open event streams of the status page.",
        "At most status.max.streams.",
    ),
    Metric(
        "streams_refused",
        COUNTER,
        "streams",
        "Rejected event streams: too many.",
        "The screen polls every few seconds instead.",
    ),
    Metric(
        "connections_dropped",
        COUNTER,
        "connections",
        "Connections closed by the status page, by cause.",
        "slow_request: no complete request within status.request.timeout.ms, or idle for three times as long. "
        "slow_reader: it does not read its responses. no_room: the longest idle one of too many.",
        "cause",
        ("slow_request", "slow_reader", "no_room"),
    ),
    Metric(
        "invalid_requests",
        COUNTER,
        "requests",
        "Bytes received by the status page that are not HTTP.",
        "The response is 400, and the connection is closed.",
    ),
)
