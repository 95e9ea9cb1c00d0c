"""Every metric that a process writes, declared once: pages, readers, /metrics and docs/metrics.md derive from it.

A metric belongs to the roles that write it. Counters only grow, also over a restart of their process; gauges have the
latest value; a histogram is `shm.metrics.histogram`'s. A label's values are listed here, so that each value has its own
word; a histogram by api key gets its memory when the key is first seen, and so does each value of a metric that has
keys. Metrics that readers compute from other parts of shared memory are declared in `broker.metrics.derived_metrics`.
"""

from __future__ import annotations

from rotunda.shm.metrics.background_metrics import CLEANER_METRICS, RECORDER_METRICS, WEB_METRICS
from rotunda.shm.metrics.metric import COUNTER, GAUGE, HISTOGRAM, Metric
from rotunda.shm.metrics.target_metrics import HANDLER_METRICS, TURN_METRICS
from rotunda.shm.metrics.throttle_metrics import THROTTLE_METRICS

PHASES = ("queue", "local", "remote", "response_queue", "send", "total")
MUTE_CAUSES = ("pipeline", "arena", "ring_full", "output", "order", "draining", "pipeline_bytes", "throttled")
CLOSE_CAUSES = (
    *("client", "idle", "invalid_request", "io_error", "response", "shutdown", "fault", "not_kept", "excess"),
    *("failed_authentication", "expired"),
)
MAX_LISTENERS = 8
_LISTENERS = tuple(str(index) for index in range(MAX_LISTENERS))

ACCEPTOR_METRICS = (
    Metric(
        "connections_accepted",
        COUNTER,
        "connections",
        "Accepted connections.",
        "Counted before limits are checked.",
        "listener",
        _LISTENERS,
    ),
    Metric(
        "connections_closed",
        COUNTER,
        "connections",
        "Accepted connections that have ended.",
        "Refused by a limit or reported closed by their processor. Accepted minus closed connections are open.",
        "listener",
        _LISTENERS,
    ),
    Metric(
        "connections_refused",
        COUNTER,
        "connections",
        "Connections closed at once: too many of their address.",
        "See max.connections.per.ip. Above max.connections connections wait instead, see blocked_ns. Rows `A08`, "
        "`A14`.",
        "listener",
        _LISTENERS,
    ),
    Metric(
        "accept_throttled",
        COUNTER,
        "connections",
        "Connections delayed by max.connection.creation.rate.",
        "Beyond max.connection.creation.rate of their listener or of the broker. Row `A10`.",
        "listener",
        _LISTENERS,
    ),
    Metric(
        "accept_throttle_ns",
        COUNTER,
        "ns",
        "Time of those delays.",
        "Divided by their number it is Kafka's connection-accept-throttle-time. Row `A10`.",
        "listener",
        _LISTENERS,
    ),
    Metric(
        "ip_accept_throttled",
        COUNTER,
        "connections",
        "Connections closed with a delay: rate of their address, or of all, too high.",
        "Beyond the connection_creation_rate of their address, or beyond connection.refusal.rate. Rows `A12`, `A13`.",
        "listener",
        _LISTENERS,
    ),
    Metric(
        "ip_accept_throttle_ns",
        COUNTER,
        "ns",
        "Time of those delays.",
        "Divided by their number it is Kafka's ip-connection-accept-throttle-time. Row `A12`.",
        "listener",
        _LISTENERS,
    ),
    Metric(
        "connections_parked",
        GAUGE,
        "connections",
        "Connections waiting for their delayed close.",
        "Refused with a delay; each has a descriptor of the acceptor. Row `A20`.",
    ),
    Metric(
        "blocked_ns",
        COUNTER,
        "ns",
        "Time in which a listener did not accept.",
        "Because of connection limits, the creation rate or full processors. Its growth per nanosecond is Kafka's "
        "AcceptorBlockedPercent, a fraction of 0 to 1. Row `A23`.",
        "listener",
        _LISTENERS,
    ),
    Metric(
        "accept_errors",
        COUNTER,
        "errors",
        "Failed calls of accept.",
        "Usually too many open files: raise the limit. The acceptor backs off and retries. Row `A24`.",
    ),
)

