"""Quotas of users, with the user of each request passed to its target (`E09`, `E18`)."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from rotunda.broker.metadata.configs.quota_entities import CLIENT_ID, USER, QuotaEntity, QuotaOp
from rotunda.broker.quotas import quota_manager
from rotunda.broker.security.session import ANONYMOUS_USER, pack_session
from rotunda.shm.recorder_layout import THROTTLED_BY
from tests.support.record_batches import record_batch
from tests.support.stepped_broker import Client, SteppedBroker, batch_for
from tests.support.wire_messages import FETCH, FETCH_VERSION, PRODUCE, fetch_body, produce_body, string

#: Eleven windows of a second: the burst is about ten times the rate.
LIMIT = 100.0
BATCH = record_batch([b"x" * 3000])

pytestmark = pytest.mark.stepped({"topic": 1}, handlers=1)


def limit(
    broker: SteppedBroker,
    *entity: tuple[str, str | None],
    quota: str = "producer_byte_rate",
    rate: float | None = LIMIT,
) -> None:
    """Set a quota; with the rate None, delete it."""
    name: QuotaEntity = tuple(sorted(entity))
    broker.controller.alter_client_quotas(name, [QuotaOp(quota, rate)], validate_only=False)
    broker.announce_metadata()
    broker.settle()


def client_of(broker: SteppedBroker, user: str = "", host: str = "10.0.0.1") -> Client:
    """Return a connection of a user; without one it is unauthenticated. All have the client id "test"."""
    client = broker.client()
    client.session = pack_session(user, host) if user else b""
    return client


def throttle_ms(broker: SteppedBroker, client: Client) -> int:
    """Return the throttle time of a Produce: the last field of its response."""
    sent = client.produce([("topic", 0, BATCH)])
    broker.settle()
    return int.from_bytes(sent.answer.payload[-4:], "big")


def test_e09_users_of_one_client_id_have_quotas_of_their_own(stepped: SteppedBroker) -> None:
    limit(stepped, (USER, "alice"), (CLIENT_ID, "test"))
    assert throttle_ms(stepped, client_of(stepped, "alice")) > 0
    assert throttle_ms(stepped, client_of(stepped, "bob")) == 0
    assert throttle_ms(stepped, client_of(stepped)) == 0


def test_e09_a_user_has_one_quota_over_all_addresses(stepped: SteppedBroker) -> None:
    """The usage of one connection counts for all of the same user, with any address."""
    limit(stepped, (USER, "alice"))
    first = throttle_ms(stepped, client_of(stepped, "alice"))
    assert throttle_ms(stepped, client_of(stepped, "alice", "10.0.0.2")) > 1.5 * first


def test_e09_each_user_has_the_default_quota_of_users_for_itself(stepped: SteppedBroker) -> None:
    limit(stepped, (USER, None))
    first = throttle_ms(stepped, client_of(stepped, "alice"))
    assert first > 0
    for user in ("bob", ""):
        assert throttle_ms(stepped, client_of(stepped, user)) == pytest.approx(first, rel=0.1)


def test_e09_unauthenticated_clients_are_anonymous(stepped: SteppedBroker) -> None:
    limit(stepped, (USER, ANONYMOUS_USER))
    assert throttle_ms(stepped, client_of(stepped)) > 0
    assert throttle_ms(stepped, client_of(stepped, ANONYMOUS_USER)) > 0
    assert throttle_ms(stepped, client_of(stepped, "alice")) == 0


def test_e09_quotas_hold_for_requests_like_those_before_them(stepped: SteppedBroker) -> None:
    """The user is cached from the connection's previous request, only until quotas change (E10)."""
    alice, bob = (client_of(stepped, user) for user in ("alice", "bob"))
    assert [throttle_ms(stepped, client) for client in (alice, bob) * 2] == [0] * 4
    limit(stepped, (USER, "alice"))
    assert [throttle_ms(stepped, client) > 0 for client in (alice, bob) * 2] == [True, False] * 2
    limit(stepped, (USER, "bob"))
    assert throttle_ms(stepped, bob) > 0
    limit(stepped, (USER, "bob"), rate=None)
    assert [throttle_ms(stepped, client) > 0 for client in (alice, bob)] == [True, False]


def test_e09_new_sensors_apply_to_later_requests(stepped: SteppedBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quota_manager, "MOST_KNOWN", 1)
    limit(stepped, (USER, "alice"))
    alice, bob = (client_of(stepped, user) for user in ("alice", "bob"))
    assert [throttle_ms(stepped, client) > 0 for client in (alice, bob) * 3] == [True, False] * 3


@pytest.mark.stepped(
    {"topic": 1}, handlers=1, settings={"broker.quota.produce.bytes": "100", "broker.quota.white.list.user": "alice"}
)
def test_e18_a_user_can_be_exempt_from_the_shared_quota(broker: SteppedBroker) -> None:
    assert throttle_ms(broker, client_of(broker, "alice")) == 0
    assert throttle_ms(broker, client_of(broker, "bob")) > 0


