"""ACLs and replays: stored batches remain acknowledged, new ones are authorized again, without a bypass."""

from __future__ import annotations

import pytest

from rotunda.broker.config.settings.authorization import STANDARD_AUTHORIZER
from rotunda.broker.security.acl.acls import Acl, Operation, PatternType, Permission, ResourceType
from rotunda.broker.steps import finished
from tests.support.results import present
from tests.support.stepped_broker import SteppedBroker, batch_for, produced

FORBIDDEN = 29
SETTINGS = {"authorizer.class.name": STANDARD_AUTHORIZER, "allow.everyone.if.no.acl.found": "true"}
DENIAL = Acl(ResourceType.TOPIC, "topic", PatternType.LITERAL, "User:ANONYMOUS", "*", Operation.WRITE, Permission.DENY)

pytestmark = pytest.mark.stepped({"topic": 4}, settings=SETTINGS)


def deny(broker: SteppedBroker) -> None:
    active = present(broker._active)
    finished(active.controller.acls.create([DENIAL]))
    active.announce()


def test_appended_batches_succeed_after_their_acl_is_deleted(stepped: SteppedBroker) -> None:
    own, foreign = (stepped.owned_by("topic", owner)[0] for owner in (0, 1))
    # An earlier request that waits for its other owner holds all later ones in the ring.
    held = stepped.client().produce([batch_for(own, b"first"), batch_for(foreign, b"x")])
    stands = stepped.client().produce([batch_for(own, b"stands")])
    stepped.run_once(0)
    deny(stepped)
    late = stepped.client().produce([batch_for(own, b"late")])
    stepped.replace(0)
    stepped.settle()
    assert [error for error, _ in produced(stands)] == [0]
    assert produced(held)[0][0] == 0
    assert [error for error, _ in produced(late)] == [FORBIDDEN]
    assert stepped.values("topic", own) == [b"first", b"stands"]


def test_batches_that_a_predecessor_has_not_appended_are_authorized_again(stepped: SteppedBroker) -> None:
    own = stepped.owned_by("topic", 0)[0]
    client = stepped.client()
    client.produce([batch_for(own, b"before")])
    stepped.settle()
    sent = client.produce([batch_for(own, b"like the last one")])
    deny(stepped)
    stepped.replace(0)
    stepped.settle()
    assert [error for error, _ in produced(sent)] == [FORBIDDEN]
    assert stepped.values("topic", own) == [b"before"]


def test_parts_of_other_owners_are_asked_about_once_where_the_request_arrives(stepped: SteppedBroker) -> None:
    own, foreign = (stepped.owned_by("topic", owner)[0] for owner in (0, 1))
    deny(stepped)
    sent = stepped.client().produce([batch_for(each, b"x") for each in (own, foreign)])
    stepped.settle()
    assert [error for error, _ in produced(sent)] == [FORBIDDEN] * 2
    denied = [stepped.parts(handler).partitions.metadata.authorizer for handler in (0, 1)]
    assert sorted(0 if each is None else each.denied for each in denied) == [0, 2]


def test_an_authorized_part_is_appended_by_its_owner_after_its_acl_is_deleted(stepped: SteppedBroker) -> None:
    own, foreign = (stepped.owned_by("topic", owner)[0] for owner in (0, 1))
    sent = stepped.client().produce([batch_for(each, b"x") for each in (own, foreign)])
    stepped.run_once(0)
    deny(stepped)
    stepped.settle()
    assert [error for error, _ in produced(sent)] == [0, 0]
    assert stepped.values("topic", foreign) == [b"x"]
