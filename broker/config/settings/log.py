"""The broker settings that are defaults of topic settings.

Declarations only: each is the value of a topic setting wherever a topic has no value of its own. The broker key of each
topic key is declared in ``broker.config.topic_config``. Names, defaults and ranges are Kafka's.
"""

from __future__ import annotations

from dataclasses import dataclass

from rotunda.broker.config.keys import MAX_LONG, Key, Kind, setting

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
        Key(
            name="message.max.bytes",
            kind=Kind.INT,
            default=1048588,
            unit="bytes",
            least=0,
            dynamic=True,
            doc="Maximum size of a record batch, after compression.",
        )
    )
    message_max_uncompressed_bytes: int = setting(
        Key(
            name="message.max.uncompressed.bytes",
            kind=Kind.INT,
            default=16777216,
            unit="bytes",
            least=0,
            dynamic=True,
            doc="Maximum uncompressed size of the records in a compressed batch. A larger batch is rejected with "
            "MESSAGE_TOO_LARGE (Java's producer then splits it), and skipped by compaction. Never less than "
            "max.message.bytes of the topic.",
        )
    )
    max_decompressed_message_bytes: int = setting(
        Key(
            name="max.decompressed.message.bytes",
            kind=Kind.INT,
            default=2147483639,
            unit="bytes",
            least=1,
            most=2147483639,
            dynamic=True,
            doc="Largest single record of a compressed batch, uncompressed. A batch with a larger one is rejected with "
            "INVALID_RECORD.",
        )
    )
    log_validate_records: bool = setting(
        Key(
            name="log.validate.records",
            kind=Kind.BOOLEAN,
            default=True,
            dynamic=True,
            doc="Validate every record of every batch, as Kafka does. If false, only compressed batches, batches with "
            "an impossible max timestamp in the header, and those of compacted topics.",
        )
    )
    log_segment_bytes: int = setting(
        Key(
            name="log.segment.bytes",
            kind=Kind.INT,
            default=1073741824,
            unit="bytes",
            least=SMALLEST_SEGMENT_BYTES,
            dynamic=True,
            doc="Maximum size of a segment file.",
        )
    )
    log_roll_ms: int | None = setting(
        Key(
            name="log.roll.ms",
            kind=Kind.LONG,
            default=None,
            unit="ms",
            least=1,
            nullable=True,
            dynamic=True,
            default_text="that of log.roll.hours",
            doc="Age at which a segment file is closed even if it is not full.",
        )
    )
    log_roll_hours: int = setting(
        Key(
            name="log.roll.hours",
            kind=Kind.INT,
            default=168,
            unit="hours",
            least=1,
            doc="log.roll.ms in hours; used if that is not set.",
        )
    )
    log_roll_jitter_ms: int | None = setting(
        Key(
            name="log.roll.jitter.ms",
            kind=Kind.LONG,
            default=None,
            unit="ms",
            least=0,
            nullable=True,
            dynamic=True,
            default_text="that of log.roll.jitter.hours",
            doc="Maximum random reduction of log.roll.ms.",
        )
    )
    log_roll_jitter_hours: int = setting(
        Key(
            name="log.roll.jitter.hours",
            kind=Kind.INT,
            default=0,
            unit="hours",
            least=0,
            doc="log.roll.jitter.ms in hours; used if that is not set.",
        )
    )
    log_index_size_max_bytes: int = setting(
        Key(
            name="log.index.size.max.bytes",
            kind=Kind.INT,
            default=10485760,
            unit="bytes",
            least=4,
            dynamic=True,
            doc="Maximum size of a segment's offset index; a full index closes the segment.",
        )
    )
    log_index_interval_bytes: int = setting(
        Key(
            name="log.index.interval.bytes",
            kind=Kind.INT,
            default=4096,
            unit="bytes",
            least=0,
            dynamic=True,
            doc="Bytes of records between two entries of an index.",
        )
    )
    log_flush_interval_messages: int = setting(
        Key(
            name="log.flush.interval.messages",
            kind=Kind.LONG,
            default=MAX_LONG,
            unit="records",
            least=1,
            dynamic=True,
            doc="Number of records of a partition after which its files are forced to disk.",
        )
    )
    log_flush_interval_ms: int | None = setting(
        Key(
            name="log.flush.interval.ms",
            kind=Kind.LONG,
            default=None,
            unit="ms",
            least=0,
            nullable=True,
            dynamic=True,
            default_text="that of log.flush.scheduler.interval.ms",
            doc="Maximum time before a record is forced to disk.",
        )
    )
    log_flush_scheduler_interval_ms: int = setting(
        Key(
            name="log.flush.scheduler.interval.ms",
            kind=Kind.LONG,
            default=MAX_LONG,
            unit="ms",
            least=0,
            doc="Used for log.flush.interval.ms if that is not set.",
        )
    )
    log_retention_bytes: int = setting(
        Key(
            name="log.retention.bytes",
            kind=Kind.LONG,
            default=-1,
            unit="bytes",
            dynamic=True,
            doc="Size of a partition above which its oldest segments are deleted; -1: no limit.",
        )
    )
    log_retention_ms: int | None = setting(
        Key(
            name="log.retention.ms",
            kind=Kind.LONG,
            default=None,
            unit="ms",
            least=-1,
            nullable=True,
            dynamic=True,
            default_text="that of log.retention.minutes",
            doc="Age at which a segment is deleted; -1: never.",
        )
    )
    log_retention_minutes: int | None = setting(
        Key(
            name="log.retention.minutes",
            kind=Kind.INT,
            default=None,
            unit="minutes",
            least=-1,
            nullable=True,
            default_text="that of log.retention.hours",
            doc="log.retention.ms in minutes; used if that is not set. -1: never.",
        )
    )
    log_retention_hours: int = setting(
        Key(
            name="log.retention.hours",
            kind=Kind.INT,
            default=168,
            unit="hours",
            least=-1,
            doc="log.retention.ms in hours; used if neither that nor log.retention.minutes is set. -1: never.",
        )
    )
    log_cleanup_policy: tuple[str, ...] = setting(
        Key(
            name="log.cleanup.policy",
            kind=Kind.LIST,
            default=("delete",),
            choices=CLEANUP_POLICIES,
            dynamic=True,
            doc="Treatment of old segments: delete by age and size, compact by key, or both.",
        )
    )
    log_cleaner_delete_retention_ms: int = setting(
        Key(
            name="log.cleaner.delete.retention.ms",
            kind=Kind.LONG,
            default=86400000,
            unit="ms",
            least=0,
            dynamic=True,
            doc="How long compaction keeps tombstones.",
        )
    )
    log_cleaner_min_compaction_lag_ms: int = setting(
        Key(
            name="log.cleaner.min.compaction.lag.ms",
            kind=Kind.LONG,
            default=0,
            unit="ms",
            least=0,
            dynamic=True,
            doc="Age below which records are not compacted.",
        )
    )
    log_cleaner_max_compaction_lag_ms: int = setting(
        Key(
            name="log.cleaner.max.compaction.lag.ms",
            kind=Kind.LONG,
            default=MAX_LONG,
            unit="ms",
            least=1,
            dynamic=True,
            doc="Age above which a record makes its partition due for compaction.",
        )
    )
    log_cleaner_min_cleanable_ratio: float = setting(
        Key(
            name="log.cleaner.min.cleanable.ratio",
            kind=Kind.DOUBLE,
            default=0.5,
            least=0,
            most=1,
            dynamic=True,
            doc="Uncompacted share of a partition at which it is compacted.",
        )
    )
    log_segment_delete_delay_ms: int = setting(
        Key(
            name="log.segment.delete.delay.ms",
            kind=Kind.LONG,
            default=60000,
            unit="ms",
            least=0,
            dynamic=True,
            doc="How long the file of a deleted segment is kept for its readers.",
        )
    )
    log_preallocate: bool = setting(
        Key(
            name="log.preallocate",
            kind=Kind.BOOLEAN,
            default=False,
            dynamic=True,
            doc="Allocate the full size of a new segment file at once.",
        )
    )
    log_message_timestamp_type: str = setting(
        Key(
            name="log.message.timestamp.type",
            kind=Kind.STRING,
            default="CreateTime",
            choices=TIMESTAMP_TYPES,
            dynamic=True,
            doc="Whether records keep their producer's timestamp or get the append time.",
        )
    )
    log_message_timestamp_before_max_ms: int = setting(
        Key(
            name="log.message.timestamp.before.max.ms",
            kind=Kind.LONG,
            default=MAX_LONG,
            unit="ms",
            least=0,
            dynamic=True,
            doc="How far in the past a record's timestamp may be. Records beyond it are rejected.",
        )
    )
    log_message_timestamp_after_max_ms: int = setting(
        Key(
            name="log.message.timestamp.after.max.ms",
            kind=Kind.LONG,
            default=3600000,
            unit="ms",
            least=0,
            dynamic=True,
            doc="How far in the future a record's timestamp may be. Records beyond it are rejected.",
        )
    )
    compression_type: str = setting(
        Key(
            name="compression.type",
            kind=Kind.STRING,
            default="producer",
            choices=COMPRESSION_TYPES,
            dynamic=True,
            doc="Codec of stored batches; producer keeps the producer's.",
        )
    )
    compression_gzip_level: int = setting(
        Key(
            name="compression.gzip.level",
            kind=Kind.INT,
            default=-1,
            validator=gzip_level_complaint,
            dynamic=True,
            doc="Level for compression.type=gzip.",
        )
    )
    compression_lz4_level: int = setting(
        Key(
            name="compression.lz4.level",
            kind=Kind.INT,
            default=9,
            least=LZ4_LEVELS[0],
            most=LZ4_LEVELS[1],
            dynamic=True,
            doc="Level for compression.type=lz4.",
        )
    )
    compression_zstd_level: int = setting(
        Key(
            name="compression.zstd.level",
            kind=Kind.INT,
            default=3,
            least=ZSTD_LEVELS[0],
            most=ZSTD_LEVELS[1],
            dynamic=True,
            doc="Level for compression.type=zstd.",
        )
    )
    unclean_leader_election_enable: bool = setting(
        Key(
            name="unclean.leader.election.enable",
            kind=Kind.BOOLEAN,
            default=False,
            dynamic=True,
            doc="Whether a lagging replica can become leader.",
        )
    )
    min_insync_replicas: int = setting(
        Key(
            name="min.insync.replicas",
            kind=Kind.INT,
            default=1,
            least=1,
            dynamic=True,
            doc="Number of replicas that must have a batch before acks=all succeeds; above 1 such a Produce fails "
            "here.",
        )
    )


def compaction_lag_complaint(config: LogSettings) -> str | None:
    """Return an error if records would have to be compacted before they may be."""
    least, most = config.log_cleaner_min_compaction_lag_ms, config.log_cleaner_max_compaction_lag_ms
    return None if least <= most else "must not be above log.cleaner.max.compaction.lag.ms"
