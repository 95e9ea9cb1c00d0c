"""The keys that sign tokens, from a server: how old they may be, other keys, and a server that fails."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from rotunda.broker.security.sasl.jwks import JwksSettings, KeySet
from tests.support.certificates import Authority
from tests.support.deadline import wait_until
from tests.support.key_server import KeyServer, key_set

OLD, NEW = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
NEVER_MS = 3_600_000


@contextmanager
def followed(url: str, refresh_ms: int = NEVER_MS) -> Iterator[KeySet]:
    keys = KeySet(JwksSettings(url, refresh_ms, 1, 10))
    yield keys
    keys.end()


@pytest.fixture
def server() -> Iterator[KeyServer]:
    with KeyServer(key_set(old=OLD)) as one:
        yield one


def test_h08_keys_that_are_withdrawn_sign_nothing_once_they_are_read_again(server: KeyServer) -> None:
    """By the interval alone: no token has an unknown key."""
    with followed(server.url, refresh_ms=20) as keys:
        wait_until(lambda: keys.find("old"), "the first keys")
        server.body = key_set(new=NEW)
        wait_until(lambda: keys.find("old") is None, "the end of the old key")
        assert keys.find("new") is not None


def test_h08_a_token_with_a_new_key_makes_a_server_be_asked_at_once(server: KeyServer) -> None:
    with followed(server.url) as keys:
        wait_until(lambda: keys.find("old"), "the first keys")
        server.body = key_set(old=OLD, new=NEW)
        wait_until(lambda: keys.find("new"), "the new key")
        assert keys.find("old") is not None
        asked = server.asked
        assert keys.find("new") is not None
        assert server.asked == asked, "a known key needs no server"


@pytest.mark.parametrize(
    ("status", "headers", "body", "says"),
    [
        (500, {}, key_set(new=NEW), "500"),
        (404, {}, "not here", "404"),
        (200, {}, "<html>", "cannot be read"),
        (200, {}, '{"keys": []}', "cannot be read"),
        (302, {"Location": "file:///etc/passwd"}, "", "not allowed"),
        (200, {"Content-Length": "5000"}, key_set(new=NEW)[:-1], "cannot be read"),
        (None, {}, "", "cannot be read"),
    ],
)
def test_h08_while_a_server_fails_the_keys_stay_and_it_is_asked_again(
    server: KeyServer,
    caplog: pytest.LogCaptureFixture,
    status: int | None,
    headers: dict[str, str],
    body: str,
    says: str,
) -> None:
    with followed(server.url, refresh_ms=20) as keys:
        wait_until(lambda: keys.find("old"), "the first keys")
        with caplog.at_level(logging.WARNING):
            server.status, server.headers, server.body = status, headers, body
            asked = server.asked
            wait_until(lambda: server.asked > asked + 3, "further attempts")
        [line] = {record.getMessage() for record in caplog.records}
        assert says in line
        assert f"{server.url} cannot be read, 1 are known" in line
        assert len(caplog.records) == 1, "the first failure of a row is logged, no other one"
        assert keys.find("old") is not None
        assert keys.find("new") is None
        server.status, server.headers, server.body = 200, {}, key_set(new=NEW)
        wait_until(lambda: keys.find("new"), "the server's recovery")


def test_h08_a_server_that_is_not_there_yet_is_asked_until_it_is(server: KeyServer) -> None:
    server.status = 503
    with followed(server.url) as keys:
        wait_until(lambda: server.asked > 3, "further attempts")
        assert keys.find("old") is None
        server.status = 200
        wait_until(lambda: keys.find("old"), "the keys")


def test_h08_a_server_whose_certificate_nobody_trusts_gives_no_keys(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SSL_CERT_FILE may set OpenSSL's trusted certificates."""
    authority = Authority()
    (tmp_path / "ca.pem").write_text(authority.pem)
    with (
        KeyServer(key_set(old=OLD), authority.issue().write(tmp_path, "server")) as server,
        followed(server.url) as keys,
    ):
        wait_until(lambda: "CERTIFICATE_VERIFY_FAILED" in caplog.text, "the line of the log")
        assert keys.find("old") is None
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
        wait_until(lambda: keys.find("old"), "the keys")
