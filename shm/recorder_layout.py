"""The part of the map of shared memory for the request log: the sources' frames, and the recorder's accounts.

Declarations only, as in `shm.layout`, which prints them with its own. Sources are the processors and, for events of
groups, the targets; each has a ring to the recorder.
"""

from __future__ import annotations

from rotunda.shm.record import Field, Record

#: The known facts of a finished request when its response leaves its target: the larger part of a response's envelope,
#: and of a row of the request log. Fields that stay the same from request to request on a busy connection are last. No
#: gap between fields: numpy would leave it out when it joins rows.
FACTS = (
    Field("received_ns", "q", "ns", "handler", "copied from the request"),
    Field("dequeued_ns", "q", "ns", "handler", "monotonic time when the handler read the request"),
    Field("local_complete_ns", "q", "ns", "handler", "monotonic time when the API function returned"),
    Field("response_complete_ns", "q", "ns", "handler", "monotonic time when the response was complete"),
    Field("correlation_id", "i", "-", "handler", "copied from the request"),
    Field("request_bytes", "i", "bytes", "handler", "size of the request, without its size prefix"),
    Field("response_bytes", "i", "bytes", "handler", "size of the response with its size prefix and file ranges"),
    Field("throttle_ms", "i", "ms", "handler", "throttle time given to the client"),
    Field("record_count", "i", "count", "handler", "records written, or offsets fetched; -1: unknown"),
    Field("codec", "h", "index", "handler", "of a Produce: index in CODECS, or MIXED_CODECS; -1: unknown"),
    Field(
        "throttled_by",
        "h",
        "index",
        "handler",
        "low byte: index in THROTTLED_BY plus 1, or HELD_BACK_BY from the processor; high byte: bits of INJECTED",
    ),
    Field("record_bytes", "q", "bytes", "handler", "record batches of a Produce or fetched; -1: unknown"),
    Field("denial", "q", "id", "handler", "id of the denial, described in a RECORDER_TEXT of the handler; 0: none"),
    Field("api_key", "h", "-", "handler", "copied from the request"),
    Field("api_version", "h", "-", "handler", "copied from the request"),
    Field("handler", "h", "index", "handler", "the target that served the request"),
    Field("error_code", "h", "-", "handler", "first Kafka error code in the response"),
    Field("partition_row", "i", "index", "handler", "partition table row of the first partition named; -1: none"),
    Field("partition_count", "i", "count", "handler", "partitions that the request named, created or deleted"),
    Field("min_bytes", "i", "bytes", "handler", "min bytes of a Fetch; -1: another API"),
    Field("max_wait_ms", "i", "ms", "handler", "max wait of a Fetch; -1: another API"),
    Field("acks", "h", "-", "handler", "of a Produce: -1, 0 or 1; NOT_REPORTED: another API"),
    Field("isolation_level", "h", "0/1", "handler", "of the request; NOT_REPORTED: it has none"),
    Field("weight", "i", "count", "processor", "requests that the row represents; 0 in an envelope"),
)

#: A small field of the facts that does not apply to the request.
NOT_REPORTED = -2

#: Causes of throttling: the client's quotas as in `shm.tables.quota_tables`, and the settings of shared limits.
THROTTLED_BY = (
    "producer_byte_rate",
    "consumer_byte_rate",
    "request_percentage",
    "controller_mutation_rate",
    "broker.quota.produce.bytes",
    "broker.quota.fetch.bytes",
    "broker.quota.request.rate",
    "overload.queue.time.ms",
)

#: Further value of the low byte: a response without a throttle time that has been delayed (`D22`).
HELD_BACK = "automq.retry.storm.backoff.enabled"
HELD_BACK_BY = 1 + len(THROTTLED_BY)

#: Faults that tests may have injected, by bits; and their shift in the same field.
INJECTED = ("error", "delay", "disconnect", "throttle")
INJECTED_SHIFT = 8
#: The bits of `throttled_by` below those.
THROTTLED_BY_MASK = (1 << INJECTED_SHIFT) - 1

#: The key of an event's dataset, and the datasets of events.
DATASET = "dataset"
GROUPS = "groups"
CLIENT_METRICS = "client_metrics"

#: The pseudo-event of a group's lag.
LAG = "lag"

#: The pseudo-event of a share group's deliveries.
DELIVERIES = "deliveries"

#: The codec of a request with batches of different codecs. A batch has three bits for its own.
MIXED_CODECS = 8

RECORDER_SETTINGS = Record(
    "RECORDER_SETTINGS",
    "Settings of the recorder and its sources, at the start of its segment, set before they start.",
    64,
    (
        Field("enabled", "q", "0/1", "controller", "1: requests are recorded"),
        Field("sample_interval", "q", "count", "controller", "one in this many ordinary requests is recorded"),
        Field("slow_ns", "q", "ns", "controller", "duration of a slow request, which is always recorded"),
        Field("rows_per_second", "q", "count", "controller", "sustained rate of rows of a processor; 0: unlimited"),
        Field("retention_ms", "q", "ms", "controller", "age at which files are removed; -1: never"),
        Field(
            "retention_bytes",
            "q",
            "bytes",
            "controller",
            "total size of files above which the oldest are removed; -1: none",
        ),
        Field("roles_interval_ms", "q", "ms", "controller", "interval of rows about processes and lags; 0: never"),
        Field("history_retention_ms", "q", "ms", "controller", "age at which files of the history are removed"),
    ),
)

