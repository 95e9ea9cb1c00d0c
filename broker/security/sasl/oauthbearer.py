"""SASL/OAUTHBEARER (RFC 7628): the client presents a token, signed by an issuer that the broker trusts.

Pure except for the clock. The response to a rejected token is an error in JSON, which the client acknowledges with one
byte before its authentication fails. The defect of the token is logged, and not sent to the client.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

from rotunda.broker.security.sasl.mechanism import SaslFailed

_NAME = r"(?:[^=,\x00\x01]|=2C|=3D)+"
_PAIR = r"[A-Za-z]+=[\x21-\x7e \t\r\n]*\x01"
_FIRST = re.compile(rf"n,(?:a=({_NAME}))?,\x01((?:{_PAIR})+)\x01")
_BEARER = re.compile(r"auth=[Bb][Ee][Aa][Rr][Ee][Rr] +([A-Za-z0-9._~+/=-]+)")

_REJECTION = '{"status":"invalid_token"}'
_OTHER_ID = (
    "Authentication failed: Client requested an authorization id that is different from the token's principal name"
)

#: By the type of a key, the accepted signature algorithms. No shared secrets, and never "none".
ALGORITHMS: Mapping[str, tuple[str, ...]] = {
    "RSA": ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    "EC": ("ES256", "ES384", "ES512", "ES256K"),
    "OKP": ("EdDSA",),
}


class InvalidToken(Exception):  # noqa: N818 - named for what happened
    """An invalid token; the text is for the log."""


class Token(NamedTuple):
    """The accepted claims of a token."""

    user: str
    expires_ms: int


#: Returns the claims of a token. Raises InvalidToken.
Validate = Callable[[str], Token]


class Rules(NamedTuple):
    """The required claims of a token."""

    user_claim: str
    scope_claim: str
    audiences: Collection[str]
    issuer: str | None
    skew_s: int


class OAuthBearerServer:
    """One exchange: a token, and if it is rejected the client's acknowledgement."""

    def __init__(self, validate: Validate) -> None:
        self._validate = validate
        self._rejection: str | None = None
        self.user = ""
        self.is_complete = False
        self.expires_ms: int | None = None

    def respond(self, token: bytes) -> bytes:
        """Return the empty response, or the error in JSON. Raises SaslFailed."""
        if self._rejection is not None:
            raise SaslFailed(self._rejection, _REJECTION)
        try:
            match = _FIRST.fullmatch(token.decode())
        except UnicodeDecodeError:
            match = None
        found = None if match is None else [pair for pair in match[2].split("\x01") if pair.startswith("auth=")]
        bearer = _BEARER.fullmatch(found[0]) if found else None
        if match is None or bearer is None:
            raise SaslFailed("the client's message is none of OAUTHBEARER")
        try:
            accepted = self._validate(bearer[1])
        except InvalidToken as rejection:
            self._rejection = f"invalid token: {rejection}"
            return _REJECTION.encode()
        asked_for = (match[1] or "").replace("=2C", ",").replace("=3D", "=")
        if asked_for not in ("", accepted.user):
            raise SaslFailed(f"the client asks to be {asked_for}", _OTHER_ID, accepted.user)
        self.user, self.expires_ms, self.is_complete = accepted.user, accepted.expires_ms, True
        return b""


def signed(rules: Rules, find_key: Callable[[str | None], Any]) -> Validate:
    """Return a validator of signed tokens. ``find_key`` returns a PyJWK by its id, or None."""

    def validate(text: str) -> Token:
        import jwt  # noqa: PLC0415 - costs 100 ms, and no other mechanism needs it

        try:
            key_id = jwt.get_unverified_header(text).get("kid")
            key = find_key(key_id)
            if key is None:
                raise InvalidToken(f"its key {key_id!r} is none of those at sasl.oauthbearer.jwks.endpoint.url")
            claims = jwt.decode(
                text,
                key.key,
                algorithms=list(ALGORITHMS.get(key.key_type, ())),
                audience=list(rules.audiences) or None,
                issuer=rules.issuer,
                leeway=rules.skew_s,
                options={"require": ["exp", "iat"], "verify_aud": bool(rules.audiences)},
            )
        except jwt.PyJWTError as error:
            raise InvalidToken(f"{error}") from None
        return _token(claims, rules)

    return validate


def unsecured(rules: Rules, wall_ms: Callable[[], int]) -> Validate:
    """Return a validator that accepts tokens without a signature: only for development."""

    def validate(text: str) -> Token:
        head, _, rest = text.partition(".")
        body, _, signature = rest.partition(".")
        header, claims = _decoded(head), _decoded(body)
        if header.get("alg") != "none" or signature:
            raise InvalidToken("it is signed, and this listener checks no signatures")
        token = _token(claims, rules)
        if token.expires_ms + rules.skew_s * 1000 <= wall_ms():
            raise InvalidToken("Signature has expired")
        return token

    return validate


def _decoded(part: str) -> dict[str, Any]:
    try:
        found = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise InvalidToken("not a JSON Web Token")
    return found


def _token(claims: Mapping[str, Any], rules: Rules) -> Token:
    user, scope, ends_s = claims.get(rules.user_claim), claims.get(rules.scope_claim, ""), claims.get("exp")
    if not isinstance(user, str) or not user.strip():
        raise InvalidToken(f"it names no user in {rules.user_claim!r} (sasl.oauthbearer.sub.claim.name)")
    if not isinstance(scope, str | list):
        raise InvalidToken(f"its {rules.scope_claim!r} is neither a text nor a list")
    if not isinstance(ends_s, int | float) or isinstance(ends_s, bool):
        raise InvalidToken("no expiration (exp)")
    return Token(user, int(ends_s * 1000))
