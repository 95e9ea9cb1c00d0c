"""The records of the internal topics: the bytes that Kafka writes, every readable version, and unknown ones."""

from __future__ import annotations

import random
import struct

import pytest

from rotunda.broker.coordinator.classic.group import ClassicGroup, ClassicMember
from rotunda.broker.coordinator.consumer.group import ConsumerGroup
from rotunda.broker.coordinator.consumer.member import AssignedSince, ClassicMetadata, ConsumerGroupMember, MemberState
from rotunda.broker.coordinator.consumer.records import (
    CURRENT_ASSIGNMENT,
    ResolvedRegex,
    current_member_record,
    group_tombstones,
    member_record,
    regex_record,
    target_member_record,
    target_record,
)
from rotunda.broker.coordinator.coordinator_log import CoordinatorLog
from rotunda.broker.coordinator.group_coordinator import RECORDS
from rotunda.broker.coordinator.group_shard import GroupShard
from rotunda.broker.coordinator.offsets.offset_records import offset_key, offset_value
from rotunda.broker.coordinator.offsets.offsets import CommittedOffset
from rotunda.broker.coordinator.records import Record
from rotunda.broker.coordinator.transaction.records import TRANSACTION_LOG, encode_key, encode_value, metadata_of
from rotunda.broker.coordinator.transaction.shard import TransactionShard
from rotunda.broker.coordinator.transaction.transaction import TransactionMetadata, TransactionState
from rotunda.broker.errors import InvalidReceive
from rotunda.broker.steps import Steps, finished

TOPIC_ID = bytes(range(16))
OFFSET_KEY = b"\x00\x01\x00\x01g\x00\x05topic\x00\x00\x00\x03"
MEMBER = ConsumerGroupMember(
    "m",
    instance_id="i",
    rack_id=None,
    client_id="c",
    client_host="/h",
    topic_names=frozenset({"b", "a"}),
    topic_regex="x.*",
    rebalance_timeout_ms=300_000,
    server_assignor="range",
    epoch=7,
    previous_epoch=6,
    state=MemberState.UNREVOKED_PARTITIONS,
    assigned={TOPIC_ID: frozenset({1, 0})},
    pending_revocation={TOPIC_ID: frozenset({2})},
    assigned_since=(AssignedSince(5, {TOPIC_ID: frozenset({1, 2})}), AssignedSince(7, {TOPIC_ID: frozenset({0})})),
)
TRANSACTION = TransactionMetadata(
    producer_id=5,
    epoch=3,
    timeout_ms=1000,
    updated_ms=77,
    state=TransactionState.ONGOING,
    partitions=frozenset({("a", 1), ("b", 2), ("a", 0)}),
    start_ms=33,
)


def unused(*_: object) -> None:
    raise AssertionError


def nothing(_: object) -> Steps[None]:
    yield


def shard_of(*records: Record) -> GroupShard:
    """Return a partition of `__consumer_offsets` with these records."""
    shard = GroupShard(CoordinatorLog("__consumer_offsets", 0, unused, lambda: 0), RECORDS, nothing)
    for key, value in records:
        steps = shard.replay(key, value, -1)
        if steps is not None:
            finished(steps)
    return shard


def text(value: str | None) -> bytes:
    return b"\xff\xff" if value is None else struct.pack(">h", len(value)) + value.encode()


def compact(value: str | None) -> bytes:
    return b"\x00" if value is None else bytes((len(value) + 1,)) + value.encode()


