"""Hostile requests about groups and transactions: rejected, without effect on other clients."""

from __future__ import annotations

import contextlib
import logging
import random
import uuid
from typing import Any

import pytest

from rotunda.broker.apis.groups.join_group import MOST_PROTOCOLS
from rotunda.broker.coordinator.classic import protocol
from rotunda.broker.coordinator.classic.group import ClassicGroup
from rotunda.broker.errors import InvalidReceive
from rotunda.broker.protocol import codec
from tests.support.coordinator_requests import (
    ADD_MANY,
    COMMIT,
    END,
    INIT,
    JOIN,
    MARKERS,
    REQUESTS,
    TXN_COMMIT,
)
from tests.support.feeds import mutations, random_seed
from tests.support.groups.requests import Member, committed, groups_of
from tests.support.stepped_broker import Sent, SteppedBroker
from tests.support.transactional import answer_of, send

#: One character more than a string of the non-compact encoding can have.
TOO_LONG = "x" * 2**15


def nothing_of_ours_failed(caplog: pytest.LogCaptureFixture) -> None:
    """Assert that no request has failed with an internal error."""
    faults = [record for record in caplog.records if record.exc_info]
    assert not faults, caplog.text[-4000:]


def refused(broker: SteppedBroker, api_key: int, version: int, values: dict[str, Any]) -> Sent:
    sent = send(broker.client(), api_key, version, values)
    broker.settle()
    return sent


LONG = [
    (8, 9, COMMIT | {"group_id": TOO_LONG}),
    (9, 9, {"groups": [{"group_id": TOO_LONG, "topics": None}]}),
    (11, 9, JOIN | {"group_id": TOO_LONG}),
    (11, 9, JOIN | {"group_instance_id": TOO_LONG}),
    (11, 9, JOIN | {"protocol_type": TOO_LONG}),
    (11, 9, JOIN | {"protocols": [{"name": TOO_LONG, "metadata": b""}]}),
    (11, 9, JOIN | {"reason": TOO_LONG}),
    (13, 5, {"group_id": TOO_LONG, "members": [{"member_id": "m"}]}),
    (15, 5, {"groups": [TOO_LONG, "group"]}),
    (22, 5, INIT | {"transactional_id": TOO_LONG}),
    (24, 5, {"transactions": [ADD_MANY["transactions"][0] | {"transactional_id": TOO_LONG}]}),
    (25, 4, {"transactional_id": TOO_LONG, "producer_id": 1, "producer_epoch": 0, "group_id": "group"}),
    (25, 4, {"transactional_id": "id", "producer_id": 1, "producer_epoch": 0, "group_id": TOO_LONG}),
    (26, 5, END | {"transactional_id": TOO_LONG}),
    (27, 1, {"markers": [MARKERS["markers"][0] | {"topics": [{"name": TOO_LONG, "partition_indexes": [0]}]}]}),
    (28, 5, TXN_COMMIT | {"group_id": TOO_LONG}),
    (28, 5, TXN_COMMIT | {"transactional_id": TOO_LONG}),
    (42, 2, {"groups_names": [TOO_LONG, "group"]}),
    (65, 0, {"transactional_ids": [TOO_LONG]}),
]


@pytest.mark.parametrize("number", range(len(LONG)))
def test_names_that_no_record_can_hold_are_rejected(
    broker: SteppedBroker, caplog: pytest.LogCaptureFixture, number: int
) -> None:
    api_key, version, values = LONG[number]
    caplog.set_level(logging.ERROR)
    for _ in range(2):
        sent = refused(broker, api_key, version, values)
        assert sent.answers
        # As in Kafka a text of more than 32,767 bytes ends the connection if lengths are compact.
        if api_key == 11 and sent.answer.payload:
            member = {"member_id": getattr(answer_of(sent), "member_id", "")}
            for more in (member, member | {"group_instance_id": None}):
                refused(broker, api_key, version, values | more)
    broker.clock.advance_ns(60_000_000_000)
    broker.settle()
    nothing_of_ours_failed(caplog)
    Member(broker, "healthy").join()


def test_members_of_more_protocols_than_anybody_has_are_rejected(broker: SteppedBroker) -> None:
    protocols = [{"name": f"p{number}", "metadata": b""} for number in range(MOST_PROTOCOLS + 1)]
    for count, error in ((MOST_PROTOCOLS + 1, 42), (MOST_PROTOCOLS, 79)):
        sent = refused(broker, 11, 9, JOIN | {"protocols": protocols[:count]})
        assert int(answer_of(sent).error_code) == error


def test_consumers_of_more_topics_than_there_can_be_are_rejected(broker: SteppedBroker) -> None:
    most = broker.config.max_partitions
    member = {"group_id": "group", "member_id": "m", "member_epoch": 0, "rebalance_timeout_ms": 10_000}
    names = [f"t{number}" for number in range(most + 1)]
    owned = [{"topic_id": uuid.UUID(int=1).bytes, "partitions": list(range(2 * most))}]
    for values in ({"subscribed_topic_names": names}, {"subscribed_topic_names": ["topic"], "topic_partitions": owned}):
        sent = refused(broker, 68, 1, member | {"topic_partitions": []} | values)
        answer = answer_of(sent)
        assert int(answer.error_code) == 42
        assert f"it may subscribe to {most}" in answer.error_message
    sent = refused(broker, 68, 1, member | {"subscribed_topic_names": names[:-1], "topic_partitions": []})
    assert int(answer_of(sent).error_code) == 0


