"""Groups and offsets by their requests: two handlers run by the test, each with some of the groups."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from rotunda.broker.protocol import codec
from tests.support.groups.requests import (
    DELETE_GROUPS,
    DESCRIBE_GROUPS,
    HEARTBEAT,
    JOIN_GROUP,
    LEAVE_GROUP,
    LIST_GROUPS,
    OFFSET_COMMIT,
    OFFSET_DELETE,
    OFFSET_FETCH,
    SYNC_GROUP,
    TXN_OFFSET_COMMIT,
    Member,
    call,
    committed,
    groups_of,
    joining,
)
from tests.support.sampling import Sampling
from tests.support.stepped_broker import SteppedBroker
from tests.support.transactional import ADD_OFFSETS, TransactionalProducer, answer_of, settled, started

PLACES = [("topic", index) for index in range(4)]
EXPIRE_SOON = {"offsets.retention.minutes": "1", "offsets.retention.check.interval.ms": "1000"}


def simple(broker: SteppedBroker, group_id: str, offsets: dict[tuple[str, int], int], metadata: str = "") -> list[int]:
    """Commit as a consumer without group membership, or as an admin."""
    return Member(broker, group_id).commit(offsets, metadata)


def delete_groups(broker: SteppedBroker, *group_ids: str) -> dict[str, int]:
    answer = call(broker, broker.client(), DELETE_GROUPS, 3, {"groups_names": list(group_ids)})
    assert len({each.group_id for each in answer.results}) == len(answer.results)
    return {each.group_id: int(each.error_code) for each in answer.results}


def listed(broker: SteppedBroker, version: int = 5, **filters: list[str]) -> dict[str, Any]:
    answer = call(broker, broker.client(), LIST_GROUPS, version, filters)
    assert int(answer.error_code) == 0
    return {each.group_id: each for each in answer.groups}


# ---- membership -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol_type", ["consumer", "connect", "sr"])
def test_a_member_of_any_type_joins_reports_and_leaves(broker: SteppedBroker, protocol_type: str) -> None:
    """I11: with any name of a protocol type."""
    member = Member(broker, "group", protocol_type=protocol_type)
    assert member.join() == b"mine"
    assert member.heartbeat() == 0
    assert member.leave() == 0
    assert member.heartbeat() == 25
    assert listed(broker)["group"].protocol_type == protocol_type


@pytest.mark.parametrize("version", range(10))
def test_join_in_every_version(broker: SteppedBroker, version: int) -> None:
    """I11: from version 4 on a new member gets its id first."""
    values = {
        "group_id": "group",
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 10_000,
        "member_id": "",
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b"x"}],
    }
    client = broker.client()
    answer = call(broker, client, JOIN_GROUP, version, values)
    if version >= 4:
        assert int(answer.error_code) == 79
        answer = call(broker, client, JOIN_GROUP, version, values | {"member_id": answer.member_id})
    assert (int(answer.error_code), answer.leader, len(answer.members)) == (0, answer.member_id, 1)
    for refused, code in (({"group_id": ""}, 24), ({"session_timeout_ms": 1}, 26), ({"member_id": "x"}, 25)):
        assert int(call(broker, client, JOIN_GROUP, version, values | refused).error_code) == code


def test_versions_of_sync_heartbeat_and_leave(broker: SteppedBroker) -> None:
    member = Member(broker, "group")
    member.join()
    who = {"group_id": "group", "generation_id": member.generation, "member_id": member.member_id}
    protocol = {"protocol_type": "consumer", "protocol_name": "range"}
    for version in range(6):
        assert call(broker, member.client, SYNC_GROUP, version, who | protocol).assignment == b"mine"
    assert int(call(broker, member.client, SYNC_GROUP, 5, who).error_code) == 23
    for version in range(5):
        assert int(call(broker, member.client, HEARTBEAT, version, who).error_code) == 0
    for key, version, more in ((SYNC_GROUP, 5, protocol), (HEARTBEAT, 4, {})):
        assert int(call(broker, member.client, key, version, who | more | {"group_id": ""}).error_code) == 24
    for version in range(3):
        answer = call(broker, member.client, LEAVE_GROUP, version, {"group_id": "group", "member_id": "nobody"})
        assert int(answer.error_code) == 25
    members = [{"member_id": "nobody"}, {"member_id": member.member_id, "reason": "done"}]
    for version, codes in ((3, [25, 0]), (5, [25, 25])):
        answer = call(broker, member.client, LEAVE_GROUP, version, {"group_id": "group", "members": members})
        assert [int(each.error_code) for each in answer.members] == codes


def test_e23_a_request_to_the_wrong_handler_is_not_coordinator(broker: SteppedBroker) -> None:
    [group] = groups_of(broker, 0, 1)
    frame = codec.encode_request(HEARTBEAT, 4, 0, "test", {"group_id": group, "member_id": "m"})
    sent = broker.client().send_frame(HEARTBEAT, 4, frame[4:], target=1)
    broker.settle()
    assert int(answer_of(sent).error_code) == 16


@pytest.mark.stepped({})
def test_a_group_before_there_is_a_topic_for_it(broker: SteppedBroker) -> None:
    """COORDINATOR_NOT_AVAILABLE, and the topic is created; the client's retry finds it."""
    member = Member(broker, "group")
    sent = member.join_request()
    broker.settle()
    assert member.take(sent) == 15
    broker.settle()
    member.join()


