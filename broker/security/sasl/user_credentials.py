"""The users with SCRAM credentials, in the memory of the processes that authenticate them.

Pure. Filled from the controller's stored values (`broker.metadata`), all or only the changed ones; running exchanges
see a change at once. It also holds a secret, from which the salts of unknown users are derived.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from rotunda.broker.security.sasl.scram_credential import HASHES, ScramCredential, read

#: The secret is stored with the credentials, under this name, which no user has.
SECRET_NAME: Final = ""
SALT_KEY: Final = "salts"

#: By user and mechanism: the credential as encoded by `scram_credential.written`.
Stored = Mapping[str, Mapping[str, object]]


class UserCredentials:
    """The credentials of each user, by mechanism."""

    def __init__(self, stored: Stored | None = None) -> None:
        self._by_mechanism: dict[str, dict[str, ScramCredential]] = {mechanism: {} for mechanism in HASHES}
        self.secret = b""
        self.apply(stored or {})

    def find(self, mechanism: str, user: str) -> ScramCredential | None:
        """Return a user's credential for a mechanism, or None."""
        return self._by_mechanism[mechanism].get(user)

    def example(self, mechanism: str) -> ScramCredential | None:
        """Return the credential of one user, the same one as long as it exists; None if there is none."""
        return next(iter(self._by_mechanism[mechanism].values()), None)

    def mechanisms_of(self, user: str) -> list[str]:
        """Return the mechanisms for which a user has a credential."""
        return [mechanism for mechanism, users in self._by_mechanism.items() if user in users]

    def replace(self, stored: Stored) -> None:
        """Replace all users with the stored ones."""
        for users in self._by_mechanism.values():
            users.clear()
        self.apply(stored)

    def apply(self, changed: Stored) -> None:
        """Update changed users; one without values is deleted."""
        for user, values in changed.items():
            if user == SECRET_NAME:
                self.secret = str(values.get(SALT_KEY, "")).encode()
                continue
            for mechanism, users in self._by_mechanism.items():
                text = values.get(mechanism)
                if text is None:
                    users.pop(user, None)
                else:
                    users[user] = read(str(text))
