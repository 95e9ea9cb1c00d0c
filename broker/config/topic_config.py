"""The settings of a topic: their names, the broker setting each defaults to, their values.

``TOPIC_CONFIGS`` is Kafka's full set. Most keys are a broker setting under another name, with the same type, range and
text, and its value applies wherever the topic has none of its own. The log reads only ``LogConfig``; admin requests
validate and describe through this module. Pure; runs in handlers and in the controller.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from rotunda.broker.config.keys import MAX_INT, Key, Kind, Value, field_of, keys_of
from rotunda.broker.config.settings.log import LogSettings
from rotunda.broker.errors import ApiError, ConfigError
from rotunda.broker.text_table import did_you_mean

INVALID_CONFIG = 40

_BROKER_KEYS: Mapping[str, Key] = keys_of(LogSettings)
_MS_PER_UNIT = {"hours": 3600 * 1000, "minutes": 60 * 1000}
_REPLICA = re.compile(r"[0-9]+:[0-9]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicKey(Key):
    """A topic setting. ``synonyms`` are its broker settings, of which the first with a value applies.

    An internal key may be set but is not shown.
    """

    synonyms: tuple[str, ...] = ()
    internal: bool = False


def _in_topic_unit(broker_key: Key, value: Any) -> Any:
    """Return a broker value of hours or minutes in milliseconds, any other as it is; below 0 is always -1."""
    factor = _MS_PER_UNIT.get(broker_key.unit)
    if factor is None or value is None:
        return value
    return -1 if value < 0 else value * factor


def _like(*synonyms: str, internal: bool = False) -> Any:
    """Return the field of a topic setting that is these broker settings under another name."""
    first = _BROKER_KEYS[synonyms[0]]
    defaults = (_in_topic_unit(_BROKER_KEYS[synonym], _BROKER_KEYS[synonym].default) for synonym in synonyms)
    shared = {field.name: getattr(first, field.name) for field in dataclasses.fields(Key)}
    shared.update(
        name="",
        default=next(default for default in defaults if default is not None),
        dynamic=True,
        nullable=False,
        default_text=" or ".join(synonyms),
    )
    return field_of(TopicKey(**shared, synonyms=synonyms, internal=internal))


def _own(kind: Kind, default: Value, doc: str, **rest: Any) -> Any:
    """Return the field of a topic setting without a broker setting."""
    return field_of(TopicKey(kind=kind, default=default, doc=doc, dynamic=True, **rest))


def _replicas_complaint(entries: tuple[str, ...]) -> str | None:
    if entries == ("*",) or all(_REPLICA.fullmatch(entry) for entry in entries):
        return None
    return "must be the literal '*' or a list of replicas in the following format: [partitionId]:[brokerId],..."


_NO_REPLICATION = "Stored for tools; one broker replicates nothing."
_NO_TIERS = "Stored for tools; there is no remote storage."


@dataclass(frozen=True, kw_only=True)
class LogConfig:
    """The settings of one topic with everything resolved. Attributes are property names with underscores.

    ``LogConfig()`` has Kafka's defaults.
    """

    cleanup_policy: tuple[str, ...] = _like("log.cleanup.policy")
    compression_type: str = _like("compression.type")
    compression_gzip_level: int = _like("compression.gzip.level")
    compression_lz4_level: int = _like("compression.lz4.level")
    compression_zstd_level: int = _like("compression.zstd.level")
    delete_retention_ms: int = _like("log.cleaner.delete.retention.ms")
    file_delete_delay_ms: int = _like("log.segment.delete.delay.ms")
    flush_messages: int = _like("log.flush.interval.messages")
    flush_ms: int = _like("log.flush.interval.ms", "log.flush.scheduler.interval.ms")
    index_interval_bytes: int = _like("log.index.interval.bytes")
    max_compaction_lag_ms: int = _like("log.cleaner.max.compaction.lag.ms")
    max_decompressed_message_bytes: int = _like("max.decompressed.message.bytes")
    max_message_bytes: int = _like("message.max.bytes")
    message_timestamp_after_max_ms: int = _like("log.message.timestamp.after.max.ms")
    message_timestamp_before_max_ms: int = _like("log.message.timestamp.before.max.ms")
    message_timestamp_type: str = _like("log.message.timestamp.type")
    min_cleanable_dirty_ratio: float = _like("log.cleaner.min.cleanable.ratio")
    min_compaction_lag_ms: int = _like("log.cleaner.min.compaction.lag.ms")
    min_insync_replicas: int = _like("min.insync.replicas")
    preallocate: bool = _like("log.preallocate")
    retention_bytes: int = _like("log.retention.bytes")
    retention_ms: int = _like("log.retention.ms", "log.retention.minutes", "log.retention.hours")
    segment_bytes: int = _like("log.segment.bytes")
    segment_index_bytes: int = _like("log.index.size.max.bytes")
    segment_jitter_ms: int = _like("log.roll.jitter.ms", "log.roll.jitter.hours")
    segment_ms: int = _like("log.roll.ms", "log.roll.hours")
    unclean_leader_election_enable: bool = _like("unclean.leader.election.enable")
    leader_replication_throttled_replicas: tuple[str, ...] = _own(
        Kind.LIST, (), _NO_REPLICATION, validator=_replicas_complaint
    )
    follower_replication_throttled_replicas: tuple[str, ...] = _own(
        Kind.LIST, (), _NO_REPLICATION, validator=_replicas_complaint
    )
    errors_deadletterqueue_group_enable: bool = _own(
        Kind.BOOLEAN, False, "Whether share groups may write dead letters to the topic."
    )
    remote_storage_enable: bool = _own(Kind.BOOLEAN, False, _NO_TIERS)
    remote_log_copy_disable: bool = _own(Kind.BOOLEAN, False, _NO_TIERS)
    remote_log_delete_on_disable: bool = _own(Kind.BOOLEAN, False, _NO_TIERS)
    remote_copy_lag_bytes: int = _own(Kind.LONG, -1, _NO_TIERS, least=-1)
    remote_copy_lag_ms: int = _own(Kind.LONG, 0, _NO_TIERS, least=-1)
    local_retention_bytes: int = _own(Kind.LONG, -2, _NO_TIERS, least=-2)
    local_retention_ms: int = _own(Kind.LONG, -2, _NO_TIERS, least=-2)
    internal_segment_bytes: int | None = _own(
        Kind.INT,
        None,
        "Overrides segment.bytes without its lower limit; for tests.",
        least=1,
        most=MAX_INT,
        nullable=True,
        internal=True,
    )

    internal_max_uncompressed_bytes: int = _like("message.max.uncompressed.bytes", internal=True)
    internal_validate_records: bool = _like("log.validate.records", internal=True)

    @property
    def max_uncompressed_bytes(self) -> int:
        """The most bytes of records into which a batch is unpacked."""
        return max(self.internal_max_uncompressed_bytes, self.max_message_bytes)

    @property
    def effective_segment_bytes(self) -> int:
        """Size at which a segment is closed, in bytes."""
        return self.segment_bytes if self.internal_segment_bytes is None else self.internal_segment_bytes

    @property
    def effective_segment_ms(self) -> int:
        """Age at which a segment is closed: less than segment.ms if compaction must run sooner."""
        if self.compacts and self.max_compaction_lag_ms > 0:
            return min(self.max_compaction_lag_ms, self.segment_ms)
        return self.segment_ms

    @property
    def compacts(self) -> bool:
        """Whether older records are replaced by newer ones of the same key."""
        return "compact" in self.cleanup_policy

    @property
    def deletes(self) -> bool:
        """Whether old segments are deleted by age and size."""
        return "delete" in self.cleanup_policy

    @property
    def retention(self) -> tuple[int, int]:
        """Maximum bytes and ms to retain; each is negative where it is no reason to delete."""
        return (self.retention_bytes, self.retention_ms) if self.deletes else (-1, -1)

    @property
    def compaction(self) -> tuple[int, int]:
        """Ms for which compaction retains tombstones, and ms before it processes records; -1 without compaction."""
        return (self.delete_retention_ms, self.min_compaction_lag_ms) if self.compacts else (-1, -1)

    @property
    def log_append_time(self) -> bool:
        """Whether records get the time at which they are appended."""
        return self.message_timestamp_type == "LogAppendTime"

    @classmethod
    def resolve(cls, overrides: Mapping[str, str], broker: LogSettings) -> LogConfig:
        """Return the settings of a topic from its own values, by property name, over the broker's.

        Names that are not topic settings are ignored. Raises ConfigError for a bad value.
        """
        values: dict[str, Any] = {}
        for name, key in TOPIC_CONFIGS.items():
            if name not in overrides:
                values[key.attribute] = broker_value(key, broker)
                continue
            try:
                values[key.attribute] = key.parse(overrides[name])
            except ValueError as error:
                raise ConfigError(f"Invalid value {overrides[name]} for configuration {name}: {error}") from None
        return cls(**values)


TOPIC_CONFIGS: Mapping[str, TopicKey] = MappingProxyType(
    {name: key for name, key in keys_of(LogConfig).items() if isinstance(key, TopicKey)}
)


def broker_value(key: TopicKey, broker: LogSettings) -> Value:
    """Return the value that a topic without one of its own gets from the broker."""
    for synonym in key.synonyms:
        broker_key = _BROKER_KEYS[synonym]
        value: Value = _in_topic_unit(broker_key, getattr(broker, broker_key.attribute))
        if value is not None:
            return value
    return key.default


def validate_topic_configs(overrides: Mapping[str, str | None], broker: LogSettings) -> None:
    """Raise ApiError 40 with Kafka's message if these values are not valid for a topic."""
    empty = sorted(name for name, text in overrides.items() if text is None)
    if empty:
        raise ApiError(INVALID_CONFIG, f"Null value not supported for topic configs: {','.join(empty)}")
    for name in overrides:
        if name not in TOPIC_CONFIGS:
            raise ApiError(INVALID_CONFIG, f"Unknown topic config name: {name}{did_you_mean(name, TOPIC_CONFIGS)}")
    try:
        config = LogConfig.resolve({name: text for name, text in overrides.items() if text is not None}, broker)
    except ConfigError as error:
        raise ApiError(INVALID_CONFIG, str(error)) from None
    if config.min_compaction_lag_ms > config.max_compaction_lag_ms:
        raise ApiError(
            INVALID_CONFIG,
            f"conflict topic config setting min.compaction.lag.ms ({config.min_compaction_lag_ms}) > "
            f"max.compaction.lag.ms ({config.max_compaction_lag_ms})",
        )
    if config.remote_storage_enable:
        raise ApiError(
            INVALID_CONFIG,
            "Tiered Storage functionality is disabled in the broker. "
            "Topic cannot be configured with remote log storage.",
        )
