"""Every metric, declared once: pages of memory, readers and docs/metrics.md all derive from this list.

A metric belongs to the roles that write it. Counters only grow, also over a restart of their process; gauges
hold the latest value; a histogram is `shm.histogram`'s. A label's values are listed here, so that each value
has its own word; a histogram by api key gets its memory when the key is first seen.
"""

from __future__ import annotations

from dataclasses import dataclass

COUNTER = "counter"
GAUGE = "gauge"
HISTOGRAM = "histogram"

PHASES = ("queue", "local", "remote", "response_queue", "send", "total")
MUTE_CAUSES = ("pipeline", "arena", "ring_full", "output", "order", "draining")
CLOSE_CAUSES = ("client", "idle", "invalid_request", "io_error", "response", "shutdown", "fault")
MAX_LISTENERS = 8
_LISTENERS = tuple(str(index) for index in range(MAX_LISTENERS))


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric: `line` says what it is, `text` what to make of it; `values` are those of its `label`."""

    name: str
    kind: str
    unit: str
    line: str
    text: str
    label: str = ""
    values: tuple[str, ...] = ("",)


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
        "A Produce with acks=0 counts too, and so does a request whose answer is the end of its connection. Fewer "
        "than requests_received: a connection that ends takes along what it still had in flight.",
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
        "client: the other side left. idle: connections.max.idle.ms without a byte. invalid_request: broken "
        "framing or a header that cannot be read. io_error: the socket failed. response: a handler asked for "
        "it. shutdown: the broker stops. fault: an error of ours, contained to the connection.",
        "cause",
        CLOSE_CAUSES,
    ),
    Metric("connections", GAUGE, "connections", "Connections open now.", "On this processor."),
    Metric(
        "io_wait_ns",
        COUNTER,
        "ns",
        "Time spent waiting in poll.",
        "Its growth per nanosecond is Kafka's NetworkProcessor IdlePercent, a fraction of 0 to 1: healthy "
        "above 0.3, worth a look below 0.5, urgent below 0.2 for long. Row `B30`.",
    ),
    Metric("io_ns", COUNTER, "ns", "Time spent outside poll.", "The rest of the loop: reading, routing, writing."),
    Metric(
        "mutes",
        COUNTER,
        "events",
        "How often reading from a connection was stopped, by cause.",
        "pipeline: too many requests in flight. arena: no block for a large request. ring_full: its handler "
        "does not keep up. output: the client does not read its responses. order: a Produce of several partitions "
        "waits for what is in flight. draining: the broker stops.",
        "cause",
        MUTE_CAUSES,
    ),
    Metric(
        "arena_used_bytes",
        GAUGE,
        "bytes",
        "Arena taken by requests.",
        "Freed when the handler releases them.",
    ),
    Metric("arena_free_bytes", GAUGE, "bytes", "Arena left.", "Not always in one piece."),
    Metric(
        "phase_ns",
        HISTOGRAM,
        "ns",
        "Time requests spent in each phase, by api key.",
        "queue: whole request to handler. local: in the API function. remote: parked, waiting for others. "
        "response_queue: answer complete to processor. send: processor to last byte written. total: all of "
        "them. Kafka's RequestQueueTimeMs, LocalTimeMs, RemoteTimeMs, ResponseQueueTimeMs, ResponseSendTimeMs "
        "and TotalTimeMs. A negative time counts as 0; the throttle time is no part of it. Rows `D14`, `D16`.",
        "phase",
        PHASES,
    ),
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
        "The mean growth per nanosecond over all handlers is Kafka's RequestHandlerAvgIdlePercent, a fraction "
        "of 0 to 1. Row `E01`.",
    ),
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
        "fetches_parked",
        COUNTER,
        "requests",
        "Fetches that had to wait for data.",
        "They found less than fetch.min.bytes.",
    ),
)

CATALOGUE: dict[str, tuple[Metric, ...]] = {
    "acceptor": ACCEPTOR_METRICS,
    "processor": PROCESSOR_METRICS,
    "handler": HANDLER_METRICS,
    "controller": HANDLER_METRICS,
}

_PREAMBLE = """# Metrics

Printed by `shm/metrics_catalogue.py`, where every metric is declared once. Each process writes a page of its
own in shared memory; readers add up the pages of a role. Counters survive the restart of their process, not
of the broker. Histograms keep values within 2 %.
"""


def describe_markdown() -> str:
    """Return the text of docs/metrics.md."""
    parts = [_PREAMBLE]
    for title, metrics in (
        ("acceptor", ACCEPTOR_METRICS),
        ("processor", PROCESSOR_METRICS),
        ("handler and controller", HANDLER_METRICS),
    ):
        parts.append(f"## {title}\n")
        parts += ["| metric | kind | unit | label | meaning |", "|---|---|---|---|---|"]
        parts += [f"| {m.name} | {m.kind} | {m.unit} | {_label_text(m)} | {m.line} |" for m in metrics]
        parts.append("")
        parts += [f"**{m.name}**: {m.line} {m.text}\n" for m in metrics]
    return "\n".join(parts)


def _label_text(metric: Metric) -> str:
    if metric.label == "listener":
        return f"listener: 0 to {MAX_LISTENERS - 1}"
    text = f"{metric.label}: {', '.join(metric.values)}" if metric.label else ""
    return f"api_key; {text}" if metric.kind == HISTOGRAM else text