# ---- offsets ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("committed", "expected"),
    [
        (
            CommittedOffset(5, 2, "note", 99, topic_id=TOPIC_ID),
            struct.pack(">hqi", 4, 5, 2) + compact("note") + struct.pack(">q", 99) + b"\x01\x00\x10" + TOPIC_ID,
        ),
        (CommittedOffset(5, -1, "", 99), struct.pack(">hqi", 3, 5, -1) + text("") + struct.pack(">q", 99)),
        (
            CommittedOffset(5, -1, "é", 99, 100),
            struct.pack(">hqh", 1, 5, 2) + "é".encode() + struct.pack(">qq", 99, 100),
        ),
    ],
    ids=["with the topic's id", "without", "that expires"],
)
def test_offsets_are_written_as_kafka_writes_them(committed: CommittedOffset, expected: bytes) -> None:
    assert offset_key("g", "topic", 3) == OFFSET_KEY
    assert offset_value(committed) == expected
    assert shard_of((OFFSET_KEY, expected)).offsets.of_group("g") == {"topic": {3: committed}}


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (struct.pack(">hq", 0, 5) + text("m") + struct.pack(">q", 9), CommittedOffset(5, -1, "m", 9)),
        (struct.pack(">hq", 1, 5) + text("m") + struct.pack(">qq", 9, 10), CommittedOffset(5, -1, "m", 9, 10)),
        (struct.pack(">hq", 2, 5) + text("m") + struct.pack(">q", 9), CommittedOffset(5, -1, "m", 9)),
        (struct.pack(">hqi", 3, 5, 4) + text("m") + struct.pack(">q", 9), CommittedOffset(5, 4, "m", 9)),
        (struct.pack(">hqi", 4, 5, 4) + compact("m") + struct.pack(">q", 9) + b"\0", CommittedOffset(5, 4, "m", 9)),
    ],
)
def test_offsets_are_read_in_every_version(value: bytes, expected: CommittedOffset) -> None:
    assert shard_of((OFFSET_KEY, value)).offsets.of_group("g") == {"topic": {3: expected}}
    assert not shard_of((OFFSET_KEY, value), (OFFSET_KEY, None)).offsets.of_group("g")


def test_offsets_with_keys_of_the_first_version_are_read() -> None:
    value = struct.pack(">hq", 0, 5) + text("m") + struct.pack(">q", 9)
    shard = shard_of((b"\x00\x00" + OFFSET_KEY[2:], value))
    assert shard.offsets.of_group("g") == {"topic": {3: CommittedOffset(5, -1, "m", 9)}}


# ---- classic groups --------------------------------------------------------------------------------------------------


def classic_group(*members: ClassicMember) -> ClassicGroup:
    group = ClassicGroup("gruppe")
    group.protocol_name, group.leader, group.state_ms = "range", "m-1", 1234
    finished(group.restore("consumer", 7, members))
    return group


def classic_member(number: int = 1, instance_id: str | None = "static", timeout_ms: int = 60_000) -> ClassicMember:
    protocols = (("range", b"\x01\x02"),)
    return ClassicMember(f"m-{number}", instance_id, "client", "/host", timeout_ms, 10_000, protocols, b"\x03")


def group_value(version: int) -> bytes:
    """Return a group of one member in a version, without the fields that it lacks."""
    string = compact if version >= 4 else text
    size = (lambda n: bytes((n + 1,))) if version >= 4 else (lambda n: struct.pack(">i", n))
    tags = b"\x00" if version >= 4 else b""
    value = struct.pack(">h", version) + string("consumer") + struct.pack(">i", 7) + string("range") + string("m-1")
    value += struct.pack(">q", 1234) if version >= 2 else b""
    value += size(1) + string("m-1") + (string("static") if version >= 3 else b"") + string("client") + string("/host")
    value += struct.pack(">i", 60_000) if version >= 1 else b""
    return value + struct.pack(">i", 10_000) + size(2) + b"\x01\x02" + size(1) + b"\x03" + tags + tags


def test_classic_groups_are_written_as_kafka_writes_them() -> None:
    group = classic_group(classic_member())
    assert group.record({"m-1": b"\x03"}) == (b"\x00\x02\x00\x06gruppe", group_value(3))
    assert group.tombstones() == [(b"\x00\x02\x00\x06gruppe", None)]
    assert ClassicGroup("g").record({})[1] == b"\x00\x03\x00\x00" + bytes(4) + b"\xff" * 12 + bytes(4)
    # Version 4 has tags, and Kafka skips this one.
    assert group.departure_record()[1] == group_value(4)[:-1] + b"\x01\x90\x4e\x01\x01"


