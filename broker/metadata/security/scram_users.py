"""Users with SCRAM credentials: Kafka's rules for changes, and the stored form.

Pure functions over plain values: the controller validates with them before it stores (KIP-554).
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple

from rotunda.broker.config.settings.sasl import SCRAM_SHA_256, SCRAM_SHA_512
from rotunda.broker.errors import ApiError
from rotunda.broker.protocol.error_codes import ErrorCode
from rotunda.broker.security.sasl.scram_credential import (
    FEWEST_ITERATIONS,
    MOST_ITERATIONS,
    credential_of,
    read,
    written,
)
from rotunda.broker.security.sasl.user_credentials import SALT_KEY, SECRET_NAME
from rotunda.broker.security.session import MOST_USER_BYTES

log = logging.getLogger(__name__)

#: Number of each mechanism in requests, by its name.
MECHANISMS: Final[Mapping[str, int]] = MappingProxyType({SCRAM_SHA_256: 1, SCRAM_SHA_512: 2})
_NAMES: Final = {number: name for name, number in MECHANISMS.items()}


class Deletion(NamedTuple):
    """Deletion of a user's credential for one mechanism."""

    user: str
    mechanism: int


class Upsertion(NamedTuple):
    """A new credential of a user for one mechanism."""

    user: str
    mechanism: int
    iterations: int
    salt: bytes
    salted_password: bytes


def changed_users(
    stored: Mapping[str, Mapping[str, str]],
    user: str,
    changes: Sequence[Deletion | Upsertion],
    unreadable: Collection[str] = (),
) -> dict[str, Mapping[str, str]]:
    """Return by name the values to store for a changed user. Raises ApiError: all or nothing.

    Credentials for ``unreadable`` mechanisms can be deleted too, and are dropped.
    """
    credentials = altered_credentials(stored.get(user, {}), changes, unreadable)
    log.info("user %r now has credentials for %s", user, ", ".join(credentials) or "nothing")
    return {user: credentials} if SECRET_NAME in stored else {SECRET_NAME: new_secret(), user: credentials}


def altered_credentials(
    current: Mapping[str, str], changes: Sequence[Deletion | Upsertion], unreadable: Collection[str] = ()
) -> dict[str, str]:
    """Return a user's credentials by mechanism, as stored, after the changes. Raises ApiError: all or nothing."""
    credentials = dict(current)
    for change in changes:
        mechanism = mechanism_of(change)
        if isinstance(change, Upsertion):
            _check_iterations(mechanism, change.iterations)
            if not change.salted_password:
                # Kafka's error code: Java rejects an empty HMAC key.
                raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, "invalid salted password: empty")
            made = credential_of(mechanism, change.salted_password, change.salt, change.iterations)
            credentials[mechanism] = written(made)
        elif credentials.pop(mechanism, None) is None and mechanism not in unreadable:
            raise ApiError(ErrorCode.RESOURCE_NOT_FOUND, "Attempt to delete a user credential that does not exist")
    return credentials


def described(current: Mapping[str, str]) -> list[tuple[str, int]]:
    """Return the mechanisms of a user with their iterations."""
    return [(name, read(current[name]).iterations) for name in MECHANISMS if name in current]


def new_secret() -> dict[str, str]:
    """Return the secret that is stored with the first user: the salts of unknown users derive from it."""
    return {SALT_KEY: secrets.token_hex(32)}


def mechanism_of(change: Deletion | Upsertion) -> str:
    """Return the name of a change's mechanism. Raises ApiError if the mechanism or the user name is invalid."""
    if not change.user:
        raise ApiError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
    if len(change.user.encode()) > MOST_USER_BYTES or "\0" in change.user:
        raise ApiError(
            ErrorCode.UNACCEPTABLE_CREDENTIAL, f"Username must have {MOST_USER_BYTES} bytes at most, and no NUL"
        )
    if change.mechanism not in _NAMES:
        raise ApiError(
            ErrorCode.UNSUPPORTED_SASL_MECHANISM,
            f"Unknown SCRAM mechanism {change.mechanism}; 1 is SCRAM-SHA-256, 2 is SCRAM-SHA-512",
        )
    return _NAMES[change.mechanism]


def _check_iterations(mechanism: str, iterations: int) -> None:
    if iterations < FEWEST_ITERATIONS:
        text = f"Too few iterations: {iterations}, {mechanism} needs {FEWEST_ITERATIONS}"
        raise ApiError(ErrorCode.UNACCEPTABLE_CREDENTIAL, text)
    if iterations > MOST_ITERATIONS:
        text = f"Too many iterations: {iterations}, {MOST_ITERATIONS} is the most"
        raise ApiError(ErrorCode.UNACCEPTABLE_CREDENTIAL, text)
