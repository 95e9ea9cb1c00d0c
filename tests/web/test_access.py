"""Access to the page: tokens, users, probes, and the responses to clients without credentials (users.md row 23)."""

import asyncio
import base64

import pytest

from rotunda.web.http.access import OPEN, Access, Admission

HOST = "192.0.2.1"
TOKEN, METRICS_TOKEN = "the-page's-own-token", "prometheus-has-this"


def is_user(name: str, password: str) -> bool:
    """Accept alice alone."""
    return (name, password) == ("alice", "wonder:land")


def basic(name: str, password: str) -> bytes:
    return b"Basic " + base64.b64encode(f"{name}:{password}".encode())


def allowed(access: Access, path: str, *authorization: bytes) -> bool:
    return asyncio.run(access.allows(path, authorization, HOST))


def test_nobody_is_asked_where_nothing_is_set() -> None:
    assert allowed(Access(OPEN), "/")
    assert allowed(Access(OPEN), "/", b"Bearer anything")


def test_a_token_opens_everything() -> None:
    access = Access(Admission(token=TOKEN, metrics_token=METRICS_TOKEN))
    for path in ("/", "/status.json", "/metrics", "/events/overview", "/static/page.js", "/openapi.json"):
        assert not allowed(access, path)
        assert allowed(access, path, b"Bearer " + TOKEN.encode())
        assert allowed(access, path, b"bearer  " + TOKEN.encode())
        assert allowed(access, path, basic("", TOKEN))
        assert allowed(access, path, basic("whoever", TOKEN))


def test_the_metrics_token_opens_the_metrics_alone() -> None:
    access = Access(Admission(token=TOKEN, metrics_token=METRICS_TOKEN))
    assert allowed(access, "/metrics", b"Bearer " + METRICS_TOKEN.encode())
    for path in ("/", "/metrics/", "//metrics", "/METRICS", "/status.json"):
        assert not allowed(access, path, b"Bearer " + METRICS_TOKEN.encode())
    # Alone it closes nothing else.
    access = Access(Admission(metrics_token=METRICS_TOKEN))
    assert allowed(access, "/")
    assert not allowed(access, "/metrics")


def test_probes_are_answered_to_anybody() -> None:
    access = Access(Admission(token=TOKEN, is_user=is_user))
    assert allowed(access, "/healthz")
    assert allowed(access, "/readyz", b"Bearer wrong")


def test_users_are_let_in_by_their_password() -> None:
    access = Access(Admission(is_user=is_user))
    assert allowed(access, "/", basic("alice", "wonder:land"))
    assert allowed(access, "/metrics", basic("alice", "wonder:land"))
    for given in (basic("alice", "wonder"), basic("", "wonder:land"), basic("alice", ""), b"Bearer wonder:land"):
        assert not allowed(access, "/", given)


def test_users_need_the_right_from_where_they_are() -> None:
    asked: list[tuple[str, str]] = []

    def may_look(name: str, host: str) -> bool:
        asked.append((name, host))
        return len(asked) == 1

    access = Access(Admission(token=TOKEN, is_user=is_user, may_look=may_look))
    assert not allowed(access, "/", basic("alice", "wrong"))
    assert not asked
    assert allowed(access, "/", basic("alice", "wonder:land"))
    assert not allowed(access, "/", basic("alice", "wonder:land"))
    assert asked == [("alice", HOST)] * 2
    assert allowed(access, "/", b"Bearer " + TOKEN.encode()), "a token needs none"


@pytest.mark.parametrize(
    "authorization",
    [
        [],
        [b""],
        [b"Bearer"],
        [b"Bearer "],
        [b"Basic"],
        [b"Basic !!"],
        [b"Basic " + base64.b64encode(b"\xff\xfe:x")],
        [b"Basic " + base64.b64encode(TOKEN.encode())],
        [b"Digest " + TOKEN.encode()],
        [TOKEN.encode()],
        [b"Bearer " + TOKEN.encode()[:-1]],
        [b"Bearer " + TOKEN.encode() + b"x"],
        [b"Bearer \xff"],
        [b"Bearer " + TOKEN.encode(), b"Bearer " + TOKEN.encode()],
    ],
)
def test_everything_else_is_rejected(authorization: list[bytes]) -> None:
    assert not allowed(Access(Admission(token=TOKEN, is_user=is_user)), "/", *authorization)