def test_e11_requests_that_are_committed_together_are_charged_to_each_client(stepped: SteppedBroker) -> None:
    """Each response of a client above its quota has a throttle time; the others in the batch are not delayed."""
    limit(stepped, (USER, "alice"))
    alice, bob, silent = client_of(stepped, "alice"), client_of(stepped, "bob"), client_of(stepped, "bob")
    for client in (alice, bob):
        # Later requests are equal to this one, and use the fast path.
        client.produce([batch_for(0, b"x")])
    stepped.settle()
    stepped.clock.advance_ms(60_000)
    sent = [(client, client.produce([("topic", 0, BATCH)])) for client in (alice, bob, alice, bob)]
    silent.produce([("topic", 0, BATCH)], acks=0)
    stepped.settle()
    times = [int.from_bytes(each.answer.payload[-4:], "big") for _, each in sent]
    assert times[0] == times[2] > 0
    assert times[1] == times[3] == 0
    [use] = [each for each in stepped.context.quota_tables.uses() if each.user == "alice"]
    assert (use.throttled, use.throttle_ms) == (2, 2 * times[0])
    # Both requests, each with its header and the fields of Produce, have been charged once.
    assert sum(used for *_, used in use.samples) < 2 * (len(BATCH) + 200) + 300


def test_e13_a_client_is_not_charged_for_the_time_that_its_target_sleeps(stepped: SteppedBroker) -> None:
    limit(stepped, (USER, None), quota="request_percentage", rate=1)
    waiting = client_of(stepped, "alice").send(FETCH, FETCH_VERSION, fetch_body("topic", 0, 0, max_wait_ms=5000))
    while stepped.run_once(0):
        pass
    stepped.clock.advance_ms(5000)
    stepped.settle()
    # After the size and the correlation id.
    assert int.from_bytes(waiting.answer.payload[8:12], "big") == 0


def test_b29_the_time_of_requests_that_are_committed_together_is_charged_once(stepped: SteppedBroker) -> None:
    """E13: in equal parts, and no more than the elapsed time."""
    limit(stepped, (USER, None), quota="request_percentage")
    clients = [client_of(stepped, user) for user in ("alice", "bob")]
    for _ in range(3):
        for client in clients:
            client.produce([("topic", 0, BATCH)])
        begun_ns = stepped.clock.monotonic_ns()
        stepped.settle()
        stepped.clock.advance_ms(2000)
    passed_ns = stepped.clock.monotonic_ns() - begun_ns
    used = {
        each.user: sum(amount for *_, amount in each.samples)
        for each in stepped.context.quota_tables.uses()
        if each.quota == "request_percentage"
    }
    assert used.keys() == {"alice", "bob"}
    assert sum(used.values()) <= 3 * passed_ns


SETTINGS_OF_ALL = {
    "broker.quota.produce.bytes": {"broker.quota.produce.bytes": "100"},
    "broker.quota.request.rate": {"broker.quota.request.rate": "1"},
}


@pytest.mark.parametrize("quota", ["producer_byte_rate", "request_percentage", *SETTINGS_OF_ALL])
@pytest.mark.parametrize("acks", [1, 0])
def test_e14_a_response_has_the_quota_of_its_throttle_time(tmp_path: Path, quota: str, acks: int) -> None:
    """For the request log: also the first request of a connection, on the general path, and one without a response."""
    broker = SteppedBroker(tmp_path, handlers=1, settings=SETTINGS_OF_ALL.get(quota))
    try:
        broker.settle()
        broker.create("topic")
        if quota not in SETTINGS_OF_ALL:
            limit(broker, (USER, None), quota=quota)
        alice = client_of(broker, "alice")
        for _ in range(3):
            sent = [alice.produce([("topic", 0, BATCH)], acks=acks) for _ in range(20)]
            broker.settle()
        throttled = {THROTTLED_BY[each.answer.throttled_by - 1] for each in sent if each.answer.throttled_by}
        assert throttled <= {quota}
        if quota != "request_percentage":
            assert throttled
    finally:
        broker.close()


def test_e09_a_connection_that_gives_another_client_id_has_the_quotas_of_that_one(stepped: SteppedBroker) -> None:
    """Requests equal to earlier ones use the quotas of their own client, not of their connection's last one."""
    limit(stepped, (CLIENT_ID, "test"))
    client = client_of(stepped)

    def throttle_ms_of(client_id: str) -> int:
        sequence = len(client.sent)
        header = struct.pack(">hhi", PRODUCE, 7, sequence) + string(client_id)
        sent = client.send_frame(PRODUCE, 7, header + produce_body([("topic", 0, BATCH)], 1))
        stepped.settle()
        return int.from_bytes(sent.answer.payload[-4:], "big")

    given = [throttle_ms_of(client_id) > 0 for client_id in ("test", "test", "other", "other", "test", "test", "other")]
    assert given == [True, True, False, False, True, True, False]
