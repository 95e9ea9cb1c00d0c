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
    Field("dequeued_ns", "q", "ns", "handler", "monotonic time when the request was taken"),
    Field("local_complete_ns", "q", "ns", "handler", "monotonic time when the API function returned"),
    Field("response_complete_ns", "q", "ns", "handler", "monotonic time when the answer was complete"),
    Field("correlation_id", "i", "-", "handler", "copied from the request"),
    Field("request_bytes", "i", "bytes", "handler", "size of the request, without its size prefix"),
    Field("response_bytes", "i", "bytes", "handler", "size of the answer with its size prefix, file ranges included"),
    Field("throttle_ms", "i", "ms", "handler", "throttle time given to the client"),
    Field("record_count", "i", "count", "handler", "records written, or offsets in what is fetched; -1: not known"),
    Field("codec", "h", "index", "handler", "of a Produce: index in CODECS, MIXED_CODECS; -1: not known"),
    Field(
        "throttled_by",
        "h",
        "index",
        "handler",
        "low byte: index in THROTTLED_BY, and one; HELD_BACK_BY from the processor; high byte: bits of INJECTED",
    ),
    Field("record_bytes", "q", "bytes", "handler", "record batches of a Produce, or in what is fetched; -1: not known"),
    Field("denial", "q", "id", "handler", "what was denied, whose RECORDER_TEXT its handler sends; 0: nothing"),
    Field("api_key", "h", "-", "handler", "copied from the request"),
    Field("api_version", "h", "-", "handler", "copied from the request"),
    Field("handler", "h", "index", "handler", "which target answered"),
    Field("error_code", "h", "-", "handler", "first Kafka error code in the answer"),
    Field("partition_row", "i", "index", "handler", "partition table row of the first partition named; -1: none"),
    Field("partition_count", "i", "count", "handler", "how many partitions the request named, created or deleted"),
    Field("min_bytes", "i", "bytes", "handler", "what a fetch waits for; -1: no fetch"),
    Field("max_wait_ms", "i", "ms", "handler", "how long a fetch waits at most; -1: no fetch"),
    Field("acks", "h", "-", "handler", "of a Produce: -1, 0 or 1; NOT_TOLD: no Produce"),
    Field("isolation_level", "h", "0/1", "handler", "of a request that has one; NOT_TOLD: it has none"),
    Field("weight", "i", "count", "processor", "requests that the row stands for; 0 in an envelope"),
)

#: A small field of the facts that does not apply to the request.
NOT_TOLD = -2

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

#: The pseudo-event of a group's lag.
LAG = "lag"

#: The codec of a request whose batches have several: a batch has three bits for its own.
MIXED_CODECS = 8

RECORDER_SETTINGS = Record(
    "RECORDER_SETTINGS",
    "What is asked of the recorder and its sources; at the start of its segment, and there before the first of them.",
    64,
    (
        Field("enabled", "q", "0/1", "controller", "1: requests are to be recorded"),
        Field("sample_interval", "q", "count", "controller", "of ordinary requests one in so many is recorded"),
        Field("slow_ns", "q", "ns", "controller", "requests that take as long are slow, and always recorded"),
        Field("rows_per_second", "q", "count", "controller", "rows that a processor may send for long; 0: any number"),
        Field("retention_ms", "q", "ms", "controller", "age at which files are removed; -1: never"),
        Field("retention_bytes", "q", "bytes", "controller", "size of all files beyond which the oldest go; -1: none"),
        Field("roles_interval_ms", "q", "ms", "controller", "how often processes and lags are recorded; 0: never"),
    ),
)

RECORDER_SOURCE = Record(
    "RECORDER_SOURCE",
    "One per process that sends to the recorder: the processors, then the targets, then the recorder itself, "
    "whose events are rows of the dataset roles. What was sent and is neither durable nor in the ring was lost with "
    "its process; the recorder writes that down, and counts what it has.",
    192,
    (
        Field("rows_taken", "q", "count", "source", "answers taken to be written; stored before they are"),
        Field("rows_pushed", "q", "count", "source", "of them in frames of the ring, ever", align=64),
        Field("rows_skipped", "q", "count", "source", "of them left out by sampling, which weights make up for"),
        Field("rows_dropped", "q", "count", "source", "of them dropped because the ring was full"),
        Field("rows_lost", "q", "count", "source", "of them lost with predecessors that were killed"),
        Field(
            "events_pushed",
            "q",
            "count",
            "source",
            "connection or group events in frames, or rows begun, ever",
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
    "Heads a frame of a recorder ring; REQUEST_ROWs, CONNECTION_EVENTs and named texts follow in this order.",
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
    "One finished request. Its first part is copied from the envelope of its answer.",
    128,
    (
        *FACTS,
        Field("client", "q", "id", "processor", "who asked: its RECORDER_TEXT is in the same frame"),
        Field("taken_ns", "q", "ns", "processor", "monotonic time when the answer was taken from its ring"),
        Field("end_ns", "q", "ns", "processor", "monotonic time when its last byte was written"),
    ),
)

CONNECTION_EVENT = Record(
    "CONNECTION_EVENT",
    "A connection was opened or closed; the totals are of its whole life.",
    72,
    (
        Field("client", "q", "id", "processor", "as in REQUEST_ROW, as last known"),
        Field("connection_id", "q", "id", "processor", "as in REQUEST_ENVELOPE"),
        Field("time_ns", "q", "ns", "processor", "monotonic time"),
        Field("opened_ns", "q", "ns", "processor", "monotonic time when it was opened"),
        Field("requests", "q", "count", "processor", "requests done with"),
        Field("request_bytes", "q", "bytes", "processor", "of those"),
        Field("response_bytes", "q", "bytes", "processor", "of those"),
        Field("errors", "q", "count", "processor", "of those, answered with an error"),
        Field("cause", "h", "index", "processor", "-1: opened; else closed, index in CLOSE_CAUSES"),
    ),
)

RECORDER_TEXT = Record(
    "RECORDER_TEXT",
    "Heads a text in a recorder frame; the text follows, padded to a multiple of 8.",
    16,
    (
        Field("client", "q", "id", "source", "whose names it has; -1: it is a group event; less: it is a denial"),
        Field("size", "q", "bytes", "source", "bytes of JSON, without padding"),
    ),
)

RECENT_BUFFER = Record(
    "RECENT_BUFFER",
    "Heads each of the two buffers of what was requested last; newest rows, slowest rows and names follow.",
    64,
    (
        Field("sequence", "q", "count", "recorder", "odd while the buffer is being filled; the higher one is in use"),
        Field("newest_rows", "q", "count", "recorder", "REQUEST_ROWs, newest last"),
        Field("slowest_rows", "q", "count", "recorder", "REQUEST_ROWs, slowest first"),
        Field("names_bytes", "q", "bytes", "recorder", "JSON: what the rows' numbers stand for, and who is connected"),
        Field("epoch_ns", "q", "ns", "recorder", "monotonic time of 1970-01-01 00:00 UTC"),
        Field("published_ns", "q", "ns", "recorder", "monotonic time"),
    ),
)
