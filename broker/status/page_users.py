"""Users of the status page: those that the broker's listeners authenticate with a password.

Runs in the web process, on its thread for passwords; the loop refreshes the settings and credentials. Salting a
password costs milliseconds, so a valid password is cached until the credential changes, as a hash whose key no other
process has.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from typing import TYPE_CHECKING

from rotunda.broker.config.jaas import parse
from rotunda.broker.config.settings.sasl import JAAS, PLAIN, has_sasl, mechanisms_of
from rotunda.broker.security.sasl.scram_credential import HASHES, MOST_ITERATIONS, credential_of, salted

if TYPE_CHECKING:
    from rotunda.broker.config.listeners import Listener
    from rotunda.broker.metadata.configs.live_settings import LiveSettings
    from rotunda.broker.security.sasl.scram_credential import ScramCredential

_MOST_REMEMBERED = 64


class PageUsers:
    """Checks names and passwords against the current settings and credentials."""

    def __init__(self, live: LiveSettings) -> None:
        self._live = live
        self._key = os.urandom(32)
        #: By hash of a valid mechanism, name and password: their credential.
        self._right: dict[bytes, ScramCredential] = {}

    def is_user(self, name: str, password: str) -> bool:
        """Return whether a listener would authenticate this user with this password."""
        listeners = [each for each in self._live.broker_config.bound_listeners if has_sasl(each)]
        offered = {mechanism: each for each in listeners for mechanism in mechanisms_of(self._live.broker_config, each)}
        found = [self._is_by_scram(mechanism, name, password) for mechanism in HASHES if mechanism in offered]
        found += [self._is_by_plain(each, name, password) for each in listeners]
        return any(found)

    def _is_by_plain(self, listener: Listener, name: str, password: str) -> bool:
        config = self._live.broker_config
        line = config.of_mechanism(listener.name, PLAIN, JAAS) if PLAIN in mechanisms_of(config, listener) else None
        expected = parse(str(line)).users.get(name) if line else None
        return hmac.compare_digest((expected or self._key.hex()).encode(), password.encode()) and expected is not None

    def _is_by_scram(self, mechanism: str, name: str, password: str) -> bool:
        credential = self._live.user_credentials.find(mechanism, name)
        given = hmac.digest(self._key, f"{mechanism}\0{name}\0{password}".encode(), hashlib.sha256)
        if credential is not None and self._right.get(given) == credential:
            return True
        salt, iterations = (self._key, 1) if credential is None else (credential.salt, credential.iterations)
        made = credential_of(mechanism, salted(mechanism, password, salt, iterations), salt, iterations)
        # Equal iterations for all users: the duration must not reveal which users exist.
        salted(mechanism, password, self._key, max(1, MOST_ITERATIONS - iterations))
        if credential is None or not hmac.compare_digest(made.stored_key, credential.stored_key):
            return False
        if len(self._right) >= _MOST_REMEMBERED:
            self._right.clear()
        self._right[given] = credential
        return True
