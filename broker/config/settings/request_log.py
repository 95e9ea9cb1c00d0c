"""The broker settings of the request log: its content, the delay until it is in a file, and its retention.

Declarations only. `broker_config` joins them with the others into the one BrokerConfig. Kafka has no such settings;
their names follow those of its logs.
"""

from __future__ import annotations

from dataclasses import dataclass

from rotunda.broker.config.keys import Key, Kind, setting


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class RequestLogSettings:
    """Settings of the recorder. Only ever part of a BrokerConfig."""

    request_log_enable: bool = setting(
        Key(
            name="request.log.enable",
            kind=Kind.BOOLEAN,
            default=True,
            dynamic=True,
            doc="Whether a row for every finished request is written to the request log, below the data directory.",
        )
    )
    request_log_sample_interval: int = setting(
        Key(
            name="request.log.sample.interval",
            kind=Kind.INT,
            default=1,
            least=1,
            most=1_000_000,
            dynamic=True,
            doc="Of the requests that neither failed nor were slow, one in this many is recorded, by chance; its "
            "column sampleWeight says how many it stands for. 1 records all of them.",
        )
    )
    request_log_rows_per_second: int = setting(
        Key(
            name="request.log.rows.per.second",
            kind=Kind.INT,
            default=5_000,
            least=0,
            dynamic=True,
            doc="When requests come faster than this for more than a second, fewer of those that neither failed nor "
            "were slow are recorded, so that the log costs next to nothing; the column sampleWeight says how many each "
            "row stands for. 0: all are recorded as long as the recorder keeps up.",
        )
    )
    request_log_slow_threshold_ms: int = setting(
        Key(
            name="request.log.slow.threshold.ms",
            kind=Kind.LONG,
            default=100,
            unit="ms",
            least=0,
            dynamic=True,
            doc="Requests that took as long are slow and always recorded. What a fetch waited for data, or a member "
            "for its group, does not count.",
        )
    )
    request_log_roles_interval_ms: int = setting(
        Key(
            name="request.log.roles.interval.ms",
            kind=Kind.LONG,
            default=10_000,
            unit="ms",
            least=0,
            most=3_600_000,
            dynamic=True,
            doc="How often, while there are requests, the request log gets a row for each process of the broker "
            "(dataset roles) and how far groups lag behind (dataset groups). 0: never.",
        )
    )
    request_log_roll_ms: int = setting(
        Key(
            name="request.log.roll.ms",
            kind=Kind.LONG,
            default=60_000,
            unit="ms",
            least=100,
            dynamic=True,
            doc="A file of the request log is finished, and can be read, after this time at the latest. Until then "
            "its rows are lost if the recorder is killed.",
        )
    )
    request_log_roll_bytes: int = setting(
        Key(
            name="request.log.roll.bytes",
            kind=Kind.INT,
            default=64 * 1024 * 1024,
            unit="bytes",
            least=1,
            dynamic=True,
            doc="A file of the request log is finished when it has become so large.",
        )
    )
    request_log_retention_ms: int = setting(
        Key(
            name="request.log.retention.ms",
            kind=Kind.LONG,
            default=7 * 24 * 3600 * 1000,
            unit="ms",
            least=-1,
            dynamic=True,
            doc="Files of the request log are removed when they are this old; -1 keeps them for ever.",
        )
    )
    request_log_retention_bytes: int = setting(
        Key(
            name="request.log.retention.bytes",
            kind=Kind.LONG,
            default=1024 * 1024 * 1024,
            unit="bytes",
            least=-1,
            dynamic=True,
            doc="The oldest files of the request log are removed when all together are larger; -1 is no limit.",
        )
    )
