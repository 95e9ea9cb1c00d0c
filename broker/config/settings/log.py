"""The broker settings that are defaults of topic settings.

Declarations only: each is the value of a topic setting wherever a topic has no value of its own. The broker key of each
topic key is declared in ``broker.config.topic_config``. Names, defaults and ranges are Kafka's.
"""

from __future__ import annotations

from dataclasses import dataclass

from rotunda.broker.config.keys import MAX_LONG, Kind, setting

COMPRESSION_TYPES = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")
CLEANUP_POLICIES = ("compact", "delete")
TIMESTAMP_TYPES = ("CreateTime", "LogAppendTime")
#: Compression levels: gzip also accepts -1, its library's own default.
GZIP_LEVELS = (-1, 1, 9)
LZ4_LEVELS = (1, 17)
ZSTD_LEVELS = (-131072, 22)
SMALLEST_SEGMENT_BYTES = 1024 * 1024


def gzip_level_complaint(level: int) -> str | None:
    """Return why a gzip level is not allowed, or None."""
    default, lowest, highest = GZIP_LEVELS
    allowed = level == default or lowest <= level <= highest
    return None if allowed else f"Value must be between {lowest} and {highest} or equal to {default}"


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class LogSettings:
    """Defaults of topic settings. A part of BrokerConfig."""

    message_max_bytes: int = setting(
        Kind.INT, 1048588, least=0, dynamic=True, doc="Maximum size of a record batch, after compression."
    )
    message_max_uncompressed_bytes: int = setting(
        Kind.INT,
        16777216,
        least=0,
        dynamic=True,
        doc="Maximum uncompressed size of the records in a compressed batch. A larger batch is rejected with "
        "MESSAGE_TOO_LARGE (Java's producer then splits it), and skipped by compaction. Never less than "
        "max.message.bytes of the topic.",
    )
    max_decompressed_message_bytes: int = setting(
        Kind.INT,
        2147483639,
        least=1,
        most=2147483639,
        dynamic=True,
        doc="Largest single record of a compressed batch, uncompressed. A batch with a larger one is rejected with "
        "INVALID_RECORD.",
    )
    log_validate_records: bool = setting(
        Kind.BOOLEAN,
        True,
        dynamic=True,
        doc="Validate every record of every batch, as Kafka does. If false, only compressed batches, batches with "
        "an impossible max timestamp in the header, and those of compacted topics.",
    )
    log_segment_bytes: int = setting(
        Kind.INT, 1073741824, least=SMALLEST_SEGMENT_BYTES, dynamic=True, doc="Maximum size of a segment file."
    )
    log_roll_ms: int | None = setting(
        Kind.LONG,
        None,
        least=1,
        nullable=True,
        dynamic=True,
        default_text="that of log.roll.hours",
        doc="Age at which a segment file is closed even if it is not full.",
    )
    log_roll_hours: int = setting(Kind.INT, 168, least=1, doc="log.roll.ms in hours; used if that is not set.")
    log_roll_jitter_ms: int | None = setting(
        Kind.LONG,
        None,
        least=0,
        nullable=True,
        dynamic=True,
        default_text="that of log.roll.jitter.hours",
        doc="Maximum random reduction of log.roll.ms.",
    )
    log_roll_jitter_hours: int = setting(
        Kind.INT, 0, least=0, doc="log.roll.jitter.ms in hours; used if that is not set."
    )
    log_index_size_max_bytes: int = setting(
        Kind.INT,
        10485760,
        least=4,
        dynamic=True,
        doc="Maximum size of a segment's offset index; a full index closes the segment.",
    )
    log_index_interval_bytes: int = setting(
        Kind.INT, 4096, least=0, dynamic=True, doc="Bytes of records between two entries of an index."
    )
    log_flush_interval_messages: int = setting(
        Kind.LONG,
        MAX_LONG,
        unit="records",
        least=1,
        dynamic=True,
        doc="Number of records of a partition after which its files are forced to disk.",
    )
    log_flush_interval_ms: int | None = setting(
        Kind.LONG,
        None,
        least=0,
        nullable=True,
        dynamic=True,
        default_text="that of log.flush.scheduler.interval.ms",
        doc="Maximum time before a record is forced to disk.",
    )
    log_flush_scheduler_interval_ms: int = setting(
        Kind.LONG, MAX_LONG, least=0, doc="Used for log.flush.interval.ms if that is not set."
    )
    log_retention_bytes: int = setting(
        Kind.LONG,
        -1,
        dynamic=True,
        doc="Size of a partition above which its oldest segments are deleted; -1: no limit.",
    )
    log_retention_ms: int | None = setting(
        Kind.LONG,
        None,
        least=-1,
        nullable=True,
        dynamic=True,
        default_text="that of log.retention.minutes",
        doc="Age at which a segment is deleted; -1: never.",
    )
    log_retention_minutes: int | None = setting(
        Kind.INT,
        None,
        least=-1,
        nullable=True,
        default_text="that of log.retention.hours",
        doc="log.retention.ms in minutes; used if that is not set. -1: never.",
    )
    log_retention_hours: int = setting(
        Kind.INT,
        168,
        least=-1,
        doc="log.retention.ms in hours; used if neither that nor log.retention.minutes is set. -1: never.",
    )
    log_cleanup_policy: tuple[str, ...] = setting(
        Kind.LIST,
        ("delete",),
        choices=CLEANUP_POLICIES,
        dynamic=True,
        doc="Treatment of old segments: delete by age and size, compact by key, or both.",
    )
    log_cleaner_delete_retention_ms: int = setting(
        Kind.LONG, 86400000, least=0, dynamic=True, doc="How long compaction keeps tombstones."
    )
    log_cleaner_min_compaction_lag_ms: int = setting(
        Kind.LONG, 0, least=0, dynamic=True, doc="Age below which records are not compacted."
    )
    log_cleaner_max_compaction_lag_ms: int = setting(
        Kind.LONG,
        MAX_LONG,
        least=1,
        dynamic=True,
        doc="Age above which a record makes its partition due for compaction.",
    )
    log_cleaner_min_cleanable_ratio: float = setting(
        Kind.DOUBLE,
        0.5,
        least=0,
        most=1,
        dynamic=True,
        doc="Uncompacted share of a partition at which it is compacted.",
    )
    log_segment_delete_delay_ms: int = setting(
        Kind.LONG, 60000, least=0, dynamic=True, doc="How long the file of a deleted segment is kept for its readers."
    )
    log_preallocate: bool = setting(
        Kind.BOOLEAN, False, dynamic=True, doc="Allocate the full size of a new segment file at once."
    )
    log_message_timestamp_type: str = setting(
        Kind.STRING,
        "CreateTime",
        choices=TIMESTAMP_TYPES,
        dynamic=True,
        doc="Whether records keep their producer's timestamp or get the append time.",
    )
    log_message_timestamp_before_max_ms: int = setting(
        Kind.LONG,
        MAX_LONG,
        least=0,
        dynamic=True,
        doc="How far in the past a record's timestamp may be. Records beyond it are rejected.",
    )
    log_message_timestamp_after_max_ms: int = setting(
        Kind.LONG,
        3600000,
        least=0,
        dynamic=True,
        doc="How far in the future a record's timestamp may be. Records beyond it are rejected.",
    )
    compression_type: str = setting(
        Kind.STRING,
        "producer",
        choices=COMPRESSION_TYPES,
        dynamic=True,
        doc="Codec of stored batches; producer keeps the producer's.",
    )
    compression_gzip_level: int = setting(
        Kind.INT, -1, validator=gzip_level_complaint, dynamic=True, doc="Level for compression.type=gzip."
    )
    compression_lz4_level: int = setting(
        Kind.INT, 9, least=LZ4_LEVELS[0], most=LZ4_LEVELS[1], dynamic=True, doc="Level for compression.type=lz4."
    )
    compression_zstd_level: int = setting(
        Kind.INT, 3, least=ZSTD_LEVELS[0], most=ZSTD_LEVELS[1], dynamic=True, doc="Level for compression.type=zstd."
    )
    unclean_leader_election_enable: bool = setting(
        Kind.BOOLEAN, False, dynamic=True, doc="Whether a lagging replica can become leader."
    )
    min_insync_replicas: int = setting(
        Kind.INT,
        1,
        least=1,
        dynamic=True,
        doc="Number of replicas that must have a batch before acks=all succeeds; above 1 such a Produce fails here.",
    )


def compaction_lag_complaint(config: LogSettings) -> str | None:
    """Return an error if records would have to be compacted before they may be."""
    least, most = config.log_cleaner_min_compaction_lag_ms, config.log_cleaner_max_compaction_lag_ms
    return None if least <= most else "must not be above log.cleaner.max.compaction.lag.ms"
