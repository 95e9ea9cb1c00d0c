"""The authenticator: legal frames in each state, the response to each failure, sessions and their ends."""

import base64
import random
import re
import struct
from collections.abc import Callable
from typing import Any

import pytest

from rotunda.broker.config.settings.sasl import OAUTHBEARER, PLAIN, SCRAM_SHA_256
from rotunda.broker.ipc.request_channel import INLINE_REQUEST_BYTES
from rotunda.broker.protocol import codec
from rotunda.broker.protocol.api_keys import ApiKey
from rotunda.broker.security.sasl.authenticator import MOST_PASSED_ON_BYTES, Authenticator, Failure, State, Step
from rotunda.broker.security.sasl.listener import SaslListener
from rotunda.broker.security.sasl.mechanism import MOST_TOKEN_BYTES
from rotunda.broker.security.sasl.oauthbearer import OAuthBearerServer, Rules, unsecured
from rotunda.broker.security.sasl.plain import PlainServer
from rotunda.broker.security.sasl.scram import ScramServer
from rotunda.broker.security.sasl.user_credentials import UserCredentials

SECOND_NS = 1_000_000_000
NOW_MS = 1_700_000_000_000


class ExpiringServer(PlainServer):
    """A mechanism with credentials for a minute."""

    def respond(self, token: bytes) -> bytes:
        response = super().respond(token)
        self.expires_ms = NOW_MS + 60_000
        return response


def listener(reauth_ms: int = 0, most_bytes: int = 1000, make: Callable[..., Any] = PlainServer) -> SaslListener:
    users = {"alice": "secret", "bob": "sesame"}
    servers = {PLAIN: lambda: make(users), SCRAM_SHA_256: lambda: ScramServer(SCRAM_SHA_256, UserCredentials())}
    return SaslListener("SASL_PLAINTEXT", servers, most_bytes, {PLAIN: reauth_ms, SCRAM_SHA_256: 0})


def begun(**options: Any) -> Authenticator:
    return Authenticator(listener(**options), lambda: NOW_MS)


def frame(key: ApiKey, version: int, **fields: Any) -> bytes:
    return codec.encode_request(key, version, 7, "me", fields)[4:]


def handshake(mechanism: str = PLAIN, version: int = 1) -> bytes:
    return frame(ApiKey.SASL_HANDSHAKE, version, mechanism=mechanism)


def token(text: str = "\0alice\0secret", version: int = 2) -> bytes:
    return frame(ApiKey.SASL_AUTHENTICATE, version, auth_bytes=text.encode())


def versions(version: int = 3, name: str = "me", **fields: Any) -> bytes:
    fields |= {"client_software_name": name, "client_software_version": "1"} if version > 2 else {}
    plain = frame(ApiKey.API_VERSIONS, min(version, 5), **fields)
    return plain[:2] + version.to_bytes(2, "big") + plain[4:]


def response(key: ApiKey, version: int, step: Step) -> Any:
    return codec.decode_response(key, version, memoryview(step.response), 4, len(step.response))


@pytest.mark.parametrize("version", [0, 1, 2])
def test_h08_a_handshake_and_a_token_make_a_user(version: int) -> None:
    one = begun()
    offered = response(ApiKey.SASL_HANDSHAKE, 1, one.take(handshake(), 0, 1))
    assert (int(offered.error_code), list(offered.mechanisms)) == (0, [PLAIN, SCRAM_SHA_256])
    done = response(ApiKey.SASL_AUTHENTICATE, version, one.take(token(version=version), 0, 2))
    assert (int(done.error_code), bytes(done.auth_bytes), done.error_message) == (0, b"", "")
    assert (one.is_open, one.user, one.mechanism, one.expires_ns) == (True, "alice", PLAIN, 0)


def test_h08_after_a_handshake_of_version_0_tokens_come_bare() -> None:
    one = begun()
    one.take(handshake(version=0), 0, 1)
    assert one.take(b"\0alice\0secret", 0, 2) == Step(bytes(4))
    assert one.is_open
    for user, cause in (("alice", "wrong password"), ("carol", "unknown user")):
        failing = begun()
        failing.take(handshake(version=0), 0, 1)
        step = failing.take(f"\0{user}\0wrong".encode(), 0, 2)
        assert step.response == b""
        assert step.failure is not None
        assert step.failure.user == user
        assert cause in step.failure.cause


def test_c11_api_versions_is_passed_on_once_and_again_after_an_error_or_when_it_could_not_be_sent() -> None:
    one = begun()
    assert one.take(versions(name="-"), 0, 1) == Step(passes_on=True)
    assert one.take(versions(version=17), 1, 1) == Step(passes_on=True)
    assert one.take(versions(5, cluster_id="c"), 1, 1) == Step(passes_on=True), "V02: without a node"
    assert one.take(versions(), 2, 1) == Step(passes_on=True)
    assert one.take(versions(), 2, 2) == Step(passes_on=True), "it has not been sent"
    step = one.take(versions(), 3, 3)
    assert step.failure is not None
    assert "second ApiVersions" in step.failure.cause
    assert one.state is State.FAILED


