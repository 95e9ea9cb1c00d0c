"""The description of settings for DescribeConfigs: values, sources, synonyms and documentation.

Follows Kafka's rules: a setting's source is that of its strongest synonym, and synonyms are listed by strength, first
by their source and then by the order in which one setting falls back on another. Pure; runs in handlers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import NamedTuple

from rotunda.broker.config.broker_config import BROKER_KEYS, BrokerConfig, key_of, load
from rotunda.broker.config.group_config import GROUP_CONFIGS, group_value
from rotunda.broker.config.kafka import kafka_settings
from rotunda.broker.config.keys import Key, Value, render
from rotunda.broker.config.listener_overrides import split
from rotunda.broker.config.sources import Layer, Origin, Source
from rotunda.broker.config.topic_config import TOPIC_CONFIGS, LogConfig
from rotunda.broker.metadata.configs.client_metrics_config import CLIENT_METRICS_CONFIGS, client_metrics_value
from rotunda.broker.server_log.log_levels import level_of, logger_names

#: DescribeConfigs' numbers for the source of a value (KIP-226).
TOPIC_CONFIG = 1
DYNAMIC_BROKER_CONFIG = 2
DYNAMIC_DEFAULT_BROKER_CONFIG = 3
STATIC_BROKER_CONFIG = 4
DEFAULT_CONFIG = 5
DYNAMIC_BROKER_LOGGER_CONFIG = 6
CLIENT_METRICS_CONFIG = 7
GROUP_CONFIG = 8

_SOURCES = {
    Source.DYNAMIC: DYNAMIC_BROKER_CONFIG,
    Source.DYNAMIC_DEFAULT: DYNAMIC_DEFAULT_BROKER_CONFIG,
    Source.FLAG: STATIC_BROKER_CONFIG,
    Source.ENVIRONMENT: STATIC_BROKER_CONFIG,
    Source.FILE: STATIC_BROKER_CONFIG,
    Source.DEFAULT: DEFAULT_CONFIG,
}

#: Broker settings with fallbacks, by the first of them.
_FALLBACKS = {key.synonyms[0]: key.synonyms for key in TOPIC_CONFIGS.values() if len(key.synonyms) > 1}


class Synonym(NamedTuple):
    """One source that sets, or could set, a setting's value."""

    name: str
    value: str | None
    source: int


class ConfigEntry(NamedTuple):
    """One setting in a DescribeConfigs response. ``value`` is None for a missing or secret value."""

    name: str
    value: str | None
    source: int
    config_type: int
    read_only: bool
    sensitive: bool
    synonyms: tuple[Synonym, ...]
    documentation: str


def describe_topic(overrides: Mapping[str, str], broker: BrokerConfig) -> list[ConfigEntry]:
    """Return every setting of a topic with the own values ``overrides``, by property name."""
    config = LogConfig.resolve(overrides, broker)
    entries = []
    for name, key in sorted(TOPIC_CONFIGS.items()):
        if key.internal:
            continue
        value = getattr(config, key.attribute)
        synonyms = _broker_synonyms(key.synonyms, broker) if key.synonyms else []
        if name in overrides:
            synonyms.insert(0, Synonym(name, render(value), TOPIC_CONFIG))
        entries.append(_entry(key, value, synonyms, read_only=False))
    return entries


def describe_broker(broker: BrokerConfig) -> list[ConfigEntry]:
    """Return every setting of the broker, followed by the settings that only Kafka implements."""
    keys = {**BROKER_KEYS, **{name: key_of(name) for name in broker.of_listeners}}
    served = [
        _entry(key, broker.value(name), _synonyms_of(name, broker), read_only=not key.dynamic)
        for name, key in sorted(keys.items())
    ]
    kept = {name: _kept_entry(name, broker) for name in broker.layers if name not in keys}
    defaults = _kept_at_default()
    return served + [kept.get(name) or defaults[name] for name in sorted({*kept, *defaults})]


@cache
def _kept_at_default() -> Mapping[str, ConfigEntry]:
    nothing_set = load(None, {}, {})
    return {name: _kept_entry(name, nothing_set) for name in kafka_settings()}


def _kept_entry(name: str, broker: BrokerConfig) -> ConfigEntry:
    key = key_of(name)
    return _entry(key, broker.value(name), list(_synonyms((name,), broker)), read_only=not key.dynamic)


