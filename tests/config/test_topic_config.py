"""The settings of topics: their resolved values, rejections in Kafka's words, and their descriptions."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from rotunda.broker.config.broker_config import load
from rotunda.broker.config.group_config import GROUP_CONFIGS
from rotunda.broker.config.topic_config import TOPIC_CONFIGS, LogConfig, TopicKey, validate_topic_configs
from rotunda.broker.errors import ApiError, ConfigError
from rotunda.broker.metadata.configs.config_descriptions import (
    DEFAULT_CONFIG,
    DYNAMIC_BROKER_CONFIG,
    STATIC_BROKER_CONFIG,
    TOPIC_CONFIG,
    ConfigEntry,
    Synonym,
    describe_topic,
)

BROKER = load(None, {}, {})

#: Kafka's topic settings and their defaults, as a broker without settings of its own reports them.
KAFKA_DEFAULTS = {
    "cleanup.policy": "delete",
    "compression.gzip.level": "-1",
    "compression.lz4.level": "9",
    "compression.type": "producer",
    "compression.zstd.level": "3",
    "delete.retention.ms": "86400000",
    "errors.deadletterqueue.group.enable": "false",
    "file.delete.delay.ms": "60000",
    "flush.messages": "9223372036854775807",
    "flush.ms": "9223372036854775807",
    "follower.replication.throttled.replicas": "",
    "index.interval.bytes": "4096",
    "leader.replication.throttled.replicas": "",
    "local.retention.bytes": "-2",
    "local.retention.ms": "-2",
    "max.decompressed.message.bytes": "2147483639",
    "max.compaction.lag.ms": "9223372036854775807",
    "max.message.bytes": "1048588",
    "message.timestamp.after.max.ms": "3600000",
    "message.timestamp.before.max.ms": "9223372036854775807",
    "message.timestamp.type": "CreateTime",
    "min.cleanable.dirty.ratio": "0.5",
    "min.compaction.lag.ms": "0",
    "min.insync.replicas": "1",
    "preallocate": "false",
    "remote.copy.lag.bytes": "-1",
    "remote.copy.lag.ms": "0",
    "remote.log.copy.disable": "false",
    "remote.log.delete.on.disable": "false",
    "remote.storage.enable": "false",
    "retention.bytes": "-1",
    "retention.ms": "604800000",
    "segment.bytes": "1073741824",
    "segment.index.bytes": "10485760",
    "segment.jitter.ms": "0",
    "segment.ms": "604800000",
    "unclean.leader.election.enable": "false",
}


def described(overrides: dict[str, str], **sets: str) -> dict[str, ConfigEntry]:
    broker = load(None, {name.replace("_", "."): value for name, value in sets.items()}, {})
    return {entry.name: entry for entry in describe_topic(overrides, broker)}


def test_the_set_and_its_defaults_are_kafkas() -> None:
    """V16."""
    assert {name: entry.value for name, entry in described({}).items()} == KAFKA_DEFAULTS
    assert LogConfig() == LogConfig.resolve({}, BROKER)


@pytest.mark.parametrize(
    ("sets", "retention_ms"),
    [
        ({"log.retention.ms": "5", "log.retention.minutes": "6", "log.retention.hours": "7"}, 5),
        ({"log.retention.minutes": "6", "log.retention.hours": "7"}, 6 * 60_000),
        ({"log.retention.hours": "7"}, 7 * 3_600_000),
        ({"log.retention.hours": "-1"}, -1),
        ({"log.retention.minutes": "-1"}, -1),
    ],
)
def test_broker_settings_in_other_units_stand_behind_a_topic(sets: dict[str, str], retention_ms: int) -> None:
    assert LogConfig.resolve({}, load(None, sets, {})).retention_ms == retention_ms


def test_a_topics_own_value_wins_over_static_and_dynamic_broker_values() -> None:
    broker = load(None, {"message.max.bytes": "5"}, {}).with_dynamic({"log.roll.ms": "9"})
    config = LogConfig.resolve({"max.message.bytes": "6", "some.future.setting": "x"}, broker)
    assert (config.max_message_bytes, config.segment_ms) == (6, 9)


#: By name, a value that is no default, of settings that are no whole numbers.
OTHERS = {
    "cleanup.policy": "compact",
    "compression.type": "zstd",
    "message.timestamp.type": "LogAppendTime",
    "min.cleanable.dirty.ratio": "0.25",
}


@pytest.mark.parametrize("key", [key for key in TOPIC_CONFIGS.values() if key.synonyms], ids=lambda key: key.name)
def test_each_default_of_all_topics_is_that_of_a_topic_and_may_change_while_the_broker_runs(key: TopicKey) -> None:
    default = getattr(LogConfig(), key.attribute)
    number = max(int(key.least or 0), 1) + 4
    text = OTHERS.get(key.name) or (str(not default).lower() if isinstance(default, bool) else str(number))
    found = LogConfig.resolve({}, BROKER.with_dynamic({key.synonyms[0]: text}))
    assert getattr(found, key.attribute) == key.parse(text) != default


def test_what_follows_from_a_topics_settings() -> None:
    config = LogConfig.resolve(
        {
            "cleanup.policy": "compact,delete",
            "max.compaction.lag.ms": "10",
            "internal.segment.bytes": "500",
            "message.timestamp.type": "LogAppendTime",
        },
        BROKER,
    )
    assert config.compacts
    assert config.deletes
    assert config.effective_segment_ms == 10
    assert config.effective_segment_bytes == 500
    assert config.log_append_time
    plain = LogConfig()
    assert (plain.compacts, plain.deletes, plain.log_append_time) == (False, True, False)
    assert plain.effective_segment_ms == plain.segment_ms
    assert plain.effective_segment_bytes == plain.segment_bytes


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"nonsense": "1"}, "Unknown topic config name: nonsense"),
        ({"retention.ms": None}, "Null value not supported for topic configs: retention.ms"),
        (
            {"segment.bytes": "big"},
            "Invalid value big for configuration segment.bytes: Not a number of type INT",
        ),
        (
            {"segment.bytes": "2147483648"},
            "Invalid value 2147483648 for configuration segment.bytes: Not a number of type INT",
        ),
        (
            {"segment.bytes": "14"},
            "Invalid value 14 for configuration segment.bytes: Value must be at least 1048576",
        ),
        (
            {"retention.ms": "-2"},
            "Invalid value -2 for configuration retention.ms: Value must be at least -1",
        ),
        (
            {"min.cleanable.dirty.ratio": "1.5"},
            "Invalid value 1.5 for configuration min.cleanable.dirty.ratio: Value must be no more than 1",
        ),
        (
            {"preallocate": "maybe"},
            "Invalid value maybe for configuration preallocate: Expected value to be either true or false",
        ),
        (
            {"message.timestamp.type": "Now"},
            "Invalid value Now for configuration message.timestamp.type: "
            "String must be one of: CreateTime, LogAppendTime",
        ),
        (
            {"cleanup.policy": "burn"},
            "Invalid value burn for configuration cleanup.policy: String must be one of: compact, delete",
        ),
        (
            {"cleanup.policy": "delete,"},
            "Invalid value delete, for configuration cleanup.policy: Elements must not be empty",
        ),
        (
            {"min.cleanable.dirty.ratio": "NaN"},
            "Invalid value NaN for configuration min.cleanable.dirty.ratio: Value must be at least 0",
        ),
        (
            {"min.compaction.lag.ms": "9", "max.compaction.lag.ms": "8"},
            "conflict topic config setting min.compaction.lag.ms (9) > max.compaction.lag.ms (8)",
        ),
        (
            {"remote.storage.enable": "true"},
            "Tiered Storage functionality is disabled in the broker. "
            "Topic cannot be configured with remote log storage.",
        ),
    ],
)
def test_values_are_rejected_in_kafkas_words(overrides: dict[str, str | None], message: str) -> None:
    with pytest.raises(ApiError) as caught:
        validate_topic_configs(overrides, BROKER)
    assert (caught.value.code, caught.value.message) == (40, message)


def test_values_that_are_allowed() -> None:
    validate_topic_configs(
        {
            "cleanup.policy": "compact, delete",
            "compression.type": "zstd",
            "compression.gzip.level": "9",
            "leader.replication.throttled.replicas": "0:1,1:1",
            "follower.replication.throttled.replicas": "*",
            "retention.ms": "-1",
        },
        BROKER,
    )


#: Texts of whole numbers, and the result of Java's Long.parseLong after String.trim; None: an error.
WHOLE_NUMBERS: Mapping[str, int | None] = dict.fromkeys(
    # At last a no-break space, a space of a third of an em, and a digit that is two UTF-16 units.
    ["1_000", "1e3", "0x10", "--5", "+", "-", "", "5L", "1.0", "Infinity", str(2**63), "\xa05", "\u20045", "\U0001d7cf"]
) | {"5": 5, "+5": 5, " 5 ": 5, "\x015\t": 5, "05": 5, "-0": 0, "\uff11": 1, "\u0663": 3, str(2**63 - 1): 2**63 - 1}
#: The same of Double.parseDouble, as far as it is in the range.
DOUBLES: Mapping[str, float | None] = (
    dict.fromkeys(["1_0", "5e", "inf", "nan", "infinity", "\uff11", "0x1", "", "NaN", "Infinity", "-Infinity", "1e999"])
    | dict.fromkeys(["0x1p9999", "-0x1p9999", "0x1.8p0"])
    | {"0.5": 0.5, " .5 ": 0.5, "1.": 1.0, "+0.5": 0.5, "1e-1": 0.1, "1d": 1.0, "0.5F": 0.5, "1E0D": 1.0, "-0.0": 0.0}
    | {"0x1p-3": 0.125, "0x.8p0": 0.5, "0X1P-1d": 0.5}
)


@pytest.mark.parametrize("text", WHOLE_NUMBERS)
def test_whole_numbers_are_those_of_java(text: str) -> None:
    """As Kafka 4.4 reads a topic's setting, and so of every setting: groups have a table of their own."""
    assert _read(lambda: LogConfig.resolve({"segment.ms": text}, BROKER).segment_ms) == (WHOLE_NUMBERS[text] or None)
    group_key = GROUP_CONFIGS["consumer.session.timeout.ms"]
    number = WHOLE_NUMBERS[text]
    assert _read(lambda: group_key.parse(text)) == (None if number == 2**63 - 1 else number)


