"""Reloads the configuration file while the broker runs, applies its dynamic settings, and logs the others.

Runs in the controller, which SIGHUP reaches through the supervisor. Only settings that an admin could change are
applied, all of them or, if anything in the file is invalid, none. They become part of the metadata and so reach every
process like an admin's change; the next start discards them, and reads the file itself. Flags and the environment are
unchanged and have priority as always, and so do dynamic settings of an admin.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from rotunda.broker.config.broker_config import BROKER_KEYS, key_of
from rotunda.broker.config.keys import render
from rotunda.broker.config.sources import Source
from rotunda.broker.errors import ApiError, ConfigError
from rotunda.broker.metadata.store.metadata_file import CONFIGURATION_FILE
from rotunda.broker.metadata.thread_counts import check_change
from rotunda.broker.security.tls.listener_tls import all_tls

if TYPE_CHECKING:
    from rotunda.broker.config.broker_config import BrokerConfig
    from rotunda.broker.metadata.controller import Controller
    from rotunda.broker.metadata.metadata_cache import MetadataCache

_log = logging.getLogger(__name__)

#: A relative path refers to another directory in a broker that runs in the background; it cannot be compared.
_NOT_COMPARED = frozenset({"log.dirs"})


class ReloadRequest:
    """A flag for a reload: set by a signal handler, handled between two turns."""

    def __init__(self) -> None:
        self.asked = False

    def ask(self) -> None:
        """Set the flag, and do nothing else."""
        self.asked = True


def reload(controller: Controller, metadata: MetadataCache, config: BrokerConfig) -> None:
    """Reload the file of ``config``, the configuration that the broker was started with."""
    file = config.sources.file
    before = metadata.loaded_config
    try:
        fresh = config.read_again() if file is not None else before
        texts = {name: text for name, text in fresh.file_texts.items() if key_of(name).dynamic}
        read = config.with_file(texts)
        check_change(metadata, metadata.broker_overrides, controller.room, read, reads_certificates=True)
        if read != before:
            controller.replace_until_restart(CONFIGURATION_FILE, texts)
        if all_tls(metadata.broker_config):
            controller.read_certificates_again()
            _log.info("SIGHUP: reloaded the certificates for new connections")
    except ConfigError as error:
        _log.warning("SIGHUP: ignored, invalid configuration: %s", str(error).replace("\n", "; "))
        return
    except ApiError as error:
        _log.warning("SIGHUP: ignored, cannot apply the configuration: %s", error.message)
        return
    if file is None:
        _log.info("SIGHUP: ignored, the broker has no configuration file")
        return
    after = metadata.loaded_config
    names = sorted({*BROKER_KEYS, *before.of_listeners, *after.of_listeners})
    changed = [name for name in names if before.value(name) != after.value(name)]
    waiting = _differing(config.file_texts, fresh.file_texts)
    hidden = [name for name in changed if metadata.broker_config.origin(name).source >= Source.DYNAMIC_DEFAULT]
    if hidden:
        _log.info("SIGHUP: dynamic settings override the file: %s", ", ".join(hidden))
    if waiting:
        _log.warning("SIGHUP: these settings of %s need a restart: %s", file, ", ".join(waiting))
    _log.info("SIGHUP: reloaded %s; changed: %s", file, _listed(changed, after) or "nothing")


def _differing(old: dict[str, str], new: dict[str, str]) -> list[str]:
    names = {name for name in old.keys() | new.keys() if old.get(name) != new.get(name)}
    return sorted(name for name in names - _NOT_COMPARED if not key_of(name).dynamic)


def _listed(names: list[str], config: BrokerConfig) -> str:
    shown = ((name, "(hidden)" if key_of(name).sensitive else render(config.value(name))) for name in names)
    return ", ".join(f"{name}={value}" for name, value in shown)
