"""Every metric that a process writes, declared once: pages, readers, /metrics and docs/metrics.md derive from it.

A metric belongs to the roles that write it. Counters only grow, also over a restart of their process; gauges
hold the latest value; a histogram is `shm.histogram`'s. A label's values are listed here, so that each value
has its own word; a histogram by api key gets its memory when the key is first seen, and so does each value of a
metric that has keys. What a reader works out from other parts of shared memory is declared in `shm.derived_metrics`.
"""

from __future__ import annotations

from shm.background_metrics import CLEANER_METRICS, RECORDER_METRICS, WEB_METRICS
from shm.metric import COUNTER, GAUGE, HISTOGRAM, Metric

PHASES = ("queue", "local", "remote", "response_queue", "send", "total")
MUTE_CAUSES = ("pipeline", "arena", "ring_full", "output", "order", "draining", "pipeline_bytes")
CLOSE_CAUSES = ("client", "idle", "invalid_request", "io_error", "response", "shutdown", "fault", "not_kept")
MAX_LISTENERS = 8
_LISTENERS = tuple(str(index) for index in range(MAX_LISTENERS))

#: Of every process that serves requests: a turn is one round of its loop, in which it serves nobody else.
_TURN_METRICS = (
    Metric(
        "slow_turns",
        COUNTER,
        "turns",
        "Turns of the loop that took more than 50 ms.",
        "Nobody else was served meanwhile; the log says what was being done. It stays at 0 on a machine that is not "
        "short of CPU or disk.",
    ),
    Metric(
        "longest_turn_ns",
        GAUGE,
        "ns",
        "The longest turn of the loop since the process started.",
        "How long a request may have waited for what others asked.",
    ),
)

ACCEPTOR_METRICS = (
    Metric(
        "connections_accepted",
        COUNTER,
        "connections",
        "Connections taken from the listening socket.",
        "Counted before quotas are asked.",
        "listener",
        _LISTENERS,
    ),
    Metric(
        "connections_closed",
        COUNTER,
        "connections",
        "Accepted connections that have ended.",
        "Refused by a quota or reported closed by their processor; accepted minus closed are open now.",
        "listener",
        _LISTENERS,
    ),
    Metric(
        "connections_refused",
        COUNTER,
        "connections",
        "Connections closed at once because their address has too many.",
        "See max.connections.per.ip. Beyond max.connections nobody is refused: others wait, which is blocked_ns. Rows "
        "`A08`, `A14`.",
        "listener",
        _LISTENERS,
    ),
    Metric(
        "blocked_ns",
        COUNTER,
        "ns",
        "Time a listener was not accepted from.",
        "Because of connection limits, creation rate or processors that take no more. Its growth per "
        "nanosecond is Kafka's AcceptorBlockedPercent, a fraction of 0 to 1. Row `A23`.",
        "listener",
        _LISTENERS,
    ),
    Metric(
        "accept_errors",
        COUNTER,
        "errors",
        "Failures of accept.",
        "Mostly too many open files: raise the limit. The acceptor backs off and tries again. Row `A24`.",
    ),
)

