"""Client side of SASL: the messages of PLAIN, SCRAM and OAUTHBEARER, and validation of the broker's replies.

Pure. An exchange is a generator: it yields messages to send, and receives the replies.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from collections.abc import Generator

from rotunda.broker.errors import RotundaError

HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
#: The supported mechanisms.
MECHANISMS = ("PLAIN", *HASHES, "OAUTHBEARER")

_MOST_ITERATIONS = 1_000_000
Exchange = Generator[bytes, bytes, None]


class NotTheBroker(RotundaError):  # noqa: N818 - named for what happened
    """The server did not prove that it has the password, or violated the mechanism."""


def exchange(mechanism: str, user: str, password: str, token: str) -> Exchange:
    """Return the exchange of a mechanism; `token` is for OAUTHBEARER. The exchange may raise NotTheBroker."""
    if mechanism == "PLAIN":
        return _single(f"\0{user}\0{password}".encode())
    if mechanism == "OAUTHBEARER":
        return _bearer(token)
    return _scram(HASHES[mechanism], user, password)


def _single(message: bytes) -> Exchange:
    yield message


def _bearer(token: str) -> Exchange:
    """Send the token; a broker that rejects it sends the reason, and expects a final reply (RFC 7628)."""
    rejection = yield f"n,,\x01auth=Bearer {token}\x01\x01".encode()
    if rejection:
        yield b"\x01"
        raise NotTheBroker(f"it refuses the token: {rejection.decode(errors='replace')}")


def _scram(name: str, user: str, password: str) -> Exchange:
    """Prove knowledge of the password, and require the same of the broker (RFC 5802)."""
    nonce = secrets.token_urlsafe(24)
    escaped = user.replace("=", "=3D").replace(",", "=2C")
    first = f"n={escaped},r={nonce}"
    server_first = (yield f"n,,{first}".encode()).decode(errors="replace")
    given = _attributes(server_first)
    iterations = int(given["i"]) if given.get("i", "").isdecimal() else 0
    if not given.get("r", "").startswith(nonce) or not 0 < iterations <= _MOST_ITERATIONS or "s" not in given:
        raise NotTheBroker("its first message is not as SCRAM has it")
    final = f"c=biws,r={given['r']}"
    signed = f"{first},{server_first},{final}".encode()
    salted = hashlib.pbkdf2_hmac(name, password.encode(), base64.b64decode(given["s"]), iterations)
    client_key = hmac.digest(salted, b"Client Key", name)
    signature = hmac.digest(hashlib.new(name, client_key).digest(), signed, name)
    proof = bytes(one ^ other for one, other in zip(client_key, signature, strict=True))
    server_final = (yield f"{final},p={base64.b64encode(proof).decode()}".encode()).decode(errors="replace")
    expected = hmac.digest(hmac.digest(salted, b"Server Key", name), signed, name)
    verifier = _attributes(server_final).get("v", "")
    if not hmac.compare_digest(verifier.encode(), base64.b64encode(expected)):
        raise NotTheBroker("it does not prove that it knows the password: this may not be the broker")


def _attributes(message: str) -> dict[str, str]:
    parts = (part.partition("=") for part in message.split(","))
    return {name: value for name, _, value in parts}