@pytest.mark.parametrize("text", DOUBLES)
def test_doubles_are_those_of_java(text: str) -> None:
    """Kafka accepts NaN; here it is out of every range, since all comparisons with it are false."""
    config = _read(lambda: LogConfig.resolve({"min.cleanable.dirty.ratio": text}, BROKER).min_cleanable_dirty_ratio)
    assert config == DOUBLES[text]


def _read(read: Callable[[], object]) -> object:
    try:
        return read()
    except (ConfigError, ValueError):
        return None


def test_elements_of_a_list_count_once() -> None:
    """Kafka 4.4 drops duplicates when it reads a list."""
    assert LogConfig.resolve({"cleanup.policy": "delete , compact,delete"}, BROKER).cleanup_policy == (
        "delete",
        "compact",
    )
    [entry] = [each for each in describe_topic({"cleanup.policy": "delete,delete"}, BROKER) if "cleanup" in each.name]
    assert entry.value == "delete"


def test_a_bad_stored_value_is_a_config_error() -> None:
    with pytest.raises(ConfigError, match=r"Invalid value x for configuration segment.ms"):
        LogConfig.resolve({"segment.ms": "x"}, BROKER)


def test_sources_and_synonyms() -> None:
    entry = described({"segment.bytes": "2000000"})["segment.bytes"]
    assert (entry.value, entry.source, entry.config_type, entry.read_only) == (
        "2000000",
        TOPIC_CONFIG,
        3,
        False,
    )
    assert entry.synonyms == (
        Synonym("segment.bytes", "2000000", TOPIC_CONFIG),
        Synonym("log.segment.bytes", "1073741824", DEFAULT_CONFIG),
    )
    static = described({}, log_segment_bytes="3000000")["segment.bytes"]
    assert (static.value, static.source) == ("3000000", STATIC_BROKER_CONFIG)
    broker = load(None, {}, {}).with_dynamic({"log.segment.bytes": "4000000"})
    dynamic = next(entry for entry in describe_topic({}, broker) if entry.name == "segment.bytes")
    assert (dynamic.value, dynamic.source) == ("4000000", DYNAMIC_BROKER_CONFIG)


def test_a_synonym_in_another_unit_is_not_told_alone() -> None:
    """Kafka returns synonyms from the strongest broker setting on, and log.retention.ms has no value."""
    entry = described({})["retention.ms"]
    assert (entry.synonyms, entry.source) == ((), DEFAULT_CONFIG)


def test_what_describe_configs_says_of_each_setting() -> None:
    """Every setting has a type and a text; the internal ones may be set but are not shown."""
    entries = described({"internal.segment.bytes": "100"})
    internal = {"internal.segment.bytes", "internal.max.uncompressed.bytes", "internal.validate.records"}
    assert set(TOPIC_CONFIGS) - set(entries) == internal
    assert all(entry.documentation and entry.config_type for entry in entries.values())
    assert entries["cleanup.policy"].config_type == 7
    assert entries["min.cleanable.dirty.ratio"].config_type == 6
    assert entries["retention.ms"].config_type == 5
