"""Repeated commits: the same results as without the fast path, also when handlers die or the disk is full."""

from __future__ import annotations

import errno
import random
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from rotunda.broker.coordinator.coordinator_log import MANY_CONNECTIONS
from rotunda.broker.coordinator.group import Committer
from rotunda.broker.coordinator.offsets.commits import find_topic
from rotunda.broker.handler import group_fast_path
from rotunda.broker.handler.request_handler import ALL_FAST_PATHS
from rotunda.broker.log.segments.log_segment import LogSegment
from rotunda.broker.metadata.metadata_cache import MetadataCache, TopicInfo
from rotunda.broker.protocol import codec
from tests.support.groups.requests import (
    DESCRIBE_GROUPS,
    OFFSET_COMMIT,
    OFFSET_DELETE,
    Member,
    broker_with_groups,
    call,
    committed,
    groups_of,
)
from tests.support.sampling import Sampling
from tests.support.stepped_broker import NO_FAST_PATHS, Sent, SteppedBroker
from tests.support.transactional import answer_of, send

CONSUMER_GROUP_HEARTBEAT = 68
PARTITIONS = 6
TOPICS = {"topic": PARTITIONS, "other": PARTITIONS}
LINGER_MS = 1000
#: An assignment with valid contents, so that the group can convert to the other protocol.
NO_PARTITIONS = b"\x00\x00" + bytes(4) + b"\xff\xff\xff\xff"
#: Commits may wait for longer than `settle` does.
slowly = pytest.mark.parametrize("broker", [{"group.coordinator.append.linger.ms": str(LINGER_MS)}], indirect=True)


@pytest.fixture
def member(broker: SteppedBroker) -> Member:
    joined = Member(broker, groups_of(broker, 0, 1)[0])
    joined.join()
    return joined


def _members(broker: SteppedBroker, group_id: str) -> list[str]:
    described = call(broker, broker.client(), DESCRIBE_GROUPS, 5, {"groups": [group_id]})
    return [member.member_id for group in described.groups for member in group.members]


def topic_ids(broker: SteppedBroker) -> dict[str, bytes]:
    return {topic.name: topic.topic_id for topic in broker.parts(0).metadata.topics()}


def commit_of(
    broker: SteppedBroker, member: Member, version: int, offsets: dict[tuple[str, int], int]
) -> dict[str, Any]:
    topics: dict[str, list[dict[str, Any]]] = {}
    for (topic, partition), offset in offsets.items():
        part = {"partition_index": partition, "committed_offset": offset, "committed_metadata": f"m{partition}"}
        topics.setdefault(topic, []).append(part)
    named = [
        {"topic_id": topic_ids(broker)[name], "partitions": parts}
        if version >= 10
        else {"name": name, "partitions": parts}
        for name, parts in topics.items()
    ]
    return {
        "group_id": member.group_id,
        "generation_id_or_member_epoch": member.generation,
        "member_id": member.member_id,
        "topics": named,
    }


def error_codes(sent: Sent) -> list[int]:
    return [int(part.error_code) for topic in answer_of(sent).topics for part in topic.partitions]


def parsed() -> Any:
    return mock.patch.object(codec, "decode_and_locate", wraps=codec.decode_and_locate)


@pytest.mark.parametrize("_course", range(4))
def test_fast_and_general_path_respond_and_store_alike(tmp_path: Path, _course: int) -> None:
    """The same random sequence with and without the fast path: the same responses and the same offsets."""
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    outcomes = []
    for number, fast_paths in enumerate((ALL_FAST_PATHS, NO_FAST_PATHS)):
        with broker_with_groups(tmp_path / f"{number}", TOPICS, fast_paths=fast_paths) as broker:
            outcomes.append(Course(broker, random.Random(seed)).run())
    assert outcomes[0] == outcomes[1]


