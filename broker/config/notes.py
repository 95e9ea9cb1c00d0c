"""Notes at the broker's start on its configuration: settings without meaning, and those interpreted differently.

Reads nothing but the mode of the file. The supervisor logs the lines, `rotunda check-config` prints them.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

from rotunda.broker.config.broker_config import BROKER_KEYS, is_of_images, key_of
from rotunda.broker.config.kafka import kafka_settings
from rotunda.broker.config.listener_overrides import split
from rotunda.broker.config.listeners import without_controllers
from rotunda.broker.config.settings.sasl import sasl_notes
from rotunda.broker.config.sources import KAFKA_PREFIX, property_of

if TYPE_CHECKING:
    from rotunda.broker.config.broker_config import BrokerConfig

#: Variables of Kafka's images that are for their scripts and for Java.
_OF_SCRIPTS = frozenset(
    f"{KAFKA_PREFIX}{name}"
    for name in (
        *("GC_LOG_OPTS", "HEAP_OPTS", "HOME", "JMX_HOSTNAME", "JMX_OPTS", "JMX_PORT", "JVM_PERFORMANCE_OPTS"),
        *("LOG4J_LOGGERS", "LOG4J_OPTS", "LOG4J_ROOT_LOGLEVEL", "OPTS", "TOOLS_LOG4J_LOGLEVEL", "VERSION"),
    )
)
#: A variable with this similarity to a setting is assumed to be misspelt.
_CLOSE = 0.9
_FOR_OTHERS = 0o077


def start_notes(config: BrokerConfig) -> Iterator[str]:
    """Yield a line for each effect that the author of the configuration might not expect."""
    kept = sorted(name for name in config.layers if name not in BROKER_KEYS and split(name) is None)
    if kept:
        yield f"settings without effect here (docs/configuration.md): {', '.join(kept)}"
    if "streams" in config.group_coordinator_rebalance_protocols:
        yield "group.coordinator.rebalance.protocols has streams: streams groups are not served"
    opened = without_controllers(config.listeners, config.controller_listener_names)
    for entry in config.listeners:
        if entry not in opened:
            yield f"{entry} is not opened: the controller is a process of this broker and has no port"
    for wanted, bound in zip(config.wanted_listeners, config.bound_listeners, strict=True):
        if wanted != bound:
            yield (
                f"{wanted} is opened as {bound}, the address that clients are given; "
                "insecure.listen=true opens it on all interfaces"
            )
    yield from _readable_secrets(config)
    yield from sasl_notes(config)
    yield from _misspelt(config)


def _readable_secrets(config: BrokerConfig) -> Iterator[str]:
    file = config.sources.file
    secrets = sorted(name for name in config.file_texts if key_of(name).sensitive)
    with suppress(OSError):
        if file and secrets and file.stat().st_mode & _FOR_OTHERS:
            yield f"other users may read {file}, which holds {', '.join(secrets)}: chmod 600 {file}"


def _misspelt(config: BrokerConfig) -> Iterator[str]:
    others = [
        variable
        for variable in sorted(config.sources.environment)
        if variable.startswith(KAFKA_PREFIX) and variable not in _OF_SCRIPTS and not is_of_images(property_of(variable))
    ]
    settings = {f"{KAFKA_PREFIX}{_variable(name)}" for name in {*BROKER_KEYS, *kafka_settings()}} if others else set()
    for variable in others:
        close = difflib.get_close_matches(variable, settings, n=1, cutoff=_CLOSE)
        if close:
            yield f"the environment's {variable} is no setting and is left alone (did you mean {close[0]}?)"


def _variable(name: str) -> str:
    return name.replace("_", "__").replace("-", "___").replace(".", "_").upper()
