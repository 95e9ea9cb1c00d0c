"""The screens: their names, purposes, and equivalents without a browser."""

from __future__ import annotations

from typing import NamedTuple


class Screen(NamedTuple):
    """One screen. `command`, `metrics` and `sql` are its equivalents, as /metrics and the request log have them."""

    name: str
    title: str
    path: str
    lead: str
    command: str
    metrics: tuple[str, ...]
    sql: str


_REQUESTS = "read_parquet('{log}/requests/**/*.parquet')"

SCREENS = (
    Screen(
        "overview",
        "Overview",
        "./",
        "The broker's processes as a request passes through them. Bars are live.",
        "rotunda top",
        (
            "rotunda_ring_used_bytes",
            "rotunda_processor_io_wait_seconds_total",
            "rotunda_handler_idle_seconds_total",
            "rotunda_request_duration_seconds",
        ),
        "SELECT requestApiKeyName, sum(sampleWeight) AS requests,\n"
        "       sum(totalTimeUs * sampleWeight) / sum(sampleWeight) AS mean_us\n"
        f"FROM {_REQUESTS}\nWHERE time > now() - INTERVAL 5 MINUTE GROUP BY ALL ORDER BY requests DESC;",
    ),
    Screen(
        "clients",
        "Clients",
        "clients",
        "Connected clients, their software and their load.",
        "rotunda requests --follow",
        ("rotunda_client_connections", "rotunda_deprecated_requests_total"),
        "SELECT clientId, softwareName, softwareVersion, address, requestApiKeyName, requestApiVersion,\n"
        f"       sum(sampleWeight) AS requests\nFROM {_REQUESTS}\nGROUP BY ALL ORDER BY requests DESC;",
    ),
    Screen(
        "topics",
        "Topics",
        "topics",
        "Stored topics, their growth and their handlers.",
        "rotunda topic list",
        ("rotunda_topic_records_in_total", "rotunda_topic_bytes_in_total", "rotunda_topic_log_bytes"),
        "SELECT topic, clientId, sum(records * sampleWeight) AS records, sum(requestBytes * sampleWeight) AS bytes\n"
        f"FROM {_REQUESTS}\nWHERE requestApiKeyName = 'PRODUCE' GROUP BY ALL ORDER BY bytes DESC;",
    ),
    Screen(
        "groups",
        "Groups",
        "groups",
        "Members, lag, and the events of groups with their reasons.",
        "rotunda group list",
        ("rotunda_group_lag_records", "rotunda_group_lag_seconds", "rotunda_groups"),
        "SELECT time, \"group\", member, event, reason\nFROM read_parquet('{log}/groups/**/*.parquet')\n"
        "ORDER BY time DESC LIMIT 100;",
    ),
    Screen(
        "requests",
        "Requests",
        "requests",
        "The latest requests, and the slowest of the last ten minutes with the time in each phase.",
        "rotunda requests --slow --since 10m",
        ("rotunda_request_duration_seconds", "rotunda_request_errors_total"),
        "SELECT time, requestApiKeyName, clientId, topic, totalTimeUs, requestQueueTimeUs, localTimeUs,\n"
        f"       remoteTimeUs, responseQueueTimeUs, sendTimeUs\nFROM {_REQUESTS}\nORDER BY totalTimeUs DESC LIMIT 100;",
    ),
    Screen(
        "history",
        "History",
        "history",
        "The broker minute by minute, for the last hour, day, week, or any range.",
        "rotunda requests --slow --since 1h",
        ("rotunda_request_duration_seconds", "rotunda_request_errors_total"),
        "SELECT time, name, requests, errors, totalP50Us, totalP99Us\n"
        "FROM read_parquet('{log}/history/**/*.parquet')\nWHERE kind = 'api' ORDER BY time DESC, requests DESC;",
    ),
    Screen(
        "reports",
        "Reports",
        "reports",
        "Results of Spark jobs over the request log, and the command that repeats each.",
        "rotunda report latency",
        ("rotunda_request_duration_seconds", "rotunda_request_errors_total"),
        "SELECT requestApiKeyName, sum(sampleWeight) AS requests,\n"
        "       quantile_cont(totalTimeUs, [0.5, 0.99]) AS p50_p99_us\n"
        f"FROM {_REQUESTS}\nWHERE time > now() - INTERVAL 24 HOUR GROUP BY ALL ORDER BY requests DESC;",
    ),
    Screen(
        "processes",
        "Processes",
        "processes",
        "Every process of the broker: its use of resources, restarts and last message.",
        "rotunda status",
        ("rotunda_process_restarts_total", "rotunda_process_ready"),
        "SELECT processor, handler, sum(sampleWeight) AS requests, sum(localTimeUs * sampleWeight) / 1e6 AS busy_s,\n"
        "       count(*) FILTER (WHERE slow) AS slow, max(requestQueueTimeUs) AS longest_queue_us\n"
        f"FROM {_REQUESTS}\nGROUP BY ALL ORDER BY processor, handler;",
    ),
    Screen(
        "configuration",
        "Configuration",
        "configuration",
        "Every setting in force, with the source of its value.",
        "rotunda print-config",
        (),
        "",
    ),
)

BY_NAME = {screen.name: screen for screen in SCREENS}