def test_h08_an_unknown_mechanism_gets_a_response_with_those_that_there_are() -> None:
    one = begun()
    step = one.take(handshake("GSSAPI"), 0, 1)
    rejected = response(ApiKey.SASL_HANDSHAKE, 1, step)
    assert (int(rejected.error_code), list(rejected.mechanisms)) == (33, [PLAIN, SCRAM_SHA_256])
    assert step.failure is not None
    assert "'GSSAPI' is not enabled, PLAIN, SCRAM-SHA-256 are" in step.failure.cause


@pytest.mark.parametrize(
    ("frames", "cause"),
    [
        ([frame(ApiKey.METADATA, 1, topics=[])], "METADATA before the client has authenticated"),
        ([token()], "SASL_AUTHENTICATE before"),
        ([handshake(), frame(ApiKey.METADATA, 1, topics=[])], "METADATA instead of SaslAuthenticate"),
        ([b"GET / HTTP/1.1"], "security.protocol"),
        ([b"\x60\x82"], "security.protocol"),
        ([b""], "security.protocol"),
        ([handshake()[:-3]], "SaslHandshakeRequest 1 ends after"),
        ([handshake(), token()[:-4]], "SaslAuthenticate"),
        ([handshake(), token("x" * 1000)], "sasl.server.max.receive.size"),
    ],
)
def test_h09_other_frames_are_failures_without_a_response(frames: list[bytes], cause: str) -> None:
    one = begun()
    steps = [one.take(each, 0, 1) for each in frames]
    assert all(step.failure is None for step in steps[:-1])
    failure = steps[-1].failure
    assert failure is not None
    assert cause in failure.cause
    assert steps[-1].response == b""
    assert one.state is State.FAILED


@pytest.mark.parametrize("late", [handshake(), handshake(version=0), versions(), versions(version=0)])
def test_h09_what_was_due_before_the_tokens_gets_a_response_with_error_34(late: bytes) -> None:
    one = begun()
    one.take(handshake(), 0, 1)
    step = one.take(late, 0, 1)
    assert step.failure is not None
    key, version = ApiKey(int.from_bytes(late[:2], "big")), int.from_bytes(late[2:4], "big")
    assert int(response(key, version, step).error_code) == 34


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("\0alice\0wrong", "Authentication failed: Invalid username or password"),
        ("\0mallory\0secret", "Authentication failed: Invalid username or password"),
        (
            "bob\0alice\0secret",
            "Authentication failed: Client requested an authorization id that is different from username",
        ),
        ("alice", "Invalid SASL/PLAIN response: expected 3 tokens, got 1"),
        ("\0\0x", "Authentication failed: username not specified"),
    ],
)
def test_h09_a_client_gets_the_error_text_of_kafka(text: str, message: str) -> None:
    one = begun()
    one.take(handshake(), 0, 1)
    step = one.take(token(text), 0, 2)
    failed = response(ApiKey.SASL_AUTHENTICATE, 2, step)
    assert (int(failed.error_code), failed.error_message) == (58, message)
    assert "secret" not in str(step.failure)


@pytest.mark.parametrize(
    ("reauth_ms", "make", "lifetime_ms"),
    [(0, PlainServer, 0), (30_000, PlainServer, 30_000), (0, ExpiringServer, 60_000), (90_000, ExpiringServer, 60_000)],
)
def test_h10_a_session_lasts_as_long_as_credential_and_setting_allow(
    reauth_ms: int, make: Callable[..., Any], lifetime_ms: int
) -> None:
    one = begun(reauth_ms=reauth_ms, make=make)
    one.take(handshake(), 0, 1)
    done = response(ApiKey.SASL_AUTHENTICATE, 1, one.take(token(version=1), 0, 5))
    assert done.session_lifetime_ms == lifetime_ms
    assert one.expires_ns == (5 + lifetime_ms * 1_000_000 if lifetime_ms else 0)