def test_waiting_members_outlive_their_coordinators_handler(broker: SteppedBroker) -> None:
    """A waiting JoinGroup is resent to the replacement: the member joins, or must start over."""
    first = Member(broker, "group")
    first.join()
    second = Member(broker, "group")
    asked = second.join_request()
    broker.settle()
    assert second.take(asked) == 79
    waiting = second.join_request()
    broker.settle(5)
    assert not waiting.answers
    owner = waiting.target
    broker.replace(owner)
    broker.settle()
    assert second.take(waiting) == 25
    assert first.heartbeat() == 0
    assert first.commit({PLACES[0]: 3}) == [0]


# ---- offsets --------------------------------------------------------------------------------------------------------


def test_commits_keep_their_metadata(broker: SteppedBroker) -> None:
    """Users row 7: the metadata of a commit is not lost, also with a later coordinator."""
    assert simple(broker, "group", {PLACES[0]: 5}, "where I was") == [0]
    for _ in range(2):
        answer = call(broker, broker.client(), OFFSET_FETCH, 5, {"group_id": "group", "topics": None})
        [part] = answer.topics[0].partitions
        assert (part.committed_offset, part.metadata) == (5, "where I was")
        for handler in range(2):
            broker.replace(handler)


def test_c06_invalid_bytes_of_a_group_name_are_replaced_as_in_kafka(broker: SteppedBroker) -> None:
    """As of clients with names in Latin-1: they get their offsets, and others see the name with U+FFFD."""
    sent_name, name = b"caf\xe9", "caf\ufffd"
    parts = [{"partition_index": 0, "committed_offset": 5}]
    commit = {"group_id": "xxxx", "member_id": "", "topics": [{"name": "topic", "partitions": parts}]}
    client = broker.client()
    for key, values in ((OFFSET_COMMIT, commit), (OFFSET_FETCH, {"group_id": "xxxx", "topics": None})):
        frame = codec.encode_request(key, 7, len(client.sent), "test", values)[4:].replace(b"xxxx", sent_name)
        sent = client.send_frame(key, 7, frame)
        broker.settle()
    assert answer_of(sent).topics[0].partitions[0].committed_offset == 5
    answer = call(broker, client, OFFSET_FETCH, 7, {"group_id": name, "topics": None})
    assert answer.topics[0].partitions[0].committed_offset == 5


@pytest.mark.parametrize("version", range(2, 11))
def test_commit_in_every_version(broker: SteppedBroker, version: int) -> None:
    known = {"name": "topic", "topic_id": broker.topic("topic").topic_id}
    unknown = {"name": "nowhere", "topic_id": b"x" * 16}
    parts = [{"partition_index": index, "committed_offset": 7, "committed_metadata": "m"} for index in (0, 9)]
    large = [{"partition_index": 1, "committed_offset": 7, "committed_metadata": "m" * 4097}]
    values = {
        "group_id": "group",
        "generation_id_or_member_epoch": -1,
        "member_id": "",
        "topics": [
            {**known, "partitions": parts},
            {**unknown, "partitions": parts[:1]},
            {**known, "partitions": large},
        ],
    }
    answer = call(broker, broker.client(), OFFSET_COMMIT, version, values)
    errors = [[int(part.error_code) for part in topic.partitions] for topic in answer.topics]
    assert errors == [[0, 3], [100 if version >= 10 else 3], [12]]
    assert committed(broker, "group", PLACES[:2]) == [(7, 0), (-1, 0)]