RECORDER_SOURCE = Record(
    "RECORDER_SOURCE",
    "One per process that sends to the recorder: the processors, then the targets, then the recorder itself, whose "
    "events are rows of the dataset roles. Rows that were sent, are not durable and not in the ring were lost with "
    "their process; the recorder counts and reports them.",
    192,
    (
        Field("rows_taken", "q", "count", "source", "responses read from the rings; stored before they are written"),
        Field("rows_pushed", "q", "count", "source", "of these, sent in frames of the ring", align=64),
        Field("rows_skipped", "q", "count", "source", "of these, skipped by sampling and represented by weights"),
        Field("rows_dropped", "q", "count", "source", "of these, dropped because the ring was full"),
        Field("rows_lost", "q", "count", "source", "of these, lost with killed predecessors"),
        Field(
            "events_pushed",
            "q",
            "count",
            "source",
            "connection or group events sent in frames, or rows begun",
        ),
        Field("events_dropped", "q", "count", "source", "events dropped because the ring was full"),
        Field("rows_settled", "q", "count", "recorder", "pushed rows that are durable or reported lost", align=64),
        Field("events_settled", "q", "count", "recorder", "pushed events that are durable or reported lost"),
        Field("rows_dropped_told", "q", "count", "recorder", "dropped rows that were reported"),
        Field("rows_lost_told", "q", "count", "recorder", "lost rows that were reported"),
        Field("events_dropped_told", "q", "count", "recorder", "dropped events that were reported"),
    ),
)

RECORDER_FRAME = Record(
    "RECORDER_FRAME",
    "Header of a frame of a recorder ring, followed by REQUEST_ROWs, CONNECTION_EVENTs and texts.",
    40,
    (
        Field("first_row", "q", "count", "source", "rows_pushed before this frame"),
        Field("first_event", "q", "count", "source", "events_pushed before this frame"),
        Field("row_count", "i", "count", "source", "REQUEST_ROWs"),
        Field("event_count", "i", "count", "source", "CONNECTION_EVENTs, or texts that are group events"),
        Field("text_count", "i", "count", "source", "RECORDER_TEXTs"),
        Field("connection_events", "i", "count", "source", "CONNECTION_EVENTs; the other events are texts"),
    ),
)

REQUEST_ROW = Record(
    "REQUEST_ROW",
    "A finished request. Its first part is copied from its RESPONSE_ENVELOPE.",
    128,
    (
        *FACTS,
        Field("client", "q", "id", "processor", "id of the client, described in a RECORDER_TEXT of the same frame"),
        Field("taken_ns", "q", "ns", "processor", "monotonic time when the processor read the response"),
        Field("end_ns", "q", "ns", "processor", "monotonic time when its last byte was written"),
    ),
)

CONNECTION_EVENT = Record(
    "CONNECTION_EVENT",
    "A connection was opened or closed; the totals are since its start.",
    72,
    (
        Field("client", "q", "id", "processor", "as in REQUEST_ROW, at its end"),
        Field("connection_id", "q", "id", "processor", "as in REQUEST_ENVELOPE"),
        Field("time_ns", "q", "ns", "processor", "monotonic time"),
        Field("opened_ns", "q", "ns", "processor", "monotonic time when it was opened"),
        Field("requests", "q", "count", "processor", "finished requests"),
        Field("request_bytes", "q", "bytes", "processor", "of those"),
        Field("response_bytes", "q", "bytes", "processor", "of those"),
        Field("errors", "q", "count", "processor", "of those, responses with an error"),
        Field("cause", "h", "index", "processor", "-1: opened; else closed, index in CLOSE_CAUSES"),
    ),
)

RECORDER_TEXT = Record(
    "RECORDER_TEXT",
    "Header of a text in a recorder frame; the text follows, padded to a multiple of 8.",
    16,
    (
        Field("client", "q", "id", "source", "id of the described client; -1: a group event; less: a denial"),
        Field("size", "q", "bytes", "source", "bytes of JSON, without padding"),
    ),
)

RECENT_BUFFER = Record(
    "RECENT_BUFFER",
    "Header of each of the two buffers of recent requests, followed by newest rows, slowest rows and names.",
    64,
    (
        Field("sequence", "q", "count", "recorder", "odd while the buffer is being filled; the higher one is in use"),
        Field("newest_rows", "q", "count", "recorder", "REQUEST_ROWs, newest last"),
        Field("slowest_rows", "q", "count", "recorder", "REQUEST_ROWs, slowest first"),
        Field(
            "names_bytes", "q", "bytes", "recorder", "length of the JSON with the rows' names and the connected clients"
        ),
        Field("epoch_ns", "q", "ns", "recorder", "monotonic time of 1970-01-01 00:00 UTC"),
        Field("published_ns", "q", "ns", "recorder", "monotonic time"),
    ),
)
