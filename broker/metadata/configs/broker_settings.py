"""The effective settings of this broker: those loaded at its start, overridden by dynamic settings.

Part of every process's copy of the metadata (`metadata_cache`, `live_settings`), which also applies the levels of
loggers. Performs no I/O.
"""

from __future__ import annotations

from collections.abc import Mapping

from rotunda.broker.config.broker_config import BrokerConfig
from rotunda.broker.errors import ConfigError
from rotunda.broker.metadata.configs.stored_values import KEEP_RECORDS_OF_ALL, SetAside
from rotunda.broker.metadata.store.entity_store import BROKER
from rotunda.broker.metadata.store.metadata_file import (
    CERTIFICATES,
    CONFIGURATION_FILE,
    EVERY_BROKER,
    LOG_LEVELS,
    UNTIL_RESTART,
)
from rotunda.broker.server_log import log_levels


class BrokerSettings:
    """The effective configuration and its sources."""

    def __init__(self, static: BrokerConfig, set_aside: SetAside) -> None:
        """Start with the static configuration; inapplicable settings are recorded in ``set_aside``."""
        self._static = static
        self._set_aside = set_aside
        self._stored: Mapping[str, Mapping[str, str]] = {}
        #: The last loaded configuration, from flags, environment and file.
        self.loaded = static
        self.in_force = static
        #: By broker id as text ("" for all brokers): the dynamic settings.
        self.overrides: Mapping[str, Mapping[str, str]] = {}
        #: Number of requests to reload the certificate files.
        self.certificate_readings = 0
        #: By logger: the configured levels.
        self.log_levels: Mapping[str, str] = {}

    def apply(self, stored: Mapping[str, Mapping[str, str]]) -> bool:
        """Apply the settings in the metadata file, by broker id as text; return whether they have changed."""
        if stored == self._stored:
            return False
        readable = {
            name: self._set_aside.readable(BROKER, name, stored.get(name, {})) for name in {*self._stored, *stored}
        }
        self.overrides = {name: configs for name, configs in readable.items() if configs and name not in UNTIL_RESTART}
        read_again = readable.get(CONFIGURATION_FILE)
        if read_again:
            texts = {name: text for name, text in read_again.items() if name != CONFIGURATION_FILE}
            self.loaded = self._static.with_file(texts)
        wanted = {name: {**configs, **self._defaults_of(name)} for name, configs in readable.items()}
        self.in_force, conflicts = settings_in_force(self.loaded, wanted)
        for name, reasons in conflicts.items():
            self._set_aside.note(BROKER, name, {**self._set_aside.of(BROKER, name), **reasons})
        self.certificate_readings = int(readable.get(CERTIFICATES, {}).get(CERTIFICATES, "0"))
        levels = {name: level for name, level in readable.get(LOG_LEVELS, {}).items() if name != LOG_LEVELS}
        if levels != self.log_levels:
            self.log_levels = levels
            log_levels.apply(levels)
        self._stored = stored
        return True

    def _defaults_of(self, broker: str) -> dict[str, str]:
        aside = self._set_aside.of(BROKER, broker)
        return {name: value for name, value in KEEP_RECORDS_OF_ALL.items() if name in aside}


def settings_in_force(
    config: BrokerConfig, stored: Mapping[str, Mapping[str, str]]
) -> tuple[BrokerConfig, dict[str, dict[str, str]]]:
    """Return the configuration with the dynamic settings of this broker and of all brokers, by broker id as text.

    Also return the settings without effect, by broker and name, with the reason: each was valid when it was set, but
    has no effect if it conflicts with the current configuration file.
    """
    layers = {name: dict(stored.get(name, {})) for name in (str(config.node_id), EVERY_BROKER)}
    conflicts: dict[str, dict[str, str]] = {}
    while True:
        own, every = layers.values()
        try:
            return config.with_dynamic(own, every), conflicts
        except ConfigError as error:
            names = {*own, *every}
            if not names:
                raise
            names = names.intersection(error.names) or names
            for broker, configs in layers.items():
                for name in names & configs.keys():
                    del configs[name]
                    conflicts.setdefault(broker, {})[name] = str(error).replace("\n", "; ")