PROCESSOR_METRICS = (
    Metric(
        "requests_received",
        COUNTER,
        "requests",
        "Whole requests read from clients.",
        "Each is passed to one handler or the controller.",
    ),
    Metric(
        "responses_sent",
        COUNTER,
        "responses",
        "Requests done with: answered to the last byte, or without an answer on the wire.",
        "A Produce with acks=0 counts too, and so does a request whose answer is the end of its connection, or comes "
        "when its connection has gone.",
    ),
    Metric("bytes_received", COUNTER, "bytes", "Bytes read from clients.", "Size prefixes and headers included."),
    Metric(
        "bytes_sent",
        COUNTER,
        "bytes",
        "Bytes of answers taken from handlers to be written to clients.",
        "Record data sent from files included. Counted as an answer leaves its ring: what a slow client has not read "
        "yet is in it, and so is what is dropped when its connection ends.",
    ),
    Metric(
        "connections_opened",
        COUNTER,
        "connections",
        "Connections taken over from the acceptor.",
        "By this processor, all listeners together.",
    ),
    Metric(
        "connections_closed",
        COUNTER,
        "connections",
        "Connections closed, by what ended them.",
        "client: the other side left. idle: connections.max.idle.ms without a byte. invalid_request: broken framing or "
        "header. io_error: the socket failed. response: a handler asked for it. shutdown: the broker stops. fault: an "
        "error of ours, contained to the connection. not_kept: its handler died, and no copy of its request was kept.",
        "cause",
        CLOSE_CAUSES,
    ),
    Metric("connections", GAUGE, "connections", "Connections open now.", "On this processor."),
    Metric(
        "io_wait_ns",
        COUNTER,
        "ns",
        "Time spent waiting in poll.",
        "Its growth divided by that of io_wait_ns and io_ns together is Kafka's IdlePercent, a fraction of 0 to 1; the "
        "mean over all processors is NetworkProcessorAvgIdlePercent: healthy above 0.5, worth a look below 0.5, urgent "
        "below 0.2 for long. Row `B30`.",
    ),
    Metric("io_ns", COUNTER, "ns", "Time spent outside poll.", "The rest of the loop: reading, routing, writing."),
    Metric("polls", COUNTER, "polls", "Turns of the loop, each with one poll.", "Kafka's select-total."),
    Metric(
        "mutes",
        COUNTER,
        "events",
        "How often reading from a connection was stopped, by cause.",
        "pipeline: too many requests in flight; pipeline_bytes: too many bytes of them. arena: no block for a large "
        "request. ring_full: its handler does not keep up. output: responses wait for the client, or an earlier one. "
        "order: a Produce of several partitions waits for what is in flight. draining: the broker stops.",
        "cause",
        MUTE_CAUSES,
    ),
    Metric(
        "arena_used_bytes",
        GAUGE,
        "bytes",
        "Arena taken by requests.",
        "Freed when the handler releases them. Kafka's MemoryPoolUsed.",
    ),
    Metric(
        "arena_free_bytes",
        GAUGE,
        "bytes",
        "Arena left.",
        "Not always in one piece. Kafka's MemoryPoolAvailable and AvailableRequestSize.",
    ),
    Metric(
        "arena_depleted_ns",
        COUNTER,
        "ns",
        "Time in which at least one large request waited for a block of the arena.",
        "Kafka's MemoryPoolDepletedTimeTotal; its growth per nanosecond is MemoryPoolAvgDepletedPercent. When it "
        "grows, raise queued.max.request.bytes or ask why handlers are slow.",
    ),
    Metric(
        "requests_kept_bytes",
        GAUGE,
        "bytes",
        "Copies of unanswered requests, beyond the first 8 KiB of each connection.",
        "To be sent again should their handler die. At most pipeline.max.total.bytes, all processors together.",
    ),
    Metric(
        "requests_not_kept", COUNTER, "requests", "Requests not kept, for want of room.", "They die with their handler."
    ),
    Metric(
        "phase_ns",
        HISTOGRAM,
        "ns",
        "Time requests spent in each phase, by api key.",
        "queue: whole request to handler. local: in the API function. remote: parked, waiting for others. "
        "response_queue: answer complete to processor. send: processor to last byte written. total: all of "
        "them. Kafka's RequestQueueTimeMs, LocalTimeMs, RemoteTimeMs, ResponseQueueTimeMs, ResponseSendTimeMs "
        "and TotalTimeMs. A negative time counts as 0; the throttle time is no part of it. What is recorded as Fetch "
        "is Kafka's FetchConsumer: there are no followers. Rows `D14`, `D16`, `D17`.",
        "phase",
        PHASES,
        exposed="request_duration_seconds",
    ),
    Metric(
        "throttle_ns",
        HISTOGRAM,
        "ns",
        "Throttle time told to clients, by api key.",
        "Kafka's ThrottleTimeMs, rounded to whole milliseconds; 0 for a request that was not throttled. Row `D16`.",
        exposed="request_throttle_seconds",
    ),
    Metric(
        "request_bytes",
        HISTOGRAM,
        "bytes",
        "Size of requests, by api key.",
        "Kafka's RequestBytes, with the header that Kafka leaves out: without the size prefix. Row `D17`.",
        exposed="request_size_bytes",
    ),
    Metric(
        "requests",
        COUNTER,
        "requests",
        "Requests done with, by API and version.",
        "Kafka's RequestsPerSec{request,version}. Counted when the last byte of the answer is written or its "
        "connection has gone. Row `D21`.",
        keys=("api", "version"),
        slots=256,
        exposed="requests_total",
    ),
    Metric(
        "request_errors",
        COUNTER,
        "requests",
        "Requests done with, by API and the first error code in the answer, NONE included.",
        "Kafka's ErrorsPerSec{request,error}, but once for each request, however many of its parts failed. Requests "
        "with acks=0 count too. Row `D18`.",
        keys=("api", "error"),
        slots=256,
        exposed="request_errors_total",
    ),
    Metric(
        "deprecated_requests",
        COUNTER,
        "requests",
        "Requests of versions that are served but deprecated, by who sent them.",
        "Kafka's DeprecatedRequestsPerSec. Which software has to be updated before such versions can go. Row `C17`.",
        keys=("api", "version", "software"),
        # Fewer than there are texts: some are left for connections.
        slots=32,
        exposed="deprecated_requests_total",
    ),
    Metric(
        "client_connections",
        GAUGE,
        "connections",
        "Connections open now, by listener and by client software and its version.",
        "As told by ApiVersions from version 3 on; empty until a client has said it, and for one that does not.",
        keys=("listener", "software"),
        slots=128,
        exposed="client_connections",
    ),
    *_TURN_METRICS,
)