@pytest.mark.parametrize("version", [2, 9, 10])
def test_unknown_topics_and_partitions_are_errors_before_the_groups_validation(
    broker: SteppedBroker, version: int
) -> None:
    """As in Kafka: 3 or 100 before the group's validation; topics without partitions are omitted from the response."""
    known = {"name": "topic", "topic_id": broker.topic("topic").topic_id}
    unknown = {"name": "nowhere", "topic_id": b"x" * 16}
    parts = [{"partition_index": index, "committed_offset": 7, "committed_metadata": "m"} for index in (0, 9)]
    topics = [{**known, "partitions": parts}, {**unknown, "partitions": parts[:1]}, {**known, "partitions": []}]
    values = {"group_id": "group", "generation_id_or_member_epoch": 5, "member_id": "who", "topics": topics}
    answer = call(broker, broker.client(), OFFSET_COMMIT, version, values)
    refusal = 69 if version >= 9 else 22
    unknown_topic = 100 if version >= 10 else 3
    errors = [[int(part.error_code) for part in topic.partitions] for topic in answer.topics]
    assert errors == [[refusal, 3], [unknown_topic]]


@pytest.mark.parametrize("version", range(1, 11))
def test_fetch_in_every_version(broker: SteppedBroker, version: int) -> None:
    info = broker.topic("topic")
    simple(broker, "group", {PLACES[1]: 6})
    topics = [{"name": "topic", "topic_id": info.topic_id, "partition_indexes": [0, 1]}]
    all_of = {} if version < 2 else {"topics": None}
    for asked in ({"topics": topics}, all_of):
        if not asked:
            continue
        values = {"group_id": "group", **asked}
        if version >= 8:
            values = {"groups": [values, {"group_id": "nobody", "topics": topics}]}
        answer = call(broker, broker.client(), OFFSET_FETCH, version, values)
        found = answer.groups[0].topics if version >= 8 else answer.topics
        offsets = {part.partition_index: part.committed_offset for part in found[0].partitions}
        assert offsets == ({0: -1, 1: 6} if asked["topics"] else {1: 6})
        if version >= 8:
            assert [part.committed_offset for part in answer.groups[1].topics[0].partitions] == [-1, -1]


def test_fetch_of_a_topic_id_that_there_is_not(broker: SteppedBroker) -> None:
    groups = [{"group_id": "group", "topics": [{"topic_id": b"x" * 16, "partition_indexes": [0]}]}]
    answer = call(broker, broker.client(), OFFSET_FETCH, 10, {"groups": groups})
    assert int(answer.groups[0].topics[0].partitions[0].error_code) == 100


def test_one_fetch_of_groups_of_several_handlers(broker: SteppedBroker) -> None:
    """E22, and from version 8 on: each group is served by its own coordinator, in the order of the request."""
    groups = [*groups_of(broker, 0, 2), *groups_of(broker, 1, 2)]
    for number, group in enumerate(groups):
        simple(broker, group, {PLACES[0]: number + 10})
    order = [groups[2], groups[0], groups[3], groups[1]]
    values = {"groups": [{"group_id": group, "topics": None} for group in order]}
    answer = call(broker, broker.client(), OFFSET_FETCH, 9, values)
    assert [each.group_id for each in answer.groups] == order
    assert [each.topics[0].partitions[0].committed_offset for each in answer.groups] == [12, 10, 13, 11]