def test_a_client_id_too_long_for_the_id_of_a_member_is_rejected(
    broker: SteppedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    """A member id starts with the client id, and is longer."""
    caplog.set_level(logging.ERROR)
    for version in (3, 9):
        frame = codec.encode_request(11, version, 0, "c" * (2**15 - 1), JOIN)[4:]
        sent = broker.client().send_frame(11, version, frame)
        broker.settle()
        assert int(answer_of(sent).error_code) == 42
    nothing_of_ours_failed(caplog)


def test_damaged_requests_leave_everybody_else_alone(broker: SteppedBroker, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)
    seed = random_seed()
    print(f"seed {seed}")
    healthy = Member(broker, groups_of(broker, 0, 1)[0])
    healthy.join()
    assert healthy.commit({("topic", 0): 5}) == [0]
    generator = random.Random(seed)
    for api_key, version, values in REQUESTS:
        frame = codec.encode_request(api_key, version, 0, "test", values)[4:]
        for damaged in mutations(frame[8:], generator.randrange(2**32), 40):
            body = frame[:8] + damaged
            # A processor closes the connection of a request without an id to route by.
            with contextlib.suppress(InvalidReceive):
                broker.client().send_frame(api_key, version, body)
        broker.settle(20)
        nothing_of_ours_failed(caplog)
        broker.forget_clients()
    assert healthy.heartbeat() == 0
    assert committed(broker, healthy.group_id, [("topic", 0)]) == [(5, 0)]


@pytest.mark.parametrize("topic", ["topic", "nowhere"])
def test_a_commit_that_writes_nothing_makes_no_group(broker: SteppedBroker, topic: str) -> None:
    member = Member(broker, "group")
    assert member.commit({(topic, 99): 1}) == [3]
    assert "group" not in {group.group_id for i in range(2) for group in broker.parts(i).coordinators.groups.groups()}


def test_a_group_larger_than_any_message_is_written_and_read_back(broker: SteppedBroker) -> None:
    """Limits of client batches do not apply to the coordinator: the members of a group are in one record."""
    group_id = groups_of(broker, 0, 1)[0]
    member = Member(broker, group_id)
    subscription = bytes(3 << 20)
    values = JOIN | {"group_id": group_id, "protocols": [{"name": "range", "metadata": subscription}]}
    first = answer_of(refused(broker, 11, 9, values))
    joined = answer_of(refused(broker, 11, 9, values | {"member_id": first.member_id}))
    assert joined.members[0].metadata == subscription
    member.member_id, member.generation = joined.member_id, joined.generation_id
    synced = member.sync_request()
    broker.settle()
    assert answer_of(synced).assignment == b"mine"
    broker.replace(0)
    assert member.heartbeat() == 0


def test_requests_that_travel_as_files_leave_no_file(broker: SteppedBroker) -> None:
    names = groups_of(broker, 0, 100) + groups_of(broker, 1, 100, "other" * 40)
    answer = answer_of(refused(broker, 15, 5, {"groups": names}))
    assert [each.group_id for each in answer.groups] == names
    assert not list(broker.context.run_dir.glob("peer-*"))


def test_an_old_client_may_ask_for_its_offsets_to_be_kept_for_ever(
    broker: SteppedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    some_ms = 77_777_777_777
    frame = codec.encode_request(8, 2, 0, "test", COMMIT | {"retention_time_ms": some_ms})[4:]
    for_ever = frame.replace(some_ms.to_bytes(8, "big"), (2**63 - 1).to_bytes(8, "big"))
    sent = broker.client().send_frame(8, 2, for_ever)
    broker.settle()
    assert int(answer_of(sent).topics[0].partitions[0].error_code) == 0
    nothing_of_ours_failed(caplog)
    assert committed(broker, "group", [("topic", 0)]) == [(1, 0)]


def test_a_client_that_asks_for_member_ids_in_a_loop_gets_them_and_costs_little(
    broker: SteppedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocol, "MOST_PENDING_MEMBERS", 10)
    group_id = groups_of(broker, 0, 1)[0]
    ids = [answer_of(refused(broker, 11, 9, JOIN | {"group_id": group_id})).member_id for _ in range(30)]
    group = broker.parts(0).coordinators.groups.find(group_id)
    assert isinstance(group, ClassicGroup)
    assert list(group.pending_members) == ids[-10:]
    first, last = [
        int(answer_of(refused(broker, 11, 9, JOIN | {"group_id": group_id, "member_id": name})).error_code)
        for name in (ids[0], ids[-1])
    ]
    assert (first, last) == (25, 0)