@pytest.mark.parametrize("version", range(5))
def test_classic_groups_are_read_in_every_version(version: int) -> None:
    instance_id = "static" if version >= 3 else None
    expected = classic_group(classic_member(1, instance_id, 60_000 if version >= 1 else 10_000))
    expected.state_ms = 1234 if version >= 2 else -1
    key, _ = expected.tombstones()[0]
    read = shard_of((key, group_value(version))).groups["gruppe"]
    assert isinstance(read, ClassicGroup)
    assert (read.record({"m-1": b"\x03"}), read.members["m-1"].assignment) == (
        expected.record({"m-1": b"\x03"}),
        b"\x03",
    )
    assert not read.must_rebalance
    assert not shard_of((key, group_value(version)), (key, None)).groups


def test_a_group_that_a_member_has_left_is_read_as_one_that_has_to_rebalance() -> None:
    read = shard_of(classic_group(classic_member()).departure_record()).groups["gruppe"]
    assert isinstance(read, ClassicGroup)
    assert read.must_rebalance


# ---- consumer groups -------------------------------------------------------------------------------------------------


def test_consumer_groups_are_written_as_kafka_writes_them() -> None:
    group = ConsumerGroup("g")
    group.epoch = 5
    assert group.epoch_record() == (b"\0\x03\0\x01g", b"\0\0\0\0\0\x05\0")
    group.metadata_hash = -2
    assert group.epoch_record()[1] == b"\0\0\0\0\0\x05\x01\0\x08" + b"\xff" * 7 + b"\xfe"
    assert target_record("g", 5) == (b"\0\x06\0\x01g", b"\0\0\0\0\0\x05\0")
    partitions = TOPIC_ID + b"\x03\0\0\0\0\0\0\0\x01\0"
    assert target_member_record("g", "m", MEMBER.assigned) == (
        b"\0\x07\0\x01g\0\x01m",
        b"\0\0\x02" + partitions + b"\0",
    )
    assert current_member_record("g", MEMBER) == (
        b"\0\x08\0\x01g\0\x01m",
        b"\0\0\0\0\0\x07\0\0\0\x06\x01\x02"
        # The epochs of partitions 0 and 1, and of 2, in a tagged field.
        + (partitions.removesuffix(b"\0") + b"\x01\0\x09\x03\0\0\0\x07\0\0\0\x05")
        + (b"\x02" + TOPIC_ID + b"\x02\0\0\0\x02" + b"\x01\0\x05\x02\0\0\0\x05\0"),
    )
    # Without the metadata of a classic member, Kafka writes a null.
    assert member_record("g", MEMBER) == (
        b"\0\x05\0\x01g\0\x01m",
        b"\0\0\x02i\0\x02c\x03/h\x03\x02a\x02b\x04x.*\0\x04\x93\xe0\x06range\x01\0\x01\0",
    )
    assert regex_record("g", "x.*", ResolvedRegex(frozenset({"xy"}), 3, 4)) == (
        b"\0\x10\0\x01g\0\x03x.*",
        b"\0\0\x02\x03xy" + b"\0" * 7 + b"\x03" + b"\0" * 7 + b"\x04\0",
    )
    assert group_tombstones("g") == [(b"\0\x06\0\x01g", None), (b"\0\x03\0\x01g", None)]


def test_consumer_groups_are_read_as_they_were_written() -> None:
    group = ConsumerGroup("gröup")
    group.epoch, group.assignment_epoch, group.metadata_hash = 9, 8, -2
    group.members = {"m": MEMBER, "k": ConsumerGroupMember("k", classic=ClassicMetadata(7, (("range", b"\1"),)))}
    group.target = {"m": MEMBER.assigned, "k": {}}
    group.regexes = {"x.*": ResolvedRegex(frozenset({"xy"}), 3, 4)}
    read = shard_of(*group.records()).groups["gröup"]
    assert isinstance(read, ConsumerGroup)
    assert (read.epoch, read.assignment_epoch, read.metadata_hash) == (9, 8, -2)
    assert (read.members, read.target, read.regexes) == (group.members, group.target, group.regexes)
    assert not shard_of(*group.records(), *group.tombstones()).groups


