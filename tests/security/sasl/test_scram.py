"""SCRAM: the examples of the RFCs, names with commas, and the information that a guessing client can get."""

import base64
import re
from types import SimpleNamespace
from typing import cast

import pytest

from rotunda.broker.config.broker_config import load
from rotunda.broker.config.settings.sasl import SCRAM_SHA_256, SCRAM_SHA_512
from rotunda.broker.metadata.configs.live_settings import LiveSettings
from rotunda.broker.security.sasl.mechanism import MOST_TOKEN_BYTES, SaslFailed
from rotunda.broker.security.sasl.scram import ScramServer
from rotunda.broker.security.sasl.scram_credential import (
    FEWEST_ITERATIONS,
    MOST_ITERATIONS,
    credential_of,
    read,
    salted,
    written,
)
from rotunda.broker.security.sasl.user_credentials import SALT_KEY, SECRET_NAME, UserCredentials
from rotunda.broker.status import page_users
from tests.support.scram_client import ScramClient

SALT = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
BOTH = (SCRAM_SHA_256, SCRAM_SHA_512)


def credentials(*users: tuple[str, str], mechanism: str = SCRAM_SHA_256, salt: bytes = SALT) -> UserCredentials:
    made = {
        user: {mechanism: written(credential_of(mechanism, salted(mechanism, password, salt, 4096), salt, 4096))}
        for user, password in users
    }
    return UserCredentials({SECRET_NAME: {SALT_KEY: "planted"}, **made})


