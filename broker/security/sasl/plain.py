"""SASL/PLAIN (RFC 4616): the client sends its name and its password.

Pure. The passwords are those of the listener's JAAS line, as in Kafka: SCRAM credentials do not apply. All of them are
compared in constant time, and an unknown user's with a random value that is no password.
"""

from __future__ import annotations

import hmac
import os
from collections.abc import Mapping
from typing import Final

from rotunda.broker.security.sasl.mechanism import SaslFailed, check_length

_WRONG: Final = "Authentication failed: Invalid username or password"
_OTHER_ID: Final = "Authentication failed: Client requested an authorization id that is different from username"
_NOBODYS: Final = os.urandom(32).hex()


class PlainServer:
    """One exchange: a single token."""

    def __init__(self, passwords: Mapping[str, str]) -> None:
        """Store the ``passwords`` by user."""
        self._passwords = passwords
        self.user = ""
        self.is_complete = False
        self.expires_ms: int | None = None

    def respond(self, token: bytes) -> bytes:
        """Return the empty response. Raises SaslFailed."""
        check_length(token)
        try:
            parts = token.decode().split("\0")
        except UnicodeDecodeError:
            raise SaslFailed("the client's name or password is not UTF-8") from None
        if len(parts) != 3:
            message = f"Invalid SASL/PLAIN response: expected 3 tokens, got {len(parts)}"
            raise SaslFailed("the client's token is not of three parts", message)
        asked_for, user, password = parts
        if not user or not password:
            missing = "password" if user else "username"
            raise SaslFailed(f"the client sends no {missing}", f"Authentication failed: {missing} not specified", user)
        expected = self._passwords.get(user)
        is_right = hmac.compare_digest(password.encode(), (_NOBODYS if expected is None else expected).encode())
        if expected is None:
            raise SaslFailed(f"unknown user: the listener's plain.sasl.jaas.config has no user_{user}", _WRONG, user)
        if not is_right:
            raise SaslFailed("wrong password", _WRONG, user)
        if asked_for not in ("", user):
            raise SaslFailed(f"the client asks to be {asked_for}", _OTHER_ID, user)
        self.user, self.is_complete = user, True
        return b""
