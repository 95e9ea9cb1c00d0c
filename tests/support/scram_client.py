"""A SCRAM client, written after the RFC and not after the broker: it verifies the server's signature."""

import base64
import hashlib
import hmac
import secrets

HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}


class ScramClient:
    """One exchange: `first`, `last`, `check`."""

    def __init__(self, mechanism: str, user: str, password: str):
        self._hash, self._password = HASHES[mechanism], password
        self._bare = f"n={user.replace('=', '=3D').replace(',', '=2C')},r={secrets.token_hex(12)}"
        self._expected = b""

    def first(self) -> bytes:
        """Return the first message."""
        return f"n,,{self._bare}".encode()

    def last(self, answer: bytes) -> bytes:
        """Return the message with the proof."""
        fields = dict(field.split("=", 1) for field in answer.decode().split(","))
        salted = hashlib.pbkdf2_hmac(
            self._hash, self._password.encode(), base64.b64decode(fields["s"]), int(fields["i"])
        )
        without_proof = f"c=biws,r={fields['r']}"
        message = f"{self._bare},{answer.decode()},{without_proof}".encode()
        client_key = hmac.digest(salted, b"Client Key", self._hash)
        signature = hmac.digest(hashlib.new(self._hash, client_key).digest(), message, self._hash)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        self._expected = hmac.digest(hmac.digest(salted, b"Server Key", self._hash), message, self._hash)
        return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()

    def check(self, answer: bytes) -> None:
        """Assert that the server has the password too."""
        assert answer == b"v=" + base64.b64encode(self._expected)