class Course:
    """Random events of one group, and the observed results."""

    def __init__(self, broker: SteppedBroker, rng: random.Random) -> None:
        self.broker = broker
        self.rng = rng
        self.seen: list[Any] = []
        self.member = Member(broker, groups_of(broker, 0, 1)[0])
        self.has_changed_over = False
        self.places = [(topic, partition) for topic in ("topic", "other") for partition in range(PARTITIONS + 1)]
        shapes = [rng.sample(self.places, rng.randrange(1, 4)) for _ in range(3)]
        # Most are of one kind, with all its fields cacheable.
        self.shapes = shapes + 6 * [[("topic", 1), ("other", 2)]]

    def run(self) -> list[Any]:
        steps = {
            self.commit: 82,
            self.rejoin: 3,
            self.leave: 2,
            self.create_a_topic: 2,
            self.replace_the_handler: 3,
            self.delete_an_offset: 3,
            self.change_over: 5,
        }
        self.member.join(NO_PARTITIONS)
        for number in range(80):
            self.rng.choices(list(steps), list(steps.values()))[0](number)
            self.seen.append(committed(self.broker, self.member.group_id, self.places[:PARTITIONS]))
        return self.seen

    def commit(self, number: int) -> None:
        rng, member = self.rng, self.member
        version = 9 if rng.random() < 0.8 else rng.randrange(5, 10)
        values = commit_of(self.broker, member, version, dict.fromkeys(rng.choice(self.shapes), number))
        if rng.random() < 0.1:
            values["generation_id_or_member_epoch"] += rng.choice([-1, 1, 2])
        if rng.random() < 0.1:
            values["topics"][0]["partitions"][0]["committed_metadata"] = "m" * rng.randrange(20)
        sent = send(member.client, OFFSET_COMMIT, version, values)
        self.broker.settle()
        self.seen.append(error_codes(sent))

    def rejoin(self, _: int) -> None:
        if not self.has_changed_over and self.member.member_id in _members(self.broker, self.member.group_id):
            self.member.join(NO_PARTITIONS)

    def leave(self, _: int) -> None:
        left = self.member.leave_request()
        self.broker.settle()
        self.seen.append(int(answer_of(left).error_code))
        if self.rng.random() < 0.9 and not self.has_changed_over:
            self.member.member_id = ""
            self.member.join(NO_PARTITIONS)

    def create_a_topic(self, number: int) -> None:
        self.broker.create(f"more-{number}")

    def replace_the_handler(self, _: int) -> None:
        self.broker.replace(0)
        self.seen.append(self.member.heartbeat())

    def delete_an_offset(self, _: int) -> None:
        part = {"name": "other", "partitions": [{"partition_index": self.rng.randrange(PARTITIONS)}]}
        self._call(OFFSET_DELETE, 0, {"topics": [part]})

    def change_over(self, _: int) -> None:
        """Join a member of the other protocol, which converts the group, or remove it, which converts it back."""
        values: dict[str, Any] = {"member_id": "newer", "member_epoch": -1 if self.has_changed_over else 0}
        if not self.has_changed_over:
            values |= {"rebalance_timeout_ms": 60_000, "subscribed_topic_names": ["topic"], "topic_partitions": []}
        error = self._call(CONSUMER_GROUP_HEARTBEAT, 1, values)
        self.has_changed_over = not self.has_changed_over and not error

    def _call(self, api_key: int, version: int, values: dict[str, Any]) -> int:
        values = {"group_id": self.member.group_id, **values}
        error = int(call(self.broker, self.broker.client(), api_key, version, values).error_code)
        self.seen.append(error)
        return error


def test_a_topic_that_is_deleted_is_unknown_to_the_next_commit(broker: SteppedBroker, member: Member) -> None:
    for offset in (1, 2):
        assert member.commit({("other", 0): offset}) == [0]
    broker.delete("other")
    broker.settle()
    assert member.commit({("other", 0): 3}) == [3]


def test_no_offset_is_stored_for_another_topic_while_one_is_being_deleted(
    broker: SteppedBroker, member: Member
) -> None:
    """A handler applies a large change in several turns: a topic is missing before the version is the new one."""
    places = [("other", 0), ("topic", 0)]
    assert member.commit(dict.fromkeys(places, 1)) == [0, 0]

    def find_all_but_one(metadata: MetadataCache, committer: Committer, asked: Any) -> TopicInfo | None:
        return None if asked.name == "other" else find_topic(metadata, committer, asked)

    with mock.patch.object(group_fast_path, "find_topic", find_all_but_one):
        assert member.commit({place: 2 + number for number, place in enumerate(places)}) == [0, 0]
    assert committed(broker, member.group_id, places) == [(2, 0), (3, 0)]


def test_commits_keep_the_member_in_its_group(broker: SteppedBroker, member: Member) -> None:
    """As in Kafka, a commit counts as a heartbeat."""
    for offset in range(5):
        broker.clock.advance_ms(20_000)
        assert member.commit({("topic", 0): offset}) == [0]
    assert member.heartbeat() == 0


