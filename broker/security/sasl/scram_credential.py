"""SCRAM credentials (RFC 5802, RFC 7677): the stored form of a password, its computation and its encoding.

Pure. A stored credential lets the broker verify a proof, and does not let its reader log in elsewhere; it is secret all
the same. Encoded as in Kafka.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import re
import secrets
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from rotunda.broker.config.settings.sasl import SCRAM_SHA_256, SCRAM_SHA_512

#: Hash of each mechanism, by its name in hashlib.
HASHES: Final[Mapping[str, str]] = MappingProxyType({SCRAM_SHA_256: "sha256", SCRAM_SHA_512: "sha512"})

#: Kafka's limits.
FEWEST_ITERATIONS: Final = 4096
MOST_ITERATIONS: Final = 16384

_SALT_BYTES: Final = 26
_WRITTEN = re.compile(r"salt=([^,]*),stored_key=([^,]+),server_key=([^,]+),iterations=(\d+)")


class ScramCredential(NamedTuple):
    """The stored form of one user's password for one mechanism."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int


def salted(mechanism: str, password: str, salt: bytes, iterations: int) -> bytes:
    """Return the salted password, which clients of the admin API send. Needs milliseconds."""
    return hashlib.pbkdf2_hmac(HASHES[mechanism], password.encode(), salt, iterations)


def credential_of(mechanism: str, salted_password: bytes, salt: bytes, iterations: int) -> ScramCredential:
    """Return the credential of a salted password."""
    name = HASHES[mechanism]
    client_key = hmac.digest(salted_password, b"Client Key", name)
    server_key = hmac.digest(salted_password, b"Server Key", name)
    return ScramCredential(salt, hashlib.new(name, client_key).digest(), server_key, iterations)


def new_salt() -> bytes:
    """Return a new random salt."""
    return os.urandom(_SALT_BYTES)


def new_password() -> str:
    """Return a random password: 128 bits in hexadecimal digits, without characters special to a shell."""
    return secrets.token_hex(16)


def written(credential: ScramCredential) -> str:
    """Encode a credential as text."""
    salt, stored_key, server_key = (base64.b64encode(each).decode() for each in credential[:3])
    return f"salt={salt},stored_key={stored_key},server_key={server_key},iterations={credential.iterations}"


def read(text: str) -> ScramCredential:
    """Decode a credential encoded by `written`. Raises ValueError for any other text."""
    match = _WRITTEN.fullmatch(text)
    if match is None:
        raise ValueError("invalid SCRAM credential: not salt=,stored_key=,server_key=,iterations=")
    salt, stored_key, server_key = (base64.b64decode(each, validate=True) for each in match.groups()[:3])
    return ScramCredential(salt, stored_key, server_key, int(match[4]))
