"""SCRAM (RFC 5802, RFC 7677) as in Kafka's servers: the client proves that it has the password.

Pure. No channel binding. Delegation tokens, which Kafka accepts with an extension, are not supported. An unknown user
receives a salt and an iteration count like those of the known users, always the same, and fails as with a wrong
password.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
import secrets
from collections.abc import Callable
from typing import Final

from rotunda.broker.security.sasl.mechanism import SaslFailed, check_length
from rotunda.broker.security.sasl.scram_credential import FEWEST_ITERATIONS, HASHES, ScramCredential
from rotunda.broker.security.sasl.user_credentials import UserCredentials

_NAME = r"(?:[^=,\x00]|=2C|=3D)+"
_EXTENSIONS = r"((?:,[A-Za-z]+=[^,\x00]+)*)"
_CLIENT_FIRST = re.compile(
    rf"(n,(?:a=({_NAME}))?,)(?:m=[^,\x00]+,)?(n=({_NAME}),r=([\x21-\x2b\x2d-\x7e]+){_EXTENSIONS})"
)
_CLIENT_FINAL = re.compile(rf"(c=([A-Za-z0-9+/=]+),r=([\x21-\x2b\x2d-\x7e]+){_EXTENSIONS}),p=([A-Za-z0-9+/=]+)")
_OTHER_ID: Final = "Authentication failed: Client requested an authorization id that is different from username"
_LETTERS: Final = b"0123456789abcdefghijklmnopqrstuvwxyz"


class ScramServer:
    """One exchange: the client's first message, the server's with the salt, the proof, the server's signature."""

    def __init__(
        self, mechanism: str, credentials: UserCredentials, new_nonce: Callable[[], str] = secrets.token_urlsafe
    ) -> None:
        self._mechanism, self._hash = mechanism, HASHES[mechanism]
        self._credentials = credentials
        self._new_nonce = new_nonce
        self._credential: ScramCredential | None = None
        self._is_known = False
        self._nonce = self._header = self._messages = ""
        self.user = ""
        self.is_complete = False
        self.expires_ms: int | None = None

    def respond(self, token: bytes) -> bytes:
        """Return the server's next message. Raises SaslFailed."""
        check_length(token)
        try:
            text = token.decode()
        except UnicodeDecodeError:
            raise SaslFailed("a message of the client is not UTF-8", user=self.user) from None
        if self.is_complete:
            raise SaslFailed("the client sent a message after its authentication", user=self.user)
        message = self._first(text) if self._credential is None else self._final(text, self._credential)
        return message.encode()

    def _first(self, text: str) -> str:
        match = _CLIENT_FIRST.fullmatch(text)
        if match is None:
            raise SaslFailed("the client's first message is none of SCRAM, or wants channel binding")
        header, asked_for, bare, name, nonce, extensions = match.groups()
        self.user = _unescaped(name)
        if ",tokenauth=true" in extensions:
            raise SaslFailed("the client shows a delegation token, and those are not served", user=self.user)
        if asked_for and _unescaped(asked_for) != self.user:
            raise SaslFailed(f"the client asks to be {_unescaped(asked_for)}", _OTHER_ID, self.user)
        found = self._credentials.find(self._mechanism, self.user)
        # Also for known users, so that both need the same time.
        decoy = self._decoy()
        self._is_known = found is not None
        self._credential = credential = found or decoy
        self._header, self._nonce = header, nonce + self._new_nonce()
        salt = base64.b64encode(credential.salt).decode()
        message = f"r={self._nonce},s={salt},i={credential.iterations}"
        self._messages = f"{bare},{message}"
        return message

    def _final(self, text: str, credential: ScramCredential) -> str:
        match = _CLIENT_FINAL.fullmatch(text)
        if match is None:
            raise SaslFailed("the client's last message is none of SCRAM", user=self.user)
        without_proof, binding, nonce, _, proof_text = match.groups()
        # As in Kafka: librdkafka before 2.3 prepends its own part once more.
        if not nonce.endswith(self._nonce):
            raise SaslFailed("the nonce in the client's last message is not ours", user=self.user)
        try:
            channel, proof = (base64.b64decode(each, validate=True) for each in (binding, proof_text))
        except binascii.Error:
            raise SaslFailed("the client's last message is not base64", user=self.user) from None
        if channel != self._header.encode():
            raise SaslFailed("the client's last message is for another first one", user=self.user)
        message = f"{self._messages},{without_proof}".encode()
        signature = hmac.digest(credential.stored_key, message, self._hash)
        client_key = bytes(one ^ other for one, other in zip(signature, proof, strict=False))
        is_right = hmac.compare_digest(hashlib.new(self._hash, client_key).digest(), credential.stored_key)
        if not (is_right and self._is_known and len(proof) == len(signature)):
            raise SaslFailed("wrong password" if self._is_known else self._unknown(), user=self.user)
        self.is_complete = True
        return f"v={base64.b64encode(hmac.digest(credential.server_key, message, self._hash)).decode()}"

    def _unknown(self) -> str:
        others = ", ".join(self._credentials.mechanisms_of(self.user))
        if others:
            return f"the user has a password for {others} and none for {self._mechanism}: rotunda user add sets it"
        return "unknown user: rotunda user add makes one"

    def _decoy(self) -> ScramCredential:
        """Return a credential without a password, similar to a user's, and always the same for this name."""
        digest = hmac.digest(self._credentials.secret, self.user.encode(), "sha512")
        like = self._credentials.example(self._mechanism)
        if like is None:
            return ScramCredential(digest[:26], digest[: hashlib.new(self._hash).digest_size], b"", FEWEST_ITERATIONS)
        salt = digest * (1 + len(like.salt) // len(digest))
        if all(byte in _LETTERS for byte in like.salt):
            # Kafka's tools generate such salts.
            salt = bytes(_LETTERS[byte % len(_LETTERS)] for byte in salt)
        return ScramCredential(salt[: len(like.salt)], digest[: len(like.stored_key)], b"", like.iterations)


def escaped(name: str) -> str:
    """Return a user's name as SCRAM encodes it."""
    return name.replace("=", "=3D").replace(",", "=2C")


def _unescaped(name: str) -> str:
    return name.replace("=2C", ",").replace("=3D", "=")
