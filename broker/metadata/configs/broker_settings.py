"""The settings of this broker as they are in force: what was loaded at its start, with what was set while it runs.

Part of every process's view of the metadata (`metadata_cache`, `live_settings`), which puts the levels of loggers in
force as well. Reads nothing itself.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from broker.config.broker_config import BrokerConfig
from broker.errors import ConfigError
from broker.metadata.storage.metadata_file import (
    CERTIFICATES,
    CONFIGURATION_FILE,
    EVERY_BROKER,
    LOG_LEVELS,
    UNTIL_RESTART,
)
from broker.server_log import log_levels

log = logging.getLogger(__name__)


class BrokerSettings:
    """The configuration in force, and what it is made of."""

    def __init__(self, static: BrokerConfig) -> None:
        self._static = static
        self._stored: Mapping[str, Mapping[str, str]] = {}
        #: As it was read last, from flags, environment and file.
        self.loaded = static
        self.in_force = static
        #: By broker id as text ("" for all brokers): what was set while the broker runs.
        self.overrides: Mapping[str, Mapping[str, str]] = {}
        #: How often it was asked for that the files with certificates are read again.
        self.certificate_readings = 0
        #: By logger: the levels that were set.
        self.log_levels: Mapping[str, str] = {}

    def take(self, stored: Mapping[str, Mapping[str, str]]) -> bool:
        """Put in force what the metadata file has, by broker id as text; return whether that has changed."""
        if stored == self._stored:
            return False
        self._stored = stored
        self.overrides = {name: configs for name, configs in stored.items() if name not in UNTIL_RESTART}
        read_again = stored.get(CONFIGURATION_FILE)
        if read_again is not None:
            texts = {name: text for name, text in read_again.items() if name != CONFIGURATION_FILE}
            self.loaded = self._static.with_file(texts)
        self.in_force = settings_in_force(self.loaded, stored)
        self.certificate_readings = int(stored.get(CERTIFICATES, {}).get(CERTIFICATES, "0"))
        levels = {name: level for name, level in stored.get(LOG_LEVELS, {}).items() if name != LOG_LEVELS}
        if levels != self.log_levels:
            self.log_levels = levels
            log_levels.apply(levels)
        return True


def settings_in_force(config: BrokerConfig, stored: Mapping[str, Mapping[str, str]]) -> BrokerConfig:
    """Return the settings with what was set for this broker and for every broker, by broker id as text.

    All of it was acceptable when it was set; if the configuration file no longer goes with it, the file wins.
    """
    try:
        return config.with_dynamic(stored.get(str(config.node_id), {}), stored.get(EVERY_BROKER, {}))
    except ConfigError as error:
        log.warning("ignored the settings made while the broker ran: %s", error)
        return config
