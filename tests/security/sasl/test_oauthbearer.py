"""OAUTHBEARER: tokens that are believed and tokens that are not, and how the client learns that it has failed."""

import base64
import hmac
import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from rotunda.broker.clock import SystemClock
from rotunda.broker.security.sasl.jwks import JwksSettings, KeySet
from rotunda.broker.security.sasl.mechanism import SaslFailed
from rotunda.broker.security.sasl.oauthbearer import OAuthBearerServer, Rules, signed, unsecured
from tests.support.deadline import wait_until

RSA = rsa.generate_private_key(65537, 2048)
EC = ec.generate_private_key(ec.SECP256R1())
OTHER = ec.generate_private_key(ec.SECP256R1())
REFUSED = b'{"status":"invalid_token"}'
RULES = Rules("sub", "scope", ("kafka", "rotunda"), "https://issuer", 5)


def now() -> int:
    return SystemClock.wall_ms() // 1000


def jwks(**keys: Any) -> str:
    algorithms = {
        rsa.RSAPrivateKey: jwt.algorithms.RSAAlgorithm,
        ec.EllipticCurvePrivateKey: jwt.algorithms.ECAlgorithm,
    }
    found = []
    for name, key in keys.items():
        algorithm = next(each for kind, each in algorithms.items() if isinstance(key, kind))
        found.append({**json.loads(algorithm.to_jwk(key.public_key())), "kid": name, "use": "sig"})
    return json.dumps({"keys": found})


def claims(**changes: Any) -> dict[str, Any]:
    stated = {
        "sub": "alice",
        "aud": "rotunda",
        "iss": "https://issuer",
        "iat": now(),
        "exp": now() + 60,
        "scope": "a b",
    }
    return {name: value for name, value in (stated | changes).items() if value is not None}


def message(token: str, user: str = "") -> bytes:
    return f"n,{f'a={user}' if user else ''},\x01auth=Bearer {token}\x01\x01".encode()


@pytest.fixture
def keys(tmp_path: Path) -> Iterator[KeySet]:
    (tmp_path / "jwks.json").write_text(jwks(rsa=RSA, ec=EC))
    key_set = KeySet(JwksSettings((tmp_path / "jwks.json").as_uri(), 3_600_000, 1, 10))
    yield key_set
    key_set.end()


@pytest.mark.parametrize(
    ("key", "algorithm", "name"), [(RSA, "RS256", "rsa"), (RSA, "PS512", "rsa"), (EC, "ES256", "ec")]
)
def test_h08_signed_tokens_make_a_user_for_as_long_as_they_last(
    keys: KeySet, key: Any, algorithm: str, name: str
) -> None:
    stated = claims()
    server = OAuthBearerServer(signed(RULES, keys.find))
    assert server.respond(message(jwt.encode(stated, key, algorithm, {"kid": name}))) == b""
    assert (server.is_complete, server.user, server.expires_ms) == (True, "alice", stated["exp"] * 1000)