def test_offsets_are_deleted_unless_a_member_reads_their_topic(broker: SteppedBroker) -> None:
    """I47 (KIP-496)."""
    broker.create("other", 1)
    member = Member(broker, "group")
    member.join()
    member.commit({PLACES[0]: 4, ("other", 0): 5})
    values = {
        "group_id": "group",
        "topics": [
            {"name": name, "partitions": [{"partition_index": 0}, {"partition_index": 99}]}
            for name in ("topic", "other", "nowhere")
        ],
    }
    answer = call(broker, broker.client(), OFFSET_DELETE, 0, values)
    assert [[int(part.error_code) for part in topic.partitions] for topic in answer.topics] == [[86, 3], [0, 3], [3, 3]]
    assert committed(broker, "group", [PLACES[0], ("other", 0)]) == [(4, 0), (-1, 0)]
    for group, code in (("", 24), ("nobody", 69)):
        assert int(call(broker, broker.client(), OFFSET_DELETE, 0, values | {"group_id": group}).error_code) == code


@pytest.mark.parametrize("broker", [EXPIRE_SOON], indirect=True)
def test_offsets_expire_and_the_empty_group_with_the_last(broker: SteppedBroker) -> None:
    member = Member(broker, "group")
    member.join()
    member.commit({PLACES[0]: 5})
    member.leave_request()
    broker.settle()
    for seconds, expected in ((58, [(5, 0)]), (4, [(-1, 0)])):
        broker.clock.advance_ns(seconds * 10**9)
        broker.settle()
        assert committed(broker, "group", PLACES[:1]) == expected
    assert listed(broker) == {}


# ---- admin ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(7))
def test_describe_in_every_version(broker: SteppedBroker, version: int) -> None:
    """I15: groups of both handlers in one request; a missing one is Dead."""
    names = [groups_of(broker, handler, 1)[0] for handler in (1, 0)]
    members = [Member(broker, name) for name in names]
    for member in members:
        member.join()
    values = {"groups": [*names, "nobody"], "include_authorized_operations": True}
    answer = call(broker, broker.client(), DESCRIBE_GROUPS, version, values)
    assert [each.group_id for each in answer.groups] == [*names, "nobody"]
    assert [each.group_state for each in answer.groups] == ["Stable", "Stable", "Dead"]
    assert [int(each.error_code) for each in answer.groups] == [0, 0, 69 if version >= 6 else 0]
    for member, group in zip(members, answer.groups, strict=False):
        assert (group.protocol_type, group.protocol_data) == ("consumer", "range")
        [described] = group.members
        assert (described.member_id, described.member_assignment) == (member.member_id, b"mine")


@pytest.mark.parametrize("version", range(6))
def test_list_in_every_version(broker: SteppedBroker, version: int) -> None:
    """I16: groups of all handlers."""
    names = [groups_of(broker, handler, 1)[0] for handler in (0, 1)]
    Member(broker, names[0]).join()
    simple(broker, names[1], {PLACES[0]: 1})
    found = listed(broker, version)
    assert set(found) == set(names)
    assert [found[name].protocol_type for name in names] == ["consumer", ""]
    if version >= 4:
        assert [found[name].group_state for name in names] == ["Stable", "Empty"]
        assert set(listed(broker, version, states_filter=["sTaBlE", "Dead"])) == {names[0]}
    if version >= 5:
        assert {each.group_type for each in found.values()} == {"classic"}
        assert set(listed(broker, version, types_filter=["Classic"])) == set(names)
        assert listed(broker, version, types_filter=["consumer"]) == {}


def test_groups_without_members_are_deleted_with_their_offsets(broker: SteppedBroker) -> None:
    """I42, V08: 68 while there are members, 69 for a missing group; groups of several handlers in one request."""
    full, empty = groups_of(broker, 0, 1)[0], groups_of(broker, 1, 1)[0]
    Member(broker, full).join()
    simple(broker, empty, {PLACES[0]: 1})
    assert delete_groups(broker, full, empty, "nobody", empty) == {full: 68, empty: 0, "nobody": 69}
    for handler in range(2):
        broker.replace(handler)
    assert set(listed(broker)) == {full}
    assert committed(broker, empty, PLACES[:1]) == [(-1, 0)]


# ---- transactions ---------------------------------------------------------------------------------------------------


