"""The users with SCRAM credentials, as the processes that check them have them in memory.

Pure. Filled from what the controller stores (`broker.metadata`), whole or by what has changed; exchanges under way see
a change at once. Beside the users stands a secret, from which the salts of unknown users are made.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from rotunda.broker.security.sasl.scram_credential import HASHES, ScramCredential, read

#: Under this name, which no user has, the secret is stored with the credentials.
SECRET_NAME: Final = ""
SALT_KEY: Final = "salts"

#: By user, by mechanism: the credential as `scram_credential.written` writes it.
Stored = Mapping[str, Mapping[str, object]]


class UserCredentials:
    """What is known of each user, by mechanism."""

    def __init__(self, stored: Stored | None = None) -> None:
        self._by_mechanism: dict[str, dict[str, ScramCredential]] = {mechanism: {} for mechanism in HASHES}
        self.secret = b""
        self.take(stored or {})

    def find(self, mechanism: str, user: str) -> ScramCredential | None:
        """Return what is known of a user for a mechanism."""
        return self._by_mechanism[mechanism].get(user)

    def example(self, mechanism: str) -> ScramCredential | None:
        """Return the credential of some user, always of the same one while it has it; None if nobody has any."""
        return next(iter(self._by_mechanism[mechanism].values()), None)

    def mechanisms_of(self, user: str) -> list[str]:
        """Return for which mechanisms a user has a credential."""
        return [mechanism for mechanism, users in self._by_mechanism.items() if user in users]

    def replace(self, stored: Stored) -> None:
        """Forget all users, and take those that are stored."""
        for users in self._by_mechanism.values():
            users.clear()
        self.take(stored)

    def take(self, changed: Stored) -> None:
        """Take over users that have changed; one without values is gone."""
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