def busy_members(broker: SteppedBroker) -> list[Member]:
    """Return members with enough commits to make those of the next window wait."""
    members = [Member(broker, group_id) for group_id in groups_of(broker, 0, MANY_CONNECTIONS)]
    for each in members:
        each.join()
    for offset in (1, 2):
        broker.clock.advance_ms(LINGER_MS)
        sent = [each.commit_request({("topic", 0): offset}) for each in members]
        broker.settle()
        assert all(error_codes(each) == [0] for each in sent)
    return members


@slowly
def test_many_commits_wait_for_each_other_and_a_dead_handler_has_sent_no_response(broker: SteppedBroker) -> None:
    """Waiting commits have no response, so they are resent to the replacement, and are stored once."""
    members = busy_members(broker)
    sent = [each.commit_request({("topic", 0): 3}) for each in members]
    broker.settle()
    assert not any(each.answers for each in sent)
    broker.kill(0)
    broker.replace(0)
    broker.settle()
    broker.clock.advance_ms(LINGER_MS)
    broker.settle()
    assert all(error_codes(each) == [0] for each in sent)
    for each in members:
        assert committed(broker, each.group_id, [("topic", 0)]) == [(3, 0)]


@slowly
def test_an_urgent_commit_flushes_the_waiting_ones(broker: SteppedBroker) -> None:
    members = busy_members(broker)
    waiting = members[0].commit_request({("topic", 0): 3})
    broker.settle()
    assert not waiting.answers
    members[0].leave_request()
    broker.settle()
    assert error_codes(waiting) == [0]


def test_a_frame_that_ends_anywhere_is_rejected_and_not_misread(broker: SteppedBroker, member: Member) -> None:
    member.commit({("topic", 0): 1})
    for version in (7, 9):
        values = commit_of(broker, member, version, {("topic", 0): 5})
        frame = codec.encode_request(OFFSET_COMMIT, version, 0, "test", values)[4:]
        for end in range(16, len(frame)):
            sent = member.client.send_frame(OFFSET_COMMIT, version, frame[:end])
            broker.settle()
            assert sent.answers
    assert committed(broker, member.group_id, [("topic", 0)]) == [(1, 0)]


def test_a_handler_dies_at_any_line_of_a_repeated_commit(broker: SteppedBroker, sampling: Sampling) -> None:
    """Acknowledged commits are stored, every request gets a response, and none gets two."""
    members = [Member(broker, group_id) for group_id in groups_of(broker, 0, 2)]
    for each in members:
        each.join()
    places = [("topic", 0), ("other", 1)]
    offset = 0
    for line in sampling.walk(7):
        broker.forget_clients()
        for each in members:
            each.reconnect()
        for _ in range(2):
            offset += 1
            assert [each.commit(dict.fromkeys(places, offset)) for each in members] == [[0, 0]] * 2
        sent = []
        for _ in range(2):
            offset += 1
            sent += [each.commit_request(dict.fromkeys(places, offset)) for each in members]
        with parsed() as parse:
            died = broker.turn_until_line(0, line)
        assert not parse.called
        if died:
            broker.replace(0)
        broker.settle()
        assert [error_codes(each) for each in sent] == [[0, 0]] * 4
        assert [len(each.answers) for each in sent] == [1] * 4
        for each in members:
            assert committed(broker, each.group_id, places) == [(offset, 0)] * 2
        if not died:
            break
    assert line > 400


def test_a_repeated_commit_that_cannot_be_written_is_rejected_and_forgotten(
    broker: SteppedBroker, member: Member
) -> None:
    other = Member(broker, groups_of(broker, 0, 2)[1])
    other.join()
    members = (member, other)
    for offset in (1, 2):
        assert [each.commit({("topic", 0): offset}) for each in members] == [[0], [0]]
    with mock.patch.object(LogSegment, "write", side_effect=OSError(errno.ENOSPC, "full")):
        sent = [each.commit_request({("topic", 0): 3}) for each in members for _ in range(2)]
        broker.settle()
        assert [error_codes(each) for each in sent] == [[15]] * 4
        assert [each.commit({("topic", 0): 4}) for each in members] == [[15], [15]]
    for each in members:
        assert committed(broker, each.group_id, [("topic", 0)]) == [(2, 0)]
    # The search for disk space is repeated a second later.
    broker.clock.advance_ms(1_100)
    broker.settle()
    for offset in (5, 6):
        assert [each.commit({("topic", 0): offset}) for each in members] == [[0], [0]]
    for each in members:
        assert committed(broker, each.group_id, [("topic", 0)]) == [(6, 0)]
