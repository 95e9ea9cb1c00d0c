"""The common part of the SASL mechanisms: a server that responds to tokens until it knows the user, or fails.

Pure. A failure has two texts: one for the client, which must not help an attacker to guess, and one for the broker's
log.
"""

from __future__ import annotations

from typing import Final, Protocol

from rotunda.broker.security.session import MOST_USER_BYTES

INVALID_CREDENTIALS: Final = "Authentication failed during {} due to invalid credentials with SASL mechanism {}"

#: Limit of a token with names, passwords or proofs: room for a user name as SCRAM encodes it. Tokens of OAUTHBEARER,
#: which hold signed claims, are limited only by the frame.
MOST_TOKEN_BYTES: Final = 3 * MOST_USER_BYTES


class SaslFailed(Exception):  # noqa: N818 - named for what happened
    """The client failed to authenticate, or violated the SASL protocol.

    ``cause`` is for the log, ``message`` for the client: None means INVALID_CREDENTIALS, as in Kafka.
    """

    def __init__(self, cause: str, message: str | None = None, user: str = "") -> None:
        super().__init__(cause)
        self.cause, self.message, self.user = cause, message, user


def check_length(token: bytes) -> None:
    """Raise SaslFailed for a token that is too long: it would cost time before the client is authenticated."""
    if len(token) > MOST_TOKEN_BYTES:
        raise SaslFailed(f"the client's token has {len(token)} bytes; {MOST_TOKEN_BYTES} at most are accepted")


class SaslServer(Protocol):
    """One exchange of one mechanism."""

    user: str
    """The claimed user, once known; the authenticated user once `is_complete`."""
    is_complete: bool
    expires_ms: int | None
    """Expiry of its credential, in milliseconds of the wall clock."""

    def respond(self, token: bytes) -> bytes:
        """Return the response to a client's token. Raises SaslFailed."""