def txn_commit(
    broker: SteppedBroker, producer: TransactionalProducer, group: str, offset: int, version: int = 3, **who: Any
) -> list[int]:
    values = {
        "transactional_id": producer.transactional_id,
        "group_id": group,
        "producer_id": producer.producer_id,
        "producer_epoch": producer.epoch,
        "topics": [
            {"name": "topic", "partitions": [{"partition_index": 0, "committed_offset": offset}]},
        ],
        **who,
    }
    answer = call(broker, producer.client, TXN_OFFSET_COMMIT, version, values)
    return [int(part.error_code) for topic in answer.topics for part in topic.partitions]


@pytest.fixture
def producer(broker: SteppedBroker) -> TransactionalProducer:
    return started(broker, newest=False)


def add_offsets(broker: SteppedBroker, producer: TransactionalProducer, group: str) -> int:
    values = {
        "transactional_id": producer.transactional_id,
        "producer_id": producer.producer_id,
        "producer_epoch": producer.epoch,
        "group_id": group,
    }
    return int(call(broker, producer.client, ADD_OFFSETS, 3, values).error_code)


def end(broker: SteppedBroker, producer: TransactionalProducer, *, commit: bool) -> None:
    assert producer.take(settled(broker, producer.end(commit=commit))) == 0


@pytest.mark.parametrize("replaced", [False, True], ids=["", "with new handlers"])
@pytest.mark.parametrize("commit", [True, False])
def test_offsets_of_a_transaction_count_when_it_is_committed(
    broker: SteppedBroker, producer: TransactionalProducer, commit: bool, replaced: bool
) -> None:
    """I28, KIP-447: pending until the end, and UNSTABLE_OFFSET_COMMIT for requests that require stable offsets."""

    def perhaps_replace() -> None:
        if replaced:
            for handler in range(2):
                broker.replace(handler)

    simple(broker, "group", {PLACES[0]: 1})
    assert add_offsets(broker, producer, "group") == 0
    assert txn_commit(broker, producer, "group", 5) == [0]
    perhaps_replace()
    assert committed(broker, "group", PLACES[:1]) == [(1, 0)]
    assert committed(broker, "group", PLACES[:1], require_stable=True) == [(-1, 88)]
    end(broker, producer, commit=commit)
    perhaps_replace()
    assert committed(broker, "group", PLACES[:1], require_stable=True) == [(5 if commit else 1, 0)]


@pytest.mark.parametrize("version", [5, 6])
def test_offsets_without_a_transaction_are_rejected(
    broker: SteppedBroker, producer: TransactionalProducer, version: int
) -> None:
    """KIP-890: not without AddOffsetsToTxn; from version 5 on the first commit adds the group to it. V07: also in 6."""
    [code] = txn_commit(broker, producer, "group", 5)
    assert code not in (0, -1)
    topic_id = broker.topic("topic").topic_id
    partitions = [{"partition_index": 0, "committed_offset": 5}]
    topics = [{"name": "topic", "topic_id": topic_id, "partitions": partitions}]
    assert txn_commit(broker, producer, "group", 5, version, topics=topics) == [0]
    end(broker, producer, commit=True)
    assert committed(broker, "group", PLACES[:1]) == [(5, 0)]


def test_v05_a_transaction_of_a_consumer_group_gets_the_exact_error(
    broker: SteppedBroker, producer: TransactionalProducer
) -> None:
    """KIP-1319: from version 6 on topics have ids, and errors are no longer ILLEGAL_GENERATION alone."""
    topic_id = broker.topic("topic").topic_id
    joined = call(broker, broker.client(), 68, 1, joining("group", "m"))
    who = {"member_id": "m", "generation_id_or_member_epoch": joined.member_epoch}

    def commit(version: int, group: str = "group", ids: Sequence[bytes] = (topic_id,), **fields: Any) -> list[int]:
        parts = [{"partition_index": index, "committed_offset": 5} for index in (0, 99)]
        topics = [{"name": "topic", "topic_id": each, "partitions": parts} for each in ids]
        return txn_commit(broker, producer, group, 5, version, topics=topics, **who | fields)

    older, newer = ({"generation_id_or_member_epoch": joined.member_epoch + step} for step in (-1, 1))
    for group in ("group", "nobody"):
        add_offsets(broker, producer, group)
    assert [commit(5, **older), commit(6, **older)] == [[22, 3], [113, 3]]
    assert [commit(5, **newer), commit(6, **newer)] == [[22, 3], [113, 3]]
    assert [commit(5, "nobody"), commit(6, "nobody")] == [[22, 3], [69, 3]]
    assert commit(6, ids=(b"?" * 16, topic_id)) == [100, 100, 0, 3], "V04"
    end(broker, producer, commit=True)
    assert committed(broker, "group", PLACES[:1]) == [(5, 0)]