def hmac_of_public_key() -> str:
    """Return a token that servers accept if it may choose the algorithm: a MAC keyed with the public key."""
    head, body = ({"alg": "HS256", "typ": "JWT", "kid": "rsa"}, claims())
    parts = [base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=") for part in (head, body)]
    secret = RSA.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    mac = hmac.digest(secret, b".".join(parts), "sha256")
    return b".".join([*parts, base64.urlsafe_b64encode(mac).rstrip(b"=")]).decode()


def ec_token(**changes: Any) -> str:
    return jwt.encode(claims(**changes), EC, "ES256", {"kid": "ec"})


@pytest.mark.parametrize(
    ("token", "cause"),
    [
        (lambda: ec_token(exp=now() - 60), "expired"),
        (lambda: ec_token(exp=None), "exp"),
        (lambda: ec_token(iat=None), "iat"),
        (lambda: ec_token(nbf=now() + 60), "not yet valid"),
        (lambda: ec_token(aud="other"), "[Aa]udience"),
        (lambda: ec_token(aud=None), "aud"),
        (lambda: ec_token(iss="https://other"), "issuer"),
        (lambda: ec_token(sub=None), "names no user"),
        (lambda: ec_token(scope=7), "neither a text nor a list"),
        (lambda: jwt.encode(claims(), OTHER, "ES256", {"kid": "ec"}), "[Ss]ignature"),
        (lambda: jwt.encode(claims(), EC, "ES256", {"kid": "new"}), "key 'new' is none of those"),
        (lambda: jwt.encode(claims(), EC, "ES256"), "key None is none of those"),
        (lambda: jwt.encode(claims(), None, "none", {"kid": "ec"}), "alg"),
        (hmac_of_public_key, "alg"),
        (lambda: "a.b.c", "Invalid|header"),
    ],
)
def test_h09_other_tokens_prove_nothing_and_the_client_does_not_learn_why(
    keys: KeySet, token: Callable[[], str], cause: str
) -> None:
    """RFC 7628: an error in JSON, the client's acknowledgement, and then the failure."""
    server = OAuthBearerServer(signed(RULES, keys.find))
    text = token()
    assert server.respond(message(text)) == REFUSED
    with pytest.raises(SaslFailed, match=cause) as failure:
        server.respond(b"\x01")
    assert failure.value.message == REFUSED.decode()
    assert text not in failure.value.cause
    assert not server.is_complete


@pytest.mark.parametrize(
    "token", [b"", b"n,,\x01\x01", b"n,,\x01auth=Basic x\x01\x01", b"y,,\x01auth=Bearer x\x01\x01", b"\xff", b"\x01"]
)
def test_messages_that_are_none_of_oauthbearer(keys: KeySet, token: bytes) -> None:
    with pytest.raises(SaslFailed, match="none of OAUTHBEARER"):
        OAuthBearerServer(signed(RULES, keys.find)).respond(token)


def test_who_asks_to_be_somebody_else_fails(keys: KeySet) -> None:
    with pytest.raises(SaslFailed, match="asks to be bob"):
        OAuthBearerServer(signed(RULES, keys.find)).respond(message(ec_token(), "bob"))
    OAuthBearerServer(signed(RULES, keys.find)).respond(message(ec_token(), "alice"))


def test_a_token_with_a_new_key_makes_the_keys_be_read_again(keys: KeySet, tmp_path: Path) -> None:
    token = jwt.encode(claims(), OTHER, "ES256", {"kid": "new"})
    assert OAuthBearerServer(signed(RULES, keys.find)).respond(message(token)) == REFUSED
    (tmp_path / "jwks.json").write_text(jwks(new=OTHER))
    wait_until(
        lambda: OAuthBearerServer(signed(RULES, keys.find)).respond(message(token)) == b"", "the new key is known"
    )


def test_keys_that_cannot_be_read_again_stay(keys: KeySet, tmp_path: Path) -> None:
    for text in ("", '{"keys": []}', "x" * (2 << 20)):
        (tmp_path / "jwks.json").write_text(text)
        keys.find("unknown")
        assert OAuthBearerServer(signed(RULES, keys.find)).respond(message(ec_token())) == b""


@pytest.mark.parametrize("answer", ["[]", "null", '{"keys": {}}', '{"keys": [null]}'])
def test_a_response_that_holds_no_keys_is_a_failure_and_the_next_one_may_be_good(tmp_path: Path, answer: str) -> None:
    (tmp_path / "jwks.json").write_text(answer)
    key_set = KeySet(JwksSettings((tmp_path / "jwks.json").as_uri(), 3_600_000, 1, 10))
    assert key_set.find("ec") is None
    (tmp_path / "jwks.json").write_text(jwks(ec=EC))
    wait_until(lambda: key_set.find("ec") is not None, "the keys are known")
    key_set.end()


class UnfollowedKeySet(KeySet):
    """Has no thread that reads."""

    def _follow(self) -> None:
        pass


@pytest.mark.parametrize(("text", "waits"), [(jwks(ec=EC), [5, 5, 5]), ("", [0.2, 0.4, 0.8])])
def test_tokens_with_unknown_keys_make_no_keys_be_read_soon_after_they_were(
    tmp_path: Path, text: str, waits: list[float]
) -> None:
    """Only a failed read is repeated sooner than the longest backoff."""
    (tmp_path / "jwks.json").write_text(text)
    key_set = UnfollowedKeySet(JwksSettings((tmp_path / "jwks.json").as_uri(), 3_600_000, 100, 5000))
    seen: list[float] = []

    class Ended(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            seen.append(timeout or 0)
            key_set.find("unknown")
            if len(seen) == len(waits):
                self.set()
            return self.is_set()

    key_set._ended = Ended()
    KeySet._follow(key_set)
    assert seen == waits


def test_unsecured_tokens_are_believed_where_that_is_asked_for() -> None:
    validate = unsecured(RULES, SystemClock.wall_ms)
    server = OAuthBearerServer(validate)
    assert server.respond(message(jwt.encode(claims(), None, "none"))) == b""
    assert server.user == "alice"
    for token in (jwt.encode(claims(exp=now() - 60), None, "none"), ec_token(), "a.b.", jwt.encode({}, None, "none")):
        assert OAuthBearerServer(validate).respond(message(token)) == REFUSED