def test_a_member_that_an_older_broker_wrote_without_classic_metadata_speaks_the_new_protocol() -> None:
    key, value = member_record("g", MEMBER)
    assert value is not None
    read = shard_of((key, value.removesuffix(b"\x01\0\x01\0") + b"\0")).groups["g"]
    assert isinstance(read, ConsumerGroup)
    assert read.members["m"].classic is None
    assert read.members["m"].topic_names == MEMBER.topic_names


def test_v06_partitions_that_an_older_broker_wrote_are_assigned_since_the_members_epoch() -> None:
    topics = [{"topic_id": TOPIC_ID, "partitions": [0, 2]}]
    value = {"member_epoch": 7, "previous_member_epoch": 6, "state": 0, "assigned_partitions": topics}
    record = (CURRENT_ASSIGNMENT.key(group_id="g", member_id="m"), CURRENT_ASSIGNMENT.value(0, value))
    read = shard_of(member_record("g", MEMBER), record).groups["g"]
    assert isinstance(read, ConsumerGroup)
    assert read.members["m"].assigned_since == (AssignedSince(7, {TOPIC_ID: frozenset({0, 2})}),)


# ---- transactions ----------------------------------------------------------------------------------------------------


def test_transactions_are_written_as_kafka_writes_them() -> None:
    assert encode_key("id") == b"\x00\x00\x00\x02id"
    expected = struct.pack(">hqhib", 0, 5, 3, 1000, 1)
    expected += struct.pack(">ih1siiih1sii", 2, 1, b"a", 2, 0, 1, 1, b"b", 1, 2) + struct.pack(">qq", 77, 33)
    assert encode_value(TRANSACTION, 0) == expected
    metadata = TRANSACTION._replace(previous_producer_id=4, next_producer_id=6, client_version=2)
    expected = struct.pack(">hqhib", 1, 5, 3, 1000, 1)
    expected += b"\x03\x02a\x03" + struct.pack(">ii", 0, 1) + b"\x00\x02b\x02" + struct.pack(">i", 2) + b"\x00"
    expected += struct.pack(">qq", 77, 33)
    expected += b"\x03\x00\x08" + struct.pack(">q", 4) + b"\x01\x08" + struct.pack(">q", 6) + b"\x02\x02\x00\x02"
    assert encode_value(metadata, 1) == expected


def test_transactions_are_read_as_they_were_written() -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    for state in (TransactionState.EMPTY, *[chance.choice(list(TransactionState)[1:]) for _ in range(100)]):
        places = [(chance.choice(["a", "long-ü"]), chance.randrange(300)) for _ in range(chance.randrange(200))]
        metadata = TransactionMetadata(
            chance.randrange(1 << 40),
            chance.randrange(1 << 15),
            chance.randrange(1 << 31),
            chance.randrange(1 << 45),
            state,
            frozenset() if state is TransactionState.EMPTY else frozenset(places),
            chance.randrange(1 << 45),
            chance.randrange(-1, 1 << 15),
            chance.randrange(-1, 1 << 40),
            chance.randrange(-1, 1 << 40),
            chance.randrange(3),
        )
        assert metadata_of(TRANSACTION_LOG.read_value(encode_value(metadata, 1))) == metadata


# ---- unknown records -------------------------------------------------------------------------------------------------


def test_records_of_an_unknown_type_are_ignored() -> None:
    assert not shard_of((b"\x00\x63\x00\x01g", b"\x00\x00rest"), (b"", None), (b"\x00", b"")).groups
    shard = TransactionShard(CoordinatorLog("__transaction_state", 0, unused, lambda: 0), nothing)
    shard.replay(b"\x00\x01\x00\x02id", b"\x00\x00rest", -1)
    assert not shard.transactions


def test_values_of_an_unknown_version_are_rejected() -> None:
    key, _ = ClassicGroup("g").record({})
    for record in ((key, b"\x00\x09rest"), (OFFSET_KEY, b"\x00\x09" + bytes(20)), (OFFSET_KEY, b"\x00")):
        with pytest.raises(InvalidReceive):
            shard_of(record)
