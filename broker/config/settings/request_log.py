"""The broker settings of the request log: its content, the delay until it is in a file, and its retention.

Declarations only. `broker_config` joins them with the others into the one BrokerConfig. Kafka has no such settings;
their names follow those of its logs.
"""

from __future__ import annotations

from dataclasses import dataclass

from rotunda.broker.config.keys import Kind, setting


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class RequestLogSettings:
    """Settings of the recorder. A part of BrokerConfig."""

    request_log_enable: bool = setting(
        Kind.BOOLEAN,
        True,
        dynamic=True,
        doc="Write a row for every finished request to the request log, below the data directory.",
    )
    request_log_sample_interval: int = setting(
        Kind.INT,
        1,
        least=1,
        most=1_000_000,
        dynamic=True,
        doc="Record one in this many of the requests that neither failed nor were slow, chosen at random. 1: all. "
        "The column sampleWeight has the number of requests that a row represents.",
    )
    request_log_rows_per_second: int = setting(
        Kind.INT,
        5_000,
        least=0,
        dynamic=True,
        doc="Rate of requests above which those that neither failed nor were slow are sampled, so that the log "
        "stays cheap. The column sampleWeight has the number of requests that a row represents. 0: no "
        "sampling while the recorder keeps up.",
    )
    request_log_slow_threshold_ms: int = setting(
        Kind.LONG,
        100,
        least=0,
        dynamic=True,
        doc="Duration of a slow request. Slow requests are always recorded. Waits of a Fetch for data and of a "
        "member for its group do not count.",
    )
    request_log_roles_interval_ms: int = setting(
        Kind.LONG,
        10_000,
        least=0,
        most=3_600_000,
        dynamic=True,
        doc="Interval of rows for each process of the broker (dataset roles) and the lag of groups (dataset "
        "groups), while there are requests. 0: never.",
    )
    request_log_roll_ms: int = setting(
        Kind.LONG,
        60_000,
        least=100,
        dynamic=True,
        doc="Maximum time until a file of the request log is finished and readable. Until then its rows are lost "
        "if the recorder is killed.",
    )
    request_log_roll_bytes: int = setting(
        Kind.INT,
        64 * 1024 * 1024,
        least=1,
        dynamic=True,
        doc="Maximum memory for the rows of a file of the request log. On disk they need about an eighth of it.",
    )
    request_log_retention_ms: int = setting(
        Kind.LONG,
        7 * 24 * 3600 * 1000,
        least=-1,
        dynamic=True,
        doc="Age at which files of the request log are deleted; -1: never.",
    )
    request_log_retention_bytes: int = setting(
        Kind.LONG,
        1024 * 1024 * 1024,
        least=-1,
        dynamic=True,
        doc="Total size of the request log above which its oldest files are deleted; -1: no limit.",
    )
    history_retention_ms: int = setting(
        Kind.LONG,
        30 * 24 * 3600 * 1000,
        least=-1,
        dynamic=True,
        doc="Age at which files of the history (aggregates of each minute, dataset history of the request log) are "
        "deleted; -1: never; 0: no history is recorded.",
    )
