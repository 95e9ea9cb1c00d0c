"""ACLs and replays: stored batches remain acknowledged, new ones are authorized again, without a bypass."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rotunda.broker.config.settings.authorization import STANDARD_AUTHORIZER
from rotunda.broker.protocol.steps import finished
from rotunda.broker.security.acl.acls import Acl, Operation, PatternType, Permission, ResourceType
from tests.support.record_batches import record_batch
from tests.support.stepped_broker import SteppedBroker, produced

FORBIDDEN = 29
SETTINGS = {"authorizer.class.name": STANDARD_AUTHORIZER, "allow.everyone.if.no.acl.found": "true"}
DENIAL = Acl(ResourceType.TOPIC, "topic", PatternType.LITERAL, "User:ANONYMOUS", "*", Operation.WRITE, Permission.DENY)


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[SteppedBroker]:
    """Yield two handlers and a controller with an authorizer, and a topic of four partitions."""
    broker = SteppedBroker(tmp_path, settings=SETTINGS)
    broker.create("topic", 4)
    yield broker
    broker.close()


def deny(broker: SteppedBroker) -> None:
    active = broker._active
    assert active is not None
    finished(active.controller.acls.create([DENIAL]))
    active.announce()


def test_appended_batches_succeed_after_their_acl_is_deleted(guarded: SteppedBroker) -> None:
    own, foreign = (guarded.owned_by("topic", owner)[0] for owner in (0, 1))
    # An earlier request that waits for its other owner holds all later ones in the ring.
    held = guarded.client().produce(
        [("topic", own, record_batch([b"first"])), ("topic", foreign, record_batch([b"x"]))]
    )
    stands = guarded.client().produce([("topic", own, record_batch([b"stands"]))])
    guarded.run_once(0)
    deny(guarded)
    late = guarded.client().produce([("topic", own, record_batch([b"late"]))])
    guarded.replace(0)
    guarded.settle()
    assert [error for error, _ in produced(stands)] == [0]
    assert produced(held)[0][0] == 0
    assert [error for error, _ in produced(late)] == [FORBIDDEN]
    assert guarded.values("topic", own) == [b"first", b"stands"]


def test_what_a_predecessor_has_not_let_in_is_asked_again(guarded: SteppedBroker) -> None:
    own = guarded.owned_by("topic", 0)[0]
    client = guarded.client()
    client.produce([("topic", own, record_batch([b"before"]))])
    guarded.settle()
    sent = client.produce([("topic", own, record_batch([b"like the last one"]))])
    deny(guarded)
    guarded.replace(0)
    guarded.settle()
    assert [error for error, _ in produced(sent)] == [FORBIDDEN]
    assert guarded.values("topic", own) == [b"before"]


def test_parts_of_other_owners_are_asked_about_once_where_the_request_arrives(guarded: SteppedBroker) -> None:
    own, foreign = (guarded.owned_by("topic", owner)[0] for owner in (0, 1))
    deny(guarded)
    sent = guarded.client().produce([("topic", each, record_batch([b"x"])) for each in (own, foreign)])
    guarded.settle()
    assert [error for error, _ in produced(sent)] == [FORBIDDEN] * 2
    denied = [guarded.parts(handler).partitions.metadata.authorizer for handler in (0, 1)]
    assert sorted(0 if each is None else each.denied for each in denied) == [0, 2]


def test_an_authorized_part_is_appended_by_its_owner_after_its_acl_is_deleted(guarded: SteppedBroker) -> None:
    own, foreign = (guarded.owned_by("topic", owner)[0] for owner in (0, 1))
    sent = guarded.client().produce([("topic", each, record_batch([b"x"])) for each in (own, foreign)])
    guarded.run_once(0)
    deny(guarded)
    guarded.settle()
    assert [error for error, _ in produced(sent)] == [0, 0]
    assert guarded.values("topic", foreign) == [b"x"]
