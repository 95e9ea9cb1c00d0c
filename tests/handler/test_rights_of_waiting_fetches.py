"""Fetches that wait while ACLs change: no client reads unauthorized records, and others are unaffected."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from rotunda.broker.config.settings.authorization import STANDARD_AUTHORIZER
from rotunda.broker.partitions.fetch import fetches
from rotunda.broker.partitions.fetch.fetch import Fetch
from rotunda.broker.partitions.fetch.fetches import Fetches
from rotunda.broker.protocol import codec
from rotunda.broker.scheduling import slices
from rotunda.broker.security.acl.acls import Acl, Operation, PatternType, Permission, ResourceType
from rotunda.broker.security.session import pack_session
from rotunda.broker.steps import finished
from tests.support.record_batches import record_batch
from tests.support.results import present
from tests.support.stepped_broker import Client, Sent, SteppedBroker
from tests.support.wire_messages import FETCH

FORBIDDEN = 29
VERSION = 12
WAIT_MS = 60_000
SETTINGS = {
    "authorizer.class.name": STANDARD_AUTHORIZER,
    "allow.everyone.if.no.acl.found": "true",
    "super.users": "User:ANONYMOUS",
}
EVERYBODY, BOB = "User:*", "User:bob"

pytestmark = pytest.mark.stepped({"topic": 4, "other": 1}, handlers=1, settings=SETTINGS)


def of(broker: SteppedBroker, user: str) -> Client:
    client = broker.client()
    client.session = pack_session(user, "10.0.0.7")
    return client


def fetch(
    client: Client, topics: Mapping[str, Sequence[int]], epoch: int = -1, session: int = 0, min_bytes: int = 1
) -> Sent:
    """Fetch from the start of partitions; ``epoch``: of a session, -1 without one."""
    wanted = [
        {
            "topic": topic,
            "partitions": [
                {"partition": each, "fetch_offset": 0, "partition_max_bytes": 1 << 20} for each in partitions
            ],
        }
        for topic, partitions in topics.items()
    ]
    values = {
        "max_wait_ms": WAIT_MS,
        "min_bytes": min_bytes,
        "topics": wanted,
        "session_epoch": epoch,
        "session_id": session,
    }
    frame = codec.encode_request(FETCH, VERSION, 0, "consumer", values)
    return client.send_frame(FETCH, VERSION, frame[4:], 0)


def answered(sent: Sent) -> tuple[int, dict[tuple[str, int], int]]:
    """Return the session of a response, and the error of each partition."""
    payload = sent.answer.payload
    response = codec.decode_response(FETCH, VERSION, payload, 4, len(payload))
    errors = {
        (topic.topic, part.partition_index): int(part.error_code)
        for topic in response.responses
        for part in topic.partitions
    }
    return response.session_id, errors


def change(broker: SteppedBroker, permission: Permission, principal: str) -> None:
    """Create an ACL for reading the topic."""
    active = present(broker._active)
    acl = Acl(ResourceType.TOPIC, "topic", PatternType.LITERAL, principal, "*", Operation.READ, permission)
    finished(active.controller.acls.create([acl]))
    active.announce()
    broker.settle()


def append(broker: SteppedBroker, topic: str) -> None:
    broker.client().produce([(topic, 0, record_batch([b"value"]))])
    broker.settle()


def test_records_that_may_no_longer_be_read_are_rejected(stepped: SteppedBroker) -> None:
    bob, alice, elsewhere = (
        fetch(of(stepped, "bob"), {"topic": [0]}),
        fetch(of(stepped, "alice"), {"topic": [0]}),
        fetch(of(stepped, "bob"), {"other": [0]}),
    )
    stepped.settle()
    change(stepped, Permission.ALLOW, EVERYBODY)
    change(stepped, Permission.DENY, BOB)
    assert [each.answers for each in (bob, alice, elsewhere)] == [[], [], []]
    append(stepped, "topic")
    append(stepped, "other")
    assert answered(bob) == (0, {("topic", 0): FORBIDDEN})
    assert bob.answer.error_code == FORBIDDEN
    assert answered(alice) == (0, {("topic", 0): 0})
    assert answered(elsewhere) == (0, {("other", 0): 0})
    assert [len(each.answers) for each in (bob, alice, elsewhere)] == [1, 1, 1]


def test_records_found_before_a_denial_are_not_returned(stepped: SteppedBroker) -> None:
    """Too few bytes arrived for a response, then the right was revoked."""
    append(stepped, "topic")
    waiting = fetch(of(stepped, "bob"), {"topic": [0]}, min_bytes=100_000)
    stepped.settle()
    change(stepped, Permission.DENY, BOB)
    assert not waiting.answers
    stepped.clock.advance_ns(WAIT_MS * 1_000_000)
    stepped.settle()
    assert answered(waiting) == (0, {("topic", 0): FORBIDDEN})
    assert len(waiting.answers) == 1


def test_a_session_continues_with_the_readable_partitions(stepped: SteppedBroker) -> None:
    bob = of(stepped, "bob")
    begun = fetch(bob, {"topic": [0, 1], "other": [0]}, epoch=0)
    stepped.settle()
    change(stepped, Permission.DENY, BOB)
    append(stepped, "other")
    number, errors = answered(begun)
    assert errors == {("topic", 0): FORBIDDEN, ("topic", 1): FORBIDDEN, ("other", 0): 0}
    again = fetch(bob, {}, epoch=1, session=number)
    stepped.settle()
    assert answered(again)[1] == {("topic", 0): FORBIDDEN, ("topic", 1): FORBIDDEN, ("other", 0): 0}


def test_rights_that_change_while_a_fetch_is_read_in_slices(
    stepped: SteppedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetches, "PARTS_AT_ONCE", 1)
    monkeypatch.setattr(fetches, "PARTS_IN_A_STEP", 1)
    read, slices_read = Fetches.read, []

    def slow(serving: Fetches, pending: Fetch, indices: Sequence[int]) -> None:
        read(serving, pending, indices)
        slices_read.append(indices)
        stepped.clock.advance_ns(slices.BUDGET_NS)

    monkeypatch.setattr(Fetches, "read", slow)
    sent = fetch(of(stepped, "bob"), {"topic": [0], "other": [0]})
    while not slices_read:
        stepped.run_once(0)
    change(stepped, Permission.DENY, BOB)
    append(stepped, "topic")
    assert answered(sent)[1] == {("topic", 0): FORBIDDEN, ("other", 0): 0}
