"""The sensors of a client: by the user, the listener and the client id of its requests."""

from __future__ import annotations

import pytest

from rotunda.broker.config.broker_config import load
from rotunda.broker.metadata.configs.quota_entities import CLIENT_ID, USER, ClientQuotas
from rotunda.broker.quotas import quota_manager
from rotunda.broker.quotas.quota_manager import MOST_ID_BYTES, QuotaManager
from rotunda.broker.security.session import ANONYMOUS_USER
from rotunda.shm.tables.quota_tables import QuotaTables

CONFIG = load(None, {"broker.quota.request.rate": "1000", "broker.quota.white.list.listener": "INNER"}, {})
QUOTAS: ClientQuotas = {
    ((USER, None),): {"request_percentage": 10.0},
    ((CLIENT_ID, None),): {"producer_byte_rate": 1.0},
}


def manager(listeners: list[str]) -> QuotaManager:
    windows = CONFIG.quota_window_num
    tables = QuotaTables(memoryview(bytearray(QuotaTables.bytes_needed(windows, 1))), windows, 1)
    quotas = QuotaManager(tables, 0, CONFIG, listeners)
    quotas.follow(QUOTAS, CONFIG)
    return quotas


def request(client_id: bytes | None) -> memoryview:
    """Return a request whose header ends with a client id, followed by bytes."""
    length = -1 if client_id is None else len(client_id)
    return memoryview(b"\0" * 8 + length.to_bytes(2, "big", signed=True) + (client_id or b"") + b"\1" * 600)


IDS = [None, b"", b"a", b"x" * 255, b"x" * 256, b"x" * 300, b"x" * MOST_ID_BYTES, b"x" * 600, b"\xff\xfe"]


@pytest.mark.parametrize("client_id", IDS)
def test_sensors_are_found_again_by_user_and_id(client_id: bytes | None) -> None:
    quotas = manager(["PLAINTEXT"])
    found = [quotas.of_request(user, 0, request(client_id), 0) for user in ("alice", "bob", "alice")]
    assert found[0] is found[2]
    assert found[0] is not found[1]
    others = [quotas.of_request("alice", 0, request(each), 0) for each in (b"y", b"x" * 44, b"x" * 254)]
    assert found[0] not in others


def test_ids_are_the_same_if_their_first_bytes_are() -> None:
    quotas = manager(["PLAINTEXT"])
    long, longer = (quotas.of_request("alice", 0, request(b"x" * length), 0) for length in (MOST_ID_BYTES, 600))
    assert long is longer


def test_a_listener_that_comes_is_known_when_it_is_met() -> None:
    """A30: also one whose clients are exempt from the shared quota."""
    listeners = ["PLAINTEXT"]
    quotas = manager(listeners)
    first = quotas.of_request(ANONYMOUS_USER, 0, request(b"a"), 0)
    listeners += ["INNER", "OUTER"]
    inner, outer = (quotas.of_request(ANONYMOUS_USER, listener, request(b"a"), 0) for listener in (1, 2))
    assert outer is first
    assert inner is not first
    assert quotas.of_request(ANONYMOUS_USER, 1, request(b"a"), 0) is inner


def test_who_is_known_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether there are many users, many ids, or many that are no text and so the same one."""
    monkeypatch.setattr(quota_manager, "MOST_KNOWN", 10)
    quotas = manager(["PLAINTEXT"])
    for number in range(100):
        quotas.of_request(f"user-{number}", 0, request(b"a"), 0)
        quotas.of_request("alice", 0, request(str(number).encode()), 0)
        quotas.of_request("alice", 0, request(bytes((0x80 + number, 0x80))), 0)
        assert sum(len(each) for known in quotas._by_user.values() for each in known) <= 10
        assert len(quotas._by_id) <= 10
