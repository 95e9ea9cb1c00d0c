"""The records of consumer groups: Kafka's bytes, and back."""

import random

import pytest

from broker.coordinator.consumer.assignment import NO_PARTITIONS
from broker.coordinator.consumer.member import ConsumerGroupMember, MemberState
from broker.coordinator.consumer.records import (
    CurrentAssignment,
    GroupEpoch,
    Key,
    KeyKind,
    MemberMetadata,
    ResolvedRegex,
    current_member_record,
    decode_current_member,
    decode_group,
    decode_key,
    decode_member,
    decode_regex,
    decode_target,
    decode_target_member,
    deletion,
    encode_key,
    group_record,
    member_record,
    regex_record,
    target_member_record,
    target_record,
)
from broker.errors import ApiError

TOPIC = bytes(range(16))
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
    assigned={TOPIC: frozenset({1, 0})},
    pending_revocation={TOPIC: frozenset({2})},
)


def test_the_bytes_are_kafkas() -> None:
    """By the schemas of its messages: key versions 3 and 5 to 8 and 16, values of version 0."""
    assert group_record("g", GroupEpoch(5)) == (b"\0\x03\0\x01g", b"\0\0\0\0\0\x05\0")
    assert group_record("g", GroupEpoch(5, -2))[1] == b"\0\0\0\0\0\x05\x01\0\x08" + b"\xff" * 7 + b"\xfe"
    assert target_record("g", 5) == (b"\0\x06\0\x01g", b"\0\0\0\0\0\x05\0")
    partitions = TOPIC + b"\x03\0\0\0\0\0\0\0\x01\0"
    assert target_member_record("g", "m", MEMBER.assigned) == (
        b"\0\x07\0\x01g\0\x01m",
        b"\0\0\x02" + partitions + b"\0",
    )
    assert current_member_record("g", MEMBER) == (
        b"\0\x08\0\x01g\0\x01m",
        b"\0\0\0\0\0\x07\0\0\0\x06\x01\x02" + partitions + b"\x02" + TOPIC + b"\x02\0\0\0\x02\0\0",
    )
    assert member_record("g", MEMBER) == (
        b"\0\x05\0\x01g\0\x01m",
        b"\0\0\x02i\0\x02c\x03/h\x03\x02a\x02b\x04x.*\0\x04\x93\xe0\x06range\0",
    )
    assert regex_record("g", "x.*", ResolvedRegex(frozenset({"xy"}), 3, 4)) == (
        b"\0\x10\0\x01g\0\x03x.*",
        b"\0\0\x02\x03xy" + b"\0" * 7 + b"\x03" + b"\0" * 7 + b"\x04\0",
    )
    assert deletion(KeyKind.GROUP, "g") == (b"\0\x03\0\x01g", None)


def test_what_is_written_is_read() -> None:
    for kind in KeyKind:
        name = "" if kind in (KeyKind.GROUP, KeyKind.TOPICS, KeyKind.TARGET) else "näme"
        assert decode_key(encode_key(Key(kind, "gröup", name))) == Key(kind, "gröup", name)
    assert decode_group(group_record("g", GroupEpoch(5, -2))[1] or b"") == GroupEpoch(5, -2)
    assert decode_group(group_record("g", GroupEpoch(5))[1] or b"") == GroupEpoch(5)
    assert decode_target(target_record("g", 9)[1] or b"") == 9
    assert decode_target_member(target_member_record("g", "m", MEMBER.assigned)[1] or b"") == MEMBER.assigned
    assert decode_target_member(target_member_record("g", "m", NO_PARTITIONS)[1] or b"") == {}
    assert decode_current_member(current_member_record("g", MEMBER)[1] or b"") == CurrentAssignment(
        7, 6, MemberState.UNREVOKED_PARTITIONS, MEMBER.assigned, MEMBER.pending_revocation
    )
    assert decode_member(member_record("g", MEMBER)[1] or b"") == MemberMetadata(
        "i", None, "c", "/h", frozenset({"a", "b"}), "x.*", 300_000, "range"
    )
    resolved = ResolvedRegex(frozenset({"x", "xy"}), 3, 4)
    assert decode_regex(regex_record("g", "x.*", resolved)[1] or b"") == resolved


@pytest.mark.parametrize(
    ("decode", "record"),
    [
        (decode_group, group_record("g", GroupEpoch(5, 1))),
        (decode_member, member_record("g", MEMBER)),
        (decode_target, target_record("g", 5)),
        (decode_target_member, target_member_record("g", "m", MEMBER.assigned)),
        (decode_current_member, current_member_record("g", MEMBER)),
        (decode_regex, regex_record("g", "x", ResolvedRegex(frozenset({"x"}), 1, 1))),
    ],
)
def test_broken_bytes_are_an_error_and_nothing_else(decode: object, record: tuple[bytes, bytes]) -> None:
    assert callable(decode)
    chance = random.Random(1)
    for _ in range(300):
        broken = bytearray(record[1])
        broken[chance.randrange(len(broken))] = chance.randrange(256)
        del broken[chance.randrange(len(broken) + 1) :]
        try:
            decode(bytes(broken))
        except ApiError:
            continue
    with pytest.raises(ApiError):
        decode(b"\0\x01" + record[1][2:])
    with pytest.raises(ApiError):
        decode_key(record[0][:-1])
