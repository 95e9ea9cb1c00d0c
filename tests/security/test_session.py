"""Sessions: their encoding between processes, and that the same bytes are the same object."""

import pytest

from rotunda.broker.security.session import MOST_KNOWN, MOST_USER_BYTES, Sessions, pack_session


@pytest.mark.parametrize("host", ["127.0.0.1", "10.20.30.40", "::1", "2001:db8::17"])
@pytest.mark.parametrize("user", ["alice", "CN=Zoë,O=Größe", "a" * MOST_USER_BYTES])
def test_h06_a_session_is_what_was_packed(user: str, host: str) -> None:
    session = Sessions().of(pack_session(user, host))
    assert (session.user, session.host, session.principal) == (user, host, f"User:{user}")


@pytest.mark.parametrize("host", ["", "10.20.30.40"])
@pytest.mark.parametrize("reached", ["", "192.0.2.7", "2001:db8::17", "kafka.example", "a" * 255])
def test_c18_a_session_says_what_its_client_has_reached(host: str, reached: str) -> None:
    session = Sessions().of(pack_session("alice", host, reached))
    assert (session.user, session.host, session.reached) == ("alice", host, reached)


def test_a_name_that_is_too_long_is_rejected_with_its_length() -> None:
    with pytest.raises(ValueError, match=f"has {MOST_USER_BYTES + 1} bytes; {MOST_USER_BYTES} at most"):
        pack_session("a" * (MOST_USER_BYTES + 1), "127.0.0.1")


def test_the_same_bytes_are_the_same_session_until_too_many_are_known() -> None:
    sessions = Sessions()
    alice = sessions.of(pack_session("alice", "127.0.0.1"))
    assert sessions.of(pack_session("alice", "127.0.0.1")) is alice
    assert sessions.of(pack_session("alice", "127.0.0.2")) is not alice
    for number in range(MOST_KNOWN):
        sessions.of(pack_session(str(number), "127.0.0.1"))
    assert sessions.of(pack_session("alice", "127.0.0.1")) is not alice