PROCESSOR_METRICS = (
    Metric(
        "requests_received",
        COUNTER,
        "requests",
        "Complete requests received.",
        "Each is passed to one handler or the controller.",
    ),
    Metric(
        "responses_sent",
        COUNTER,
        "responses",
        "Completed requests: response written, or none needed.",
        "Includes Produce with acks=0, requests that closed their connection, and responses after their connection "
        "was closed.",
    ),
    Metric("bytes_received", COUNTER, "bytes", "Bytes read from clients.", "Size prefixes and headers included."),
    Metric(
        "bytes_sent",
        COUNTER,
        "bytes",
        "Bytes of responses received from handlers for clients.",
        "Includes record data sent from files. Counted when a response is read from its ring, before it is written to "
        "the client.",
    ),
    Metric(
        "connections_opened",
        COUNTER,
        "connections",
        "Connections received from the acceptor.",
        "By this processor, all listeners together.",
    ),
    Metric(
        "connections_closed",
        COUNTER,
        "connections",
        "Closed connections, by cause.",
        "client: closed by the client. idle: no traffic for connections.max.idle.ms. invalid_request: invalid frame "
        "or header. io_error: the socket failed. response: closed by a handler. shutdown: the broker stops. fault: an "
        "internal error, confined to the connection. not_kept: its handler died, and there was no copy of its "
        "request. excess: idle longest above max.connections. failed_authentication: TLS or SASL failed or timed out. "
        "expired: its session expired. Rows `A17`, `A18`, `B22`-`B24`.",
        "cause",
        CLOSE_CAUSES,
    ),
    Metric("connections", GAUGE, "connections", "Open connections.", "On this processor."),
    Metric(
        "handshakes",
        COUNTER,
        "handshakes",
        "Completed TLS handshakes.",
        "Failed ones are in connections_closed, as failed_authentication. Each costs the processor about half a "
        "millisecond; a high rate shows clients that open a connection for each request.",
    ),
    Metric(
        "handshakes_under_way",
        GAUGE,
        "handshakes",
        "TLS handshakes in progress.",
        "At most max.connection.handshakes, for at most connection.handshake.timeout.ms each.",
    ),
    Metric(
        "certificate_not_after_ms",
        GAUGE,
        "ms",
        "End of the listener's certificate, as Unix time.",
        "Wall-clock time. Renew it without a restart: replace the file, then `rotunda reload`. The log warns daily in "
        "the last thirty days.",
        "listener",
        _LISTENERS,
        exposed="certificate_expiry_timestamp_seconds",
    ),
    Metric(
        "io_wait_ns",
        COUNTER,
        "ns",
        "Time spent waiting in poll.",
        "Its share of the growth of io_wait_ns and io_ns is Kafka's IdlePercent, a fraction of 0 to 1; the mean over "
        "all processors is NetworkProcessorAvgIdlePercent: healthy above 0.5, overloaded below 0.2. Row `B30`.",
    ),
    Metric("io_ns", COUNTER, "ns", "Time spent outside poll.", "The rest of the loop: reading, routing, writing."),
    Metric("polls", COUNTER, "polls", "Passes of the loop, each with one poll.", "Kafka's select-total."),
    Metric(
        "mutes",
        COUNTER,
        "events",
        "Muted connections, by cause.",
        "pipeline: too many requests in flight; pipeline_bytes: too many bytes of them. arena: no block for a large "
        "request. ring_full: its handler does not keep up. output: too many unsent responses. order: a Produce of "
        "several partitions waits for earlier requests. draining: the broker stops. throttled: its client has "
        "exceeded a quota.",
        "cause",
        MUTE_CAUSES,
    ),
    *THROTTLE_METRICS,
    Metric(
        "arena_used_bytes",
        GAUGE,
        "bytes",
        "Used bytes of the arena.",
        "Freed when the handler releases them. Kafka's MemoryPoolUsed.",
    ),
    Metric(
        "arena_free_bytes",
        GAUGE,
        "bytes",
        "Free bytes of the arena.",
        "May be fragmented. Kafka's MemoryPoolAvailable and AvailableRequestSize.",
    ),
    Metric(
        "arena_depleted_ns",
        COUNTER,
        "ns",
        "Time in which at least one large request waited for a block of the arena.",
        "Kafka's MemoryPoolDepletedTimeTotal; its growth per nanosecond is MemoryPoolAvgDepletedPercent. If it grows, "
        "raise queued.max.request.bytes, or find the reason for slow handlers.",
    ),
    Metric(
        "requests_kept_bytes",
        GAUGE,
        "bytes",
        "Copies of unanswered requests, beyond the first 8 KiB of each connection.",
        "They are sent again if their handler dies. At most pipeline.max.total.bytes, all processors together.",
    ),
    Metric(
        "answers_unwritten_bytes",
        GAUGE,
        "bytes",
        "Bytes of responses waiting for their client or for an earlier response.",
        "Updated every second. At most output.max.bytes of each connection, plus one response. Row `B27`.",
    ),
    Metric(
        "requests_not_kept",
        COUNTER,
        "requests",
        "Requests served without a copy, for lack of memory.",
        "They are lost if their handler dies.",
    ),
    Metric(
        "phase_ns",
        HISTOGRAM,
        "ns",
        "Time of requests in each stage, by API.",
        "queue: from the complete request to the handler. local: in the API function. remote: parked. response_queue: "
        "from the complete response to the processor. send: until the last byte is written. total: their sum. Kafka's "
        "RequestQueueTimeMs, LocalTimeMs, RemoteTimeMs, ResponseQueueTimeMs, ResponseSendTimeMs and TotalTimeMs. A "
        "negative time counts as 0; throttle time is not included. Fetch is Kafka's FetchConsumer: there are no "
        "followers. Rows `D14`, `D16`, `D17`.",
        "phase",
        PHASES,
        exposed="request_duration_seconds",
    ),
    Metric(
        "throttle_ns",
        HISTOGRAM,
        "ns",
        "Throttle time of responses, by API.",
        "Kafka's ThrottleTimeMs, rounded to whole milliseconds; 0 for a request that was not throttled. Row `D16`.",
        exposed="request_throttle_seconds",
    ),
    Metric(
        "request_bytes",
        HISTOGRAM,
        "bytes",
        "Size of requests, by API.",
        "Kafka's RequestBytes plus the request header, without the size prefix. Row `D17`.",
        exposed="request_size_bytes",
    ),
    Metric(
        "requests",
        COUNTER,
        "requests",
        "Completed requests, by API and version.",
        "Kafka's RequestsPerSec{request,version}. Counted when the last byte of the response is written or its "
        "connection is closed. Row `D21`.",
        keys=("api", "version"),
        slots=256,
        exposed="requests_total",
    ),
    Metric(
        "request_errors",
        COUNTER,
        "requests",
        "Completed requests, by API and first error code, NONE included.",
        "Kafka's ErrorsPerSec{request,error}, but once per request, however many of its parts failed. Includes "
        "requests with acks=0. Row `D18`.",
        keys=("api", "error"),
        slots=256,
        exposed="request_errors_total",
    ),
    Metric(
        "deprecated_requests",
        COUNTER,
        "requests",
        "Requests of deprecated versions, by client software.",
        "Kafka's DeprecatedRequestsPerSec. The software to update before these versions are removed. Row `C17`.",
        keys=("api", "version", "software"),
        # Fewer than there are texts: the others are for connections.
        slots=32,
        exposed="deprecated_requests_total",
    ),
    Metric(
        "client_connections",
        GAUGE,
        "connections",
        "Open connections, by listener and client software.",
        "Software as sent in ApiVersions, version 3 and later; empty without it.",
        keys=("listener", "software"),
        slots=128,
        exposed="client_connections",
    ),
    Metric(
        "authentications_succeeded",
        COUNTER,
        "connections",
        "Connections authenticated by SASL.",
        "Kafka's successful-authentication-total. Row `B06`.",
    ),
    Metric(
        "authentications_failed",
        COUNTER,
        "connections",
        "Connections closed after a failed SASL authentication.",
        "The log has the reason for each client and user, at most every ten seconds. Kafka's "
        "failed-authentication-total. Row `B23`.",
    ),
    Metric(
        "reauthentications_succeeded",
        COUNTER,
        "sessions",
        "Sessions renewed on their connection.",
        "See connections.max.reauth.ms. Kafka's successful-reauthentication-total. Row `B25`.",
    ),
    Metric(
        "reauthentications_failed",
        COUNTER,
        "connections",
        "Connections closed after a failed session renewal.",
        "Kafka's failed-reauthentication-total. Row `B25`.",
    ),
    Metric(
        "reauthentication_ns",
        COUNTER,
        "ns",
        "Time of session renewals.",
        "Divided by their number it is Kafka's reauthentication-latency-avg. Row `B25`.",
    ),
    Metric(
        "sessions_expired",
        COUNTER,
        "connections",
        "Connections closed after their session expired.",
        "Clients without re-authentication (KIP-368). Kafka's expired-connections-killed-count. Row `B24`.",
    ),
    *TURN_METRICS,
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
