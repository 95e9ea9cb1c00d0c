"""The keys that sign OAUTHBEARER tokens, read from a file or fetched from a server by a background thread.

Runs in processor processes with such a listener. Nothing waits for the thread: without keys, tokens are rejected. A
token with an unknown key wakes the thread, which reads again at the earliest after the maximum backoff since the last
successful read, because such tokens may be sent by unauthenticated clients. If a read fails, the previous keys stay
valid. The thread ends with its process.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from typing import Any, NamedTuple

from rotunda.broker.security.sasl.oauthbearer import ALGORITHMS

logger = logging.getLogger(__name__)

_MOST_BYTES = 1 << 20
_TIMEOUT_S = 10
_FILE = "file://"


class JwksSettings(NamedTuple):
    """The URL of the keys, and the intervals of reads."""

    url: str
    refresh_ms: int
    backoff_ms: int
    backoff_max_ms: int


class KeySet:
    """The keys at one URL."""

    def __init__(self, settings: JwksSettings) -> None:
        self._settings = settings
        self._keys: Mapping[str | None, Any] = {}
        self._wanted = threading.Event()
        self._ended = threading.Event()
        if settings.url.startswith(_FILE):
            self._read(0)
        threading.Thread(target=self._follow, name="jwks", daemon=True).start()

    def find(self, key_id: str | None) -> Any:
        """Return the key of that id, or the only one for a token without an id; None: retry later."""
        keys = self._keys
        if key_id is None and len(keys) == 1:
            return next(iter(keys.values()))
        key = keys.get(key_id)
        if key is None:
            self._wanted.set()
        return key

    def end(self) -> None:
        """Stop the thread."""
        self._ended.set()
        self._wanted.set()

    def _follow(self) -> None:
        failures = 0
        while not self._ended.is_set():
            failures = 0 if self._read(failures) else failures + 1
            refresh_ms, most_ms = self._settings.refresh_ms, self._settings.backoff_max_ms
            least_ms = min(self._settings.backoff_ms << min(failures, 20) if failures else refresh_ms, most_ms)
            if self._ended.wait(least_ms / 1000) or failures:
                continue
            self._wanted.wait((refresh_ms - least_ms) / 1000)
            self._wanted.clear()

    def _read(self, failures: int) -> bool:
        # Both are large, and only needed for listeners with OAUTHBEARER.
        import urllib.request  # noqa: PLC0415

        from jwt import PyJWKSet  # noqa: PLC0415

        try:
            with urllib.request.urlopen(self._settings.url, timeout=_TIMEOUT_S) as file:  # noqa: S310 - as configured
                text = file.read(_MOST_BYTES + 1)
            if len(text) > _MOST_BYTES:
                raise ValueError(f"it has more than {_MOST_BYTES} bytes")
            found = PyJWKSet.from_json(text.decode()).keys
            self._keys = {key.key_id: key for key in found if key.key_type in ALGORITHMS}
        except Exception as error:
            # Any exception of an invalid response: the next one may be valid.
            if not failures:
                logger.warning("the keys at %s cannot be read, %d are known: %s", *self._state, error)
            return False
        if not self._keys:
            logger.warning("the keys at %s cannot be used: none of them is of RSA, EC or OKP", self._settings.url)
        return True

    @property
    def _state(self) -> tuple[str, int]:
        return self._settings.url, len(self._keys)


class KeySets:
    """The key sets of all listeners; unused ones are stopped."""

    def __init__(self) -> None:
        self._sets: dict[JwksSettings, KeySet] = {}

    def of(self, settings: JwksSettings) -> KeySet:
        """Return the keys at a URL, cached if they are in use."""
        if settings not in self._sets:
            self._sets[settings] = KeySet(settings)
        return self._sets[settings]

    def keep(self, needed: set[JwksSettings]) -> None:
        """Stop all other key sets."""
        for settings in self._sets.keys() - needed:
            self._sets.pop(settings).end()