def describe_cluster_default(broker: BrokerConfig) -> list[ConfigEntry]:
    """Return the cluster-wide dynamic settings, whether effective or overridden."""
    entries = []
    for name in sorted({*BROKER_KEYS, *broker.layers}):
        key = key_of(name)
        for layer in _layers(name, broker):
            if layer.origin.source == Source.DYNAMIC_DEFAULT:
                synonym = Synonym(name, _shown(key, layer.value), DYNAMIC_DEFAULT_BROKER_CONFIG)
                entries.append(_entry(key, layer.value, [synonym], read_only=not key.dynamic))
    return entries


def _layers(name: str, broker: BrokerConfig) -> tuple[Layer, ...]:
    """Return the sources that set a setting's value, strongest first.

    With eligible leader replicas (ELR), as in a new cluster of Kafka 4.4, the cluster itself has a value of
    min.insync.replicas from the beginning: that of its first broker.
    """
    layers = broker.layers.get(name, ())
    if name != "min.insync.replicas" or any(layer.origin.source == Source.DYNAMIC_DEFAULT for layer in layers):
        return layers
    own = tuple(layer for layer in layers if layer.origin.source > Source.DYNAMIC_DEFAULT)
    loaded = layers[len(own) :]
    value = loaded[0].value if loaded else BROKER_KEYS[name].default
    return (*own, Layer(Origin(Source.DYNAMIC_DEFAULT, "the cluster's own"), value), *loaded)


def describe_group(overrides: Mapping[str, str], broker: BrokerConfig) -> list[ConfigEntry]:
    """Return every setting of a group with the own values ``overrides``.

    A group without a value of its own has that of the broker's setting.
    """
    entries = []
    for name, key in sorted(GROUP_CONFIGS.items()):
        value = group_value(key, overrides, broker)
        synonyms = _synonyms_of(key.broker_name, broker) if key.broker_name else []
        if name in overrides:
            synonyms.insert(0, Synonym(name, render(value), GROUP_CONFIG))
        entries.append(_entry(key, value, synonyms, read_only=False))
    return entries


def describe_client_metrics(overrides: Mapping[str, str]) -> list[ConfigEntry]:
    """Return every setting of a client metrics subscription with the own values ``overrides``.

    As in Kafka a default is no synonym here.
    """
    entries = []
    for name, key in sorted(CLIENT_METRICS_CONFIGS.items()):
        value = client_metrics_value(key, overrides)
        synonyms = [Synonym(name, render(value), CLIENT_METRICS_CONFIG)] if name in overrides else []
        entries.append(_entry(key, value, synonyms, read_only=False))
    return entries


def describe_loggers(levels: Mapping[str, str]) -> list[ConfigEntry]:
    """Return every logger with its effective level; ``levels`` are the configured ones. As in Kafka without a type."""
    return [
        ConfigEntry(name, level_of(name, levels), DYNAMIC_BROKER_LOGGER_CONFIG, 0, False, False, (), "")
        for name in logger_names()
    ]


def _entry(key: Key, value: Value, synonyms: list[Synonym], *, read_only: bool) -> ConfigEntry:
    if key.sensitive:
        synonyms = [each._replace(value=None) for each in synonyms]
    return ConfigEntry(
        name=key.name,
        value=_shown(key, value),
        source=synonyms[0].source if synonyms else DEFAULT_CONFIG,
        config_type=int(key.kind),
        read_only=read_only,
        sensitive=key.sensitive,
        synonyms=tuple(synonyms),
        documentation=key.doc,
    )


def _shown(key: Key, value: Value) -> str | None:
    return None if key.sensitive else render(value)


def _synonyms_of(name: str, broker: BrokerConfig) -> list[Synonym]:
    own = split(name)
    return _broker_synonyms(_FALLBACKS.get(name, (name,) if own is None else (name, own[1])), broker)


def _broker_synonyms(names: tuple[str, ...], broker: BrokerConfig) -> list[Synonym]:
    """Return the sources with values for these settings: dynamic before static before default.

    As in Kafka, sources stronger than the first setting's own value are not listed.
    """
    found = sorted(_synonyms(names, broker), key=lambda synonym: synonym.source)
    while found and found[0].name != names[0]:
        del found[0]
    return found


def _synonyms(names: Iterable[str], broker: BrokerConfig) -> Iterator[Synonym]:
    for name in names:
        key, listed = key_of(name), set()
        for layer in _layers(name, broker):
            source = _SOURCES[layer.origin.source]
            if source not in listed:
                listed.add(source)
                yield Synonym(name, _shown(key, layer.value), source)
        if split(name) is not None:
            continue
        default = key.default if name in broker.layers else broker.value(name)
        if default is not None:
            yield Synonym(name, _shown(key, default), DEFAULT_CONFIG)