HANDLER_METRICS = (
    Metric(
        "requests_handled",
        COUNTER,
        "requests",
        "Requests dispatched to their API function.",
        "Also parked ones.",
    ),
    Metric(
        "errors",
        COUNTER,
        "responses",
        "Responses with a Kafka error code.",
        "One each, however many parts failed.",
    ),
    Metric(
        "idle_ns",
        COUNTER,
        "ns",
        "Time asleep on the bell.",
        "Its growth divided by that of idle_ns and busy_ns together is the handler's idle fraction of 0 to 1; the mean "
        "over all handlers is Kafka's RequestHandlerAvgIdlePercent. Row `E01`.",
    ),
    Metric("busy_ns", COUNTER, "ns", "Time awake.", "All the time that is not idle_ns."),
    Metric("records_appended", COUNTER, "records", "Records appended to logs.", "Duplicates not counted."),
    Metric("bytes_appended", COUNTER, "bytes", "Bytes appended to logs.", "As stored, that is compressed."),
    Metric(
        "commits",
        COUNTER,
        "writes",
        "Commits of staged batches.",
        "Records per commit tell how well batches form.",
    ),
    Metric(
        "write_failures",
        COUNTER,
        "writes",
        "Writes to logs that failed.",
        "For want of room: records are refused until there is some. Otherwise the partition is offline.",
    ),
    Metric(
        "fetches_parked",
        COUNTER,
        "requests",
        "Fetches that had to wait for data.",
        "They found less than fetch.min.bytes.",
    ),
    *_TURN_METRICS,
    Metric(
        "requests_dropped",
        COUNTER,
        "requests",
        "Requests that were dropped because processes had died in them, or in others with the same bytes.",
        "The log names API, client and address of each. Whatever kills a process is a fault of the broker.",
    ),
    Metric(
        "fetches_not_parked",
        COUNTER,
        "requests",
        "Fetches that were answered without records at once because too many waited.",
        "Their clients ask again. rows_watched or operations_waiting says of what there is too much.",
    ),
    Metric(
        "operations_waiting",
        GAUGE,
        "requests",
        "Requests that wait: for records, for members of their group, for another process.",
        "Also those of clients that have gone: each ends with its own time limit.",
    ),
    Metric(
        "rows_watched",
        GAUGE,
        "partitions",
        "Partitions that waiting fetches watch, each counted for each of them.",
        "What parked fetches take in memory grows with it.",
    ),
    Metric(
        "works_waiting",
        GAUGE,
        "requests",
        "Requests that wait to be served in slices.",
        "Those that take long: descriptions and listings of much, changes of many topics.",
    ),
    Metric(
        "producer_ids",
        GAUGE,
        "producers",
        "Producer ids that the partitions of a handler remember.",
        "As of the last checkpoint, which is taken once a minute. Each partition forgets those that have been silent "
        "longest when they are too many, and all after producer.id.expiration.ms.",
    ),
    Metric(
        "settings_bytes",
        GAUGE,
        "bytes",
        "What the settings of groups, client metrics subscriptions and quotas take.",
        "Of the controller; 0 elsewhere.",
    ),
    Metric(
        "group_state_bytes",
        GAUGE,
        "bytes",
        "Memory that the groups of a handler take: members, subscriptions, committed offsets.",
        "Never too low, and too high for some seconds at most. At most the handler's part of group.state.max.bytes.",
    ),
    Metric(
        "group_state_refusals",
        COUNTER,
        "requests",
        "Members and offsets that were refused because groups take too much memory.",
        "Raise group.state.max.bytes, or find out who makes so many groups. The log names some.",
    ),
    Metric(
        "transaction_state_bytes",
        GAUGE,
        "bytes",
        "Memory that the transactional ids of a handler take, about.",
        "At most the handler's part of transaction.state.max.bytes.",
    ),
    Metric(
        "transaction_state_refusals",
        COUNTER,
        "requests",
        "New transactional ids that were refused because there are too many.",
        "They expire after transactional.id.expiration.ms.",
    ),
)

CATALOGUE: dict[str, tuple[Metric, ...]] = {
    "acceptor": ACCEPTOR_METRICS,
    "processor": PROCESSOR_METRICS,
    "handler": HANDLER_METRICS,
    "controller": HANDLER_METRICS,
    "cleaner": CLEANER_METRICS,
    "recorder": RECORDER_METRICS,
    "web": WEB_METRICS,
}
