"""What the SASL mechanisms have in common: a server that answers tokens until it knows the user, or fails.

Pure. A failure has two texts: what its client may know, which helps nobody to guess, and what the broker's log says.
"""

from __future__ import annotations

from typing import Final, Protocol

from rotunda.broker.security.session import MOST_USER_BYTES

INVALID_CREDENTIALS: Final = "Authentication failed during {} due to invalid credentials with SASL mechanism {}"

#: Of a token with names, passwords or proofs: room for the name of a user as SCRAM writes it. Those of OAUTHBEARER,
#: which hold signed claims, have no bound but that of the frame.
MOST_TOKEN_BYTES: Final = 3 * MOST_USER_BYTES


class SaslFailed(Exception):  # noqa: N818 - named for what happened
    """The client is not who it says, or does not keep to the protocol of SASL.

    ``cause`` is for the log, ``told`` for the client: None stands for INVALID_CREDENTIALS, as in Kafka.
    """

    def __init__(self, cause: str, told: str | None = None, user: str = "") -> None:
        super().__init__(cause)
        self.cause, self.told, self.user = cause, told, user


def check_length(token: bytes) -> None:
    """Raise SaslFailed for a token that is too long: it would cost time before anybody is known."""
    if len(token) > MOST_TOKEN_BYTES:
        raise SaslFailed(f"the client's token has {len(token)} bytes; {MOST_TOKEN_BYTES} at most are accepted")


class SaslServer(Protocol):
    """One exchange of one mechanism."""

    user: str
    """Whom the client says it is, as soon as it has; who it is once `is_complete`."""
    is_complete: bool
    expires_ms: int | None
    """When the credential ends that it has shown, in milliseconds of the wall clock."""

    def respond(self, token: bytes) -> bytes:
        """Return the answer to a client's token. Raises SaslFailed."""