def test_a_transaction_commits_nothing_for_partitions_that_are_not_there(
    broker: SteppedBroker, producer: TransactionalProducer
) -> None:
    """They are rejected before any other error, and alone they do not add the group to the transaction."""

    def topics(*indexes: int) -> list[dict[str, Any]]:
        partitions = [{"partition_index": index, "committed_offset": 1} for index in indexes]
        return [{"name": "topic", "partitions": partitions}, {"name": "other", "partitions": []}]

    assert txn_commit(broker, producer, "group", 5, version=5, topics=topics(99)) == [3]
    assert txn_commit(broker, producer, "group", 5, version=3, topics=topics(0, 99)) == [48, 3]
    assert txn_commit(broker, producer, "", 5, version=3, topics=topics(0, 99)) == [24, 3]
    assert txn_commit(broker, producer, "group", 5, version=5, topics=topics(0, 99)) == [0, 3]
    end(broker, producer, commit=True)
    assert committed(broker, "group", PLACES[:1]) == [(1, 0)]


def test_a_fenced_producer_commits_nothing(broker: SteppedBroker, producer: TransactionalProducer) -> None:
    add_offsets(broker, producer, "group")
    assert txn_commit(broker, producer, "group", 5) == [0]
    zombie_epoch = producer.epoch
    assert producer.take(settled(broker, producer.init())) == 0
    assert producer.epoch > zombie_epoch
    producer.epoch = zombie_epoch
    [code] = txn_commit(broker, producer, "group", 6)
    assert code in (47, 90)
    assert committed(broker, "group", PLACES[:1], require_stable=True) == [(-1, 0)]


# ---- deaths ---------------------------------------------------------------------------------------------------------


def test_a_confirmed_commit_survives_the_death_of_its_handler_at_any_line(
    broker: SteppedBroker, sampling: Sampling
) -> None:
    """A response implies a commit, and a commit implies a response: the processor resends the request."""
    [group] = groups_of(broker, 0, 1)
    member = Member(broker, group)
    member.join()
    for line in sampling.walk(7):
        sent = member.commit_request({PLACES[0]: line, PLACES[1]: line + 1})
        died = broker.replaced_at_line(0, line)
        broker.settle()
        errors = [int(part.error_code) for topic in answer_of(sent).topics for part in topic.partitions]
        assert errors == [0, 0], line
        assert committed(broker, group, PLACES[:2]) == [(line, 0), (line + 1, 0)]
        assert member.heartbeat() == 0
        broker.forget_clients()
        member.reconnect()
        if not died:
            break


def test_a_member_gets_its_assignment_for_a_death_of_its_coordinator_at_any_line(
    broker: SteppedBroker, sampling: Sampling
) -> None:
    """Users row 7: in the worst case it must rejoin, which every client does automatically."""
    for line in sampling.walk(23):
        [group] = groups_of(broker, 0, 1, f"line-{line}")
        member = Member(broker, group)
        member.join()
        sent = member.join_request()
        has_died = broker.replaced_at_line(0, line)
        broker.settle()
        code = member.take(sent)
        assert code in (0, 25), line
        if code:
            member.member_id = ""
            member.join()
        synced = member.sync_request()
        if has_died and broker.turn_until_line(0, line):
            broker.replace(0)
        broker.settle()
        code = int(answer_of(synced).error_code)
        assert code in (0, 22, 25, 27), line
        if code:
            again = member.join_request()
            broker.settle()
            assert member.take(again) == 0
            synced = member.sync_request()
            broker.settle()
        assert answer_of(synced).assignment == b"mine"
        assert member.heartbeat() == 0
        broker.forget_clients()
        if not has_died:
            break