def test_h08_the_example_of_rfc_7677() -> None:
    server = ScramServer(SCRAM_SHA_256, credentials(("user", "pencil")), lambda: "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0")
    first = server.respond(b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO")
    assert first == b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    last = server.respond(
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    assert last == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    assert (server.is_complete, server.user, server.expires_ms) == (True, "user", None)


@pytest.mark.parametrize("mechanism", BOTH)
@pytest.mark.parametrize("user", ["alice", "a=b,c", "=2C", "Zoë"])
def test_h08_both_hashes_and_any_name(mechanism: str, user: str) -> None:
    server = ScramServer(mechanism, credentials((user, "secret, of=course"), mechanism=mechanism))
    client = ScramClient(mechanism, user, "secret, of=course")
    client.check(server.respond(client.last(server.respond(client.first()))))
    assert (server.is_complete, server.user) == (True, user)


@pytest.mark.parametrize("mechanism", BOTH)
def test_a_credential_is_written_as_kafka_writes_it(mechanism: str) -> None:
    made = credential_of(mechanism, salted(mechanism, "x", b"salt", 4096), b"salt", 4096)
    assert re.fullmatch(r"salt=c2FsdA==,stored_key=[^,]+,server_key=[^,]+,iterations=4096", written(made))
    assert read(written(made)) == made


@pytest.mark.parametrize("user", ["alice", "mallory"])
def test_h09_an_unknown_user_and_a_wrong_password_look_the_same(user: str) -> None:
    """The salt of an unknown user is of the same length, the same each time, and another than another's."""
    users = credentials(("alice", "secret"), salt=b"x" * 26)
    found = set()
    for _ in range(2):
        server = ScramServer(SCRAM_SHA_256, users)
        client = ScramClient(SCRAM_SHA_256, user, "wrong")
        first = server.respond(client.first())
        match = re.search(rb",s=([^,]+),i=(\d+)", first)
        assert match is not None
        assert len(base64.b64decode(match[1])) == 26
        found.add((match[1], int(match[2])))
        with pytest.raises(SaslFailed) as failure:
            server.respond(client.last(first))
        assert failure.value.message is None
        assert not server.is_complete
    [(_, iterations)] = found
    assert iterations == 4096


def test_salts_of_unknown_users_look_like_those_of_kafkas_tools() -> None:
    users = credentials(("alice", "secret"), salt=b"1qz4o3fi8sk7rbp0jd5c2x9tuq")
    salts = {decoy_salt(users, name) for name in ("bob", "carol", "dave")}
    assert len(salts) == 3
    assert all(re.fullmatch(rb"[0-9a-z]{26}", salt) for salt in salts)


def decoy_salt(users: UserCredentials, name: str) -> bytes:
    response = ScramServer(SCRAM_SHA_256, users).respond(ScramClient(SCRAM_SHA_256, name, "").first())
    match = re.search(rb",s=([^,]+),", response)
    assert match is not None
    return base64.b64decode(match[1])


@pytest.mark.parametrize(
    ("first", "cause"),
    [
        (b"y,,n=alice,r=abc", "wants channel binding"),
        (b"p=tls-unique,,n=alice,r=abc", "wants channel binding"),
        (b"n,,n=alice", "none of SCRAM"),
        (b"n,,n=al=ice,r=abc", "none of SCRAM"),
        (b"n,,n=,r=abc", "none of SCRAM"),
        (b"", "none of SCRAM"),
        (b"\xff", "not UTF-8"),
        (b"n,,n=alice,r=abc,tokenauth=true", "delegation token"),
        (b"n,a=bob,n=alice,r=abc", "asks to be bob"),
        (b"n,,n=" + b"x" * MOST_TOKEN_BYTES, "at most are accepted"),
    ],
)
def test_first_messages_that_are_rejected(first: bytes, cause: str) -> None:
    with pytest.raises(SaslFailed, match=cause):
        ScramServer(SCRAM_SHA_256, credentials(("alice", "secret"))).respond(first)


@pytest.mark.parametrize("change", ["nonce", "binding", "short proof", "base64", "form"])
def test_last_messages_that_are_rejected(change: str) -> None:
    server = ScramServer(SCRAM_SHA_256, credentials(("alice", "secret")))
    client = ScramClient(SCRAM_SHA_256, "alice", "secret")
    last = client.last(server.respond(client.first())).decode()
    changed = {
        "nonce": re.sub(r",r=(.*),p=", r",r=\1x,p=", last),
        "binding": last.replace("c=biws", "c=eSws"),
        "short proof": re.sub(r"p=.*", "p=AAAA", last),
        "base64": re.sub(r"p=.*", "p=A=A=", last),
        "form": last.replace(",p=", ",q="),
    }[change]
    with pytest.raises(SaslFailed) as failure:
        server.respond(changed.encode())
    assert failure.value.message is None
    assert not server.is_complete


def test_a_changed_password_counts_at_once_and_a_deleted_user_is_unknown() -> None:
    users = credentials(("alice", "old"))
    for stored, password in ((credentials(("alice", "new")), "new"), (None, None)):
        new = None if stored is None else stored.find(SCRAM_SHA_256, "alice")
        users.apply({"alice": {SCRAM_SHA_256: written(new)} if new else {}})
        server = ScramServer(SCRAM_SHA_256, users)
        client = ScramClient(SCRAM_SHA_256, "alice", password or "new")
        last = client.last(server.respond(client.first()))
        if password:
            client.check(server.respond(last))
        else:
            with pytest.raises(SaslFailed, match="unknown user"):
                server.respond(last)


def test_another_mechanism_is_reported_in_the_log_alone() -> None:
    server = ScramServer(SCRAM_SHA_512, credentials(("alice", "secret")))
    client = ScramClient(SCRAM_SHA_512, "alice", "secret")
    with pytest.raises(SaslFailed, match="a password for SCRAM-SHA-256 and none for SCRAM-SHA-512") as failure:
        server.respond(client.last(server.respond(client.first())))
    assert failure.value.message is None


def test_the_status_page_spends_as_many_iterations_on_anybody(monkeypatch: pytest.MonkeyPatch) -> None:
    """The response time does not reveal which users exist, nor how many iterations they have."""
    spent: list[int] = []

    def counting(mechanism: str, password: str, salt: bytes, iterations: int) -> bytes:
        spent.append(iterations)
        return salted(mechanism, password, salt, iterations)

    monkeypatch.setattr(page_users, "salted", counting)
    listeners = {"listeners": "A://127.0.0.1:0", "listener.security.protocol.map": "A:SASL_PLAINTEXT"}
    config = load(None, {**listeners, "sasl.enabled.mechanisms": SCRAM_SHA_256}, {})
    made = credential_of(SCRAM_SHA_256, salted(SCRAM_SHA_256, "secret", SALT, 8192), SALT, 8192)
    users = credentials(("alice", "secret"))
    users.apply({"bob": {SCRAM_SHA_256: written(made)}})
    page = page_users.PageUsers(cast("LiveSettings", SimpleNamespace(broker_config=config, user_credentials=users)))
    for name in ("alice", "bob", "mallory"):
        assert not page.is_user(name, "wrong")
        assert sum(spent) == MOST_ITERATIONS
        spent.clear()
    assert page.is_user("bob", "secret")


def test_without_any_user_there_is_a_salt_too() -> None:
    assert f",i={FEWEST_ITERATIONS}".encode() in ScramServer(SCRAM_SHA_256, UserCredentials()).respond(b"n,,n=a,r=b")
