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
        "Connections closed at once: too many of their address.",
        "See max.connections.per.ip. Beyond max.connections nobody is refused: others wait, which is blocked_ns. Rows "
        "`A08`, `A14`.",
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
        "Connections closed with a delay, for the rate of their address or of all.",
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
        "Connections that wait for their delayed close.",
        "Refused with a delay; each has a descriptor of the acceptor. Row `A20`.",
    ),
    Metric(
        "blocked_ns",
        COUNTER,
        "ns",
        "Time in which a listener did not accept.",
        "Because of connection limits, creation rate or processors that take no more. Its growth per "
        "nanosecond is Kafka's AcceptorBlockedPercent, a fraction of 0 to 1. Row `A23`.",
        "listener",
        _LISTENERS,
    ),
    Metric(
        "accept_errors",
        COUNTER,
        "errors",
        "Failed calls of accept.",
        "Mostly too many open files: raise the limit. The acceptor backs off and tries again. Row `A24`.",
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
        "A Produce with acks=0 counts too, and so does a request whose answer is the end of its connection, or comes "
        "when its connection has gone.",
    ),
    Metric("bytes_received", COUNTER, "bytes", "Bytes read from clients.", "Size prefixes and headers included."),
    Metric(
        "bytes_sent",
        COUNTER,
        "bytes",
        "Bytes of responses received from handlers for clients.",
        "Record data sent from files included. Counted as an answer leaves its ring: what a slow client has not read "
        "yet is in it, and so is what is dropped when its connection ends.",
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
        "client: the other side left. idle: connections.max.idle.ms without a byte. invalid_request: broken framing or "
        "header. io_error: the socket failed. response: a handler asked for it. shutdown: the broker stops. fault: an "
        "error of ours, contained to the connection. not_kept: its handler died, and no copy of its request was kept. "
        "excess: there were more than max.connections, and it had been silent longest. failed_authentication: the TLS "
        "handshake or the authentication by SASL failed, or took too long. expired: its session had ended. Rows `A17`, "
        "`A18`, `B22`-`B24`.",
        "cause",
        CLOSE_CAUSES,
    ),
    Metric("connections", GAUGE, "connections", "Open connections.", "On this processor."),
    Metric(
        "handshakes",
        COUNTER,
        "handshakes",
        "Completed TLS handshakes.",
        "Those that failed are in connections_closed, as failed_authentication. Each costs the processor about half "
        "a millisecond, so that clients that connect anew for each request show here.",
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
        "Wall-clock time. It is renewed without a restart: replace the file, then `rotunda reload`. Thirty days before "
        "the end the log begins to warn, once a day.",
        "listener",
        _LISTENERS,
        exposed="certificate_expiry_timestamp_seconds",
    ),
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
        "Muted connections, by cause.",
        "pipeline: too many requests in flight; pipeline_bytes: too many bytes of them. arena: no block for a large "
        "request. ring_full: its handler does not keep up. output: responses wait for the client, or an earlier one. "
        "order: a Produce of several partitions waits for what is in flight. draining: the broker stops. throttled: an "
        "answer gave a throttle time, since its client has used up a quota.",
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
        "answers_unwritten_bytes",
        GAUGE,
        "bytes",
        "Bytes of responses that wait for their client or for an earlier response.",
        "As of the last second. At most output.max.bytes of each connection, and one answer more. Row `B27`.",
    ),
    Metric(
        "requests_not_kept",
        COUNTER,
        "requests",
        "Requests served without a copy, for lack of memory.",
        "They die with their handler.",
    ),
    Metric(
        "phase_ns",
        HISTOGRAM,
        "ns",
        "Time of requests in each stage, by API.",
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
        "Throttle time of responses, by API.",
        "Kafka's ThrottleTimeMs, rounded to whole milliseconds; 0 for a request that was not throttled. Row `D16`.",
        exposed="request_throttle_seconds",
    ),
    Metric(
        "request_bytes",
        HISTOGRAM,
        "bytes",
        "Size of requests, by API.",
        "Kafka's RequestBytes, with the header that Kafka leaves out: without the size prefix. Row `D17`.",
        exposed="request_size_bytes",
    ),
    Metric(
        "requests",
        COUNTER,
        "requests",
        "Completed requests, by API and version.",
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
        "Completed requests, by API and first error code, NONE included.",
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
        "Requests of deprecated versions, by client software.",
        "Kafka's DeprecatedRequestsPerSec. Which software has to be updated before such versions can go. Row `C17`.",
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
        "From ApiVersions, version 3 and later; empty until a client has sent it, and for one that does not.",
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
        "The log says for each client and user why, at most every ten seconds. Kafka's failed-authentication-total. "
        "Row `B23`.",
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
        "Connections closed after a failed renewal of their session.",
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
        "Clients that do not authenticate again (KIP-368). Kafka's expired-connections-killed-count. Row `B24`.",
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