@pytest.mark.parametrize(
    ("mechanism", "text", "cause"),
    [
        (PLAIN, "\0alice\0secret", None),
        (PLAIN, "\0bob\0sesame", "the session was alice's"),
        (SCRAM_SHA_256, "n,,n=alice,r=x", "the session was begun with PLAIN"),
    ],
)
def test_b25_a_session_is_begun_again_by_the_same_user_and_mechanism(
    mechanism: str, text: str, cause: str | None
) -> None:
    one = begun(reauth_ms=1000)
    one.take(handshake(), 0, 1)
    one.take(token(), 0, 1)
    assert one.begin_again(listener(reauth_ms=1000), 10 * SECOND_NS)
    assert one.take(handshake(mechanism), 0, 10 * SECOND_NS).failure is None
    step = one.take(token(text), 0, 10 * SECOND_NS)
    if cause is None:
        assert one.is_open
        assert one.expires_ns == 11 * SECOND_NS
        assert not one.begin_again(listener(), 10 * SECOND_NS + SECOND_NS // 2), "too soon"
    else:
        assert step.failure is not None
        assert step.failure.cause == cause
        if step.response:
            reported = response(ApiKey.SASL_AUTHENTICATE, 2, step).error_message
            assert reported == "Cannot change principals during re-authentication from User.alice: User.bob"


def test_c11_an_api_versions_that_fits_no_ring_is_a_failure() -> None:
    assert MOST_PASSED_ON_BYTES == INLINE_REQUEST_BYTES
    start = versions(version=17)
    fitting = start + bytes(MOST_PASSED_ON_BYTES - len(start))
    assert begun(most_bytes=500_000).take(fitting, 0, 1) == Step(passes_on=True)
    step = begun(most_bytes=500_000).take(fitting + b"x", 0, 1)
    assert step.failure is not None
    assert not step.passes_on
    assert f"{MOST_PASSED_ON_BYTES} at most are accepted" in step.failure.cause


def test_h09_a_token_of_plain_is_rejected_by_its_length_before_it_is_read() -> None:
    one = begun(most_bytes=500_000)
    one.take(handshake(), 0, 1)
    step = one.take(token("\0alice\0" + "x" * MOST_TOKEN_BYTES), 0, 1)
    assert step.failure == Failure(
        f"the client's token has {MOST_TOKEN_BYTES + 7} bytes; {MOST_TOKEN_BYTES} at most are accepted", PLAIN, ""
    )


def unsecured_token(claims: str) -> bytes:
    parts = [base64.urlsafe_b64encode(part.encode()).decode() for part in ('{"alg":"none"}', claims)]
    return f"n,,\x01auth=Bearer {'.'.join(parts)}.\x01\x01".encode()


def taken_with_a_token(claims: str, version: int) -> tuple[Authenticator, Step]:
    validate = unsecured(Rules("sub", "scope", (), None, 0), lambda: NOW_MS)
    servers = {OAUTHBEARER: lambda: OAuthBearerServer(validate)}
    one = Authenticator(SaslListener("SASL_PLAINTEXT", servers, 500_000, {OAUTHBEARER: 0}), lambda: NOW_MS)
    one.take(handshake(OAUTHBEARER, version), 0, 1)
    bare = unsecured_token(claims)
    return one, one.take(frame(ApiKey.SASL_AUTHENTICATE, 2, auth_bytes=bare) if version else bare, 0, 1)


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize(
    "claims",
    [
        '{"sub":"a","exp":Infinity}',
        '{"sub":"a","exp":NaN}',
        '{"sub":"a","exp":1e308}',
        '{"sub":"a","exp":' + "9" * 5000 + "}",
        '{"sub":"\\ud800","exp":2000000000}',
        "[" * 100_000,
    ],
)
def test_h09_tokens_that_python_cannot_take_are_failures(version: int, claims: str) -> None:
    one, step = taken_with_a_token(claims, version)
    if step.failure is None:
        step = one.take(token("\x01") if version else b"\x01", 0, 1)
    assert step.failure is not None
    assert re.search(r"a token that cannot be read: .|not a JSON Web Token", step.failure.cause)
    assert one.state is State.FAILED


def test_h10_a_session_lasts_no_longer_than_a_response_can_say() -> None:
    one, step = taken_with_a_token('{"sub":"a","exp":' + "9" * 30 + "}", 1)
    assert one.is_open
    assert step.response.endswith(struct.pack(">qb", (1 << 63) - 1, 0))


def test_mutated_frames_never_raise_and_never_make_a_user(request: pytest.FixtureRequest) -> None:
    """3,000 exchanges with a changed frame somewhere; a client that logs in has sent the right token."""
    seed = request.config.getoption("randomly_seed", default=0)
    chance = random.Random(f"mutated {seed}")
    print("seed", seed)
    for _ in range(3000):
        one = begun()
        frames = [versions(), handshake(version=chance.randrange(2)), token("\0alice\0wrong")]
        at = chance.randrange(3)
        changed = bytearray(frames[at])
        for _ in range(chance.randrange(1, 4)):
            changed[chance.randrange(len(changed))] = chance.randrange(256)
        frames[at] = bytes(changed[: chance.randrange(1, len(changed) + 1)])
        for sequence, each in enumerate(frames):
            step = one.take(each, sequence, 1)
            if step.failure is not None:
                break
        assert not one.is_open
