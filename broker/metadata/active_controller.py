"""The running controller: it publishes its changes to every process, and runs periodic tasks.

Runs in the controller process.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from rotunda.broker.metadata.reloading import ReloadRequest, reload

if TYPE_CHECKING:
    from rotunda.broker.config.broker_config import BrokerConfig
    from rotunda.broker.metadata.controller import Controller
    from rotunda.broker.metadata.metadata_cache import MetadataCache
    from rotunda.shm.control import BrokerWords
    from rotunda.shm.rings.bell import EventBell, SemaphoreBell

log = logging.getLogger(__name__)


class ActiveController:
    """Owned by the request loop of the controller."""

    def __init__(
        self,
        controller: Controller,
        metadata: MetadataCache,
        config: BrokerConfig,
        broker_words: BrokerWords,
        bells: Iterable[EventBell | SemaphoreBell],
        store_settings: Callable[[], None],
        look_at_disk: Callable[[], None],
    ) -> None:
        """Store the collaborators.

        ``bells`` wake the metadata's readers; ``store_settings`` publishes settings for them.
        """
        self.controller = controller
        self.reload_request = ReloadRequest()
        self._metadata = metadata
        self._config = config
        self._broker_words = broker_words
        self._bells = tuple(bells)
        self._store_settings = store_settings
        self._look_at_disk = look_at_disk

    def announce(self) -> None:
        """Announce the current metadata version to every process."""
        # Also without a change: a predecessor may have been killed before it published its last one.
        try:
            self._store_settings()
        except Exception:  # the stored change is announced all the same
            log.exception("cannot publish all settings")
        version = self.controller.version
        if self._broker_words.metadata_version == version:
            return
        self._broker_words.set_metadata_version(version)
        for bell in self._bells:
            bell.ring()

    def tick(self) -> None:
        """Check the disk, release rows of deleted partitions, and reload the configuration if requested."""
        self._look_at_disk()
        # Only if rows run short.
        if self.controller.release_rows():
            self.announce()
        if self.reload_request.asked:
            self.reload_request.asked = False
            reload(self.controller, self._metadata, self._config)
            self.announce()
