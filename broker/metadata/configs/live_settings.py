"""The effective broker settings, client quotas and user credentials, for processes without topics.

Acceptor and processors have one each (`ProcessContext.live_settings`). Every change of the metadata increments one word
in shared memory, also changes of topics: while it is unchanged, ``refresh`` costs one comparison; after a change the
file is read, at most ten times a second. A read sees whole changes only, waits for no writer, and leaves nothing to
clean up when its process is killed. If the file cannot be read, the previous settings stay in effect, and the read is
retried.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable, Mapping
from pathlib import Path

from rotunda.broker.config.broker_config import BrokerConfig
from rotunda.broker.metadata.configs.broker_settings import BrokerSettings
from rotunda.broker.metadata.configs.quota_entities import ClientQuotas, QuotaEntity, quotas_of
from rotunda.broker.metadata.configs.stored_values import SetAside
from rotunda.broker.metadata.store.entity_store import Entities, EntityKind, replace_changed
from rotunda.broker.metadata.store.metadata_reader import MetadataDelta, MetadataReader
from rotunda.broker.security.sasl.user_credentials import UserCredentials

INTERVAL_NS = 100_000_000
RETRY_NS = 1_000_000_000

log = logging.getLogger(__name__)


class LiveSettings:
    """The effective settings as of change ``version``."""

    def __init__(
        self, path: Path, config: BrokerConfig, announced: Callable[[], int], now_ns: Callable[[], int]
    ) -> None:
        """Read the settings; ``announced`` returns the number of the last durable change."""
        self._reader = MetadataReader(path)
        self._announced = announced
        self._now_ns = now_ns
        self._set_aside = SetAside()
        self._settings = BrokerSettings(config, self._set_aside)
        self._quotas: dict[QuotaEntity, Mapping[str, float]] = {}
        self._users = UserCredentials()
        self._next_read_ns = 0
        self._is_unseen = False
        self.version = 0
        self._read()

    @property
    def broker_config(self) -> BrokerConfig:
        """The broker's settings, including the dynamic ones."""
        return self._settings.in_force

    @property
    def certificate_readings(self) -> int:
        """Number of requests since the start of the broker to reload the certificate files."""
        return self._settings.certificate_readings

    @property
    def client_quotas(self) -> ClientQuotas:
        """The quotas by entity. A refresh may change them."""
        return self._quotas

    @property
    def user_credentials(self) -> UserCredentials:
        """The users with SCRAM credentials. A refresh changes them in place."""
        return self._users

    def refresh(self, *, at_once: bool = False) -> bool:
        """Apply announced changes, soon or at once; return whether a setting or a quota has changed. HOT."""
        changed = False
        if self._announced() > self.version:
            changed = (at_once or self._now_ns() >= self._next_read_ns) and self._read()
        if at_once:
            # The loop, which calls this without `at_once`, has not seen that change yet.
            self._is_unseen |= changed
        elif self._is_unseen:
            self._is_unseen, changed = False, True
        return changed

    def apply(self, *followers: Callable[[], None]) -> None:
        """Call the functions that apply the settings; an exception of one is logged, and the others are called."""
        for follow in followers:
            try:
                follow()
            except Exception:  # any exception is logged
                log.exception("cannot apply all settings in this process")

    def close(self) -> None:
        """Close the file until the next change: a process that forks holds it open only while it reads."""
        self._reader.close()

    def _read(self) -> bool:
        now_ns = self._now_ns()
        self._next_read_ns = now_ns + INTERVAL_NS
        try:
            delta = self._reader.read(self.version, with_topics=False)
            return delta is not None and self._apply(delta)
        except sqlite3.Error as error:
            log.warning("keeping the previous settings, cannot read the metadata file: %s", error)
        except Exception:  # no process ends because of settings
            log.exception("keeping the previous settings, cannot apply a change after %d", self.version)
        self._next_read_ns = now_ns + RETRY_NS
        self._reader.close()
        return False

    def _apply(self, delta: MetadataDelta) -> bool:
        changed = self._settings.apply(delta.broker_configs)
        users = self._readable(delta.entities, EntityKind.USER_CREDENTIAL)
        if users is not None:
            self._users.replace(users)
        self._users.apply(self._readable(delta.changed_entities, EntityKind.USER_CREDENTIAL) or {})
        everything = self._readable(delta.entities, EntityKind.CLIENT_QUOTA)
        if everything is not None:
            self._quotas = {}
        some = self._readable(delta.changed_entities, EntityKind.CLIENT_QUOTA) or {}
        replace_changed(self._quotas, quotas_of({**(everything or {}), **some}))
        self.version = delta.version
        return changed or everything is not None or bool(some)

    def _readable(self, found: Mapping[EntityKind, Entities], kind: EntityKind) -> Entities | None:
        return self._set_aside.readable_entities(kind, found[kind]) if kind in found else None
