"""Records of `__consumer_offsets` byte by byte, as Kafka's schemas have them, and every version that may be read."""

from __future__ import annotations

import struct

import pytest

from broker.coordinator.group_records import (
    GroupRecord,
    MemberRecord,
    decode_group_key,
    decode_group_value,
    decode_offset_key,
    decode_offset_value,
    encode_group_key,
    encode_group_value,
    encode_offset_key,
    encode_offset_value,
    subscribed_topics,
)
from broker.coordinator.offsets.offsets import CommittedOffset
from broker.errors import ApiError
from broker.protocol.steps import ELEMENTS_AT_ONCE, finished

TOPIC_ID = bytes(range(16))
MEMBER = MemberRecord("m-1", "static", "client", "/host", 60_000, 10_000, b"\x01\x02", b"\x03")
GROUP = GroupRecord("consumer", 7, "range", "m-1", 1234, (MEMBER,))


def text(value: str | None) -> bytes:
    return b"\xff\xff" if value is None else struct.pack(">h", len(value)) + value.encode()


def compact(value: str | None) -> bytes:
    return b"\x00" if value is None else bytes((len(value) + 1,)) + value.encode()


def test_keys_are_those_of_kafka() -> None:
    assert encode_offset_key("g", "topic", 3) == b"\x00\x01\x00\x01g\x00\x05topic\x00\x00\x00\x03"
    assert decode_offset_key(encode_offset_key("g", "topic", 3)) == ("g", "topic", 3)
    assert decode_offset_key(b"\x00\x00\x00\x01g\x00\x05topic\x00\x00\x00\x03") == ("g", "topic", 3)
    assert encode_group_key("gruppe") == b"\x00\x02\x00\x06gruppe"
    assert decode_group_key(encode_group_key("gruppe")) == "gruppe"


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
    value = encode_offset_value(committed)
    assert value == expected
    assert decode_offset_value(value) == committed


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
    assert decode_offset_value(value) == expected


def group_value(version: int) -> bytes:
    """Return GROUP in a version, without what that version does not have."""
    string = compact if version >= 4 else text
    size = (lambda n: bytes((n + 1,))) if version >= 4 else (lambda n: struct.pack(">i", n))
    tags = b"\x00" if version >= 4 else b""
    value = struct.pack(">h", version) + string("consumer") + struct.pack(">i", 7) + string("range") + string("m-1")
    value += struct.pack(">q", 1234) if version >= 2 else b""
    value += size(1) + string("m-1") + (string("static") if version >= 3 else b"") + string("client") + string("/host")
    value += struct.pack(">i", 60_000) if version >= 1 else b""
    return value + struct.pack(">i", 10_000) + size(2) + b"\x01\x02" + size(1) + b"\x03" + tags + tags


@pytest.mark.parametrize("version", range(5))
def test_groups_are_read_in_every_version(version: int) -> None:
    member = MEMBER._replace(
        instance_id="static" if version >= 3 else None, rebalance_timeout_ms=60_000 if version >= 1 else 10_000
    )
    expected = GROUP._replace(state_ms=1234 if version >= 2 else -1, members=(member,))
    assert finished(decode_group_value(group_value(version))) == expected


def encoded(group: GroupRecord) -> bytes:
    return encode_group_value(group, [(each, each.subscription, each.assignment) for each in group.members])


def test_groups_are_written_as_kafka_writes_them() -> None:
    assert encoded(GROUP) == group_value(3)
    empty = GroupRecord("", 0, None, None, -1)
    assert encoded(empty) == b"\x00\x03\x00\x00" + bytes(4) + b"\xff" * 12 + bytes(4)
    assert finished(decode_group_value(encoded(empty))) == empty


def test_a_group_that_a_member_has_left_is_of_a_version_that_has_tags() -> None:
    """Kafka reads it as version 4, and skips the tag: it is beyond any of its own."""
    value = encoded(GROUP._replace(rebalancing=True))
    assert value == group_value(4)[:-1] + b"\x01\x90\x4e\x01\x01"
    assert finished(decode_group_value(value)) == GROUP._replace(rebalancing=True)


def test_members_that_share_clients_and_timeouts_are_written_each_with_its_own() -> None:
    """They are read in steps: there may be 10,000."""
    members = tuple(
        MemberRecord(
            f"m-{number}", f"s-{number}" if number % 2 else None, f"c-{number % 3}", "/host", number % 5, 7,
            b"s" * number, b"a" * (number % 7),
        )
        for number in range(5 * ELEMENTS_AT_ONCE)
    )  # fmt: skip
    value = encoded(GROUP._replace(members=members))
    assert value == struct.pack(">h", 3) + text("consumer") + struct.pack(">i", 7) + text("range") + text(
        "m-1"
    ) + struct.pack(">qi", 1234, len(members)) + b"".join(
        text(each.member_id)
        + text(each.instance_id)
        + text(each.client_id)
        + text(each.client_host)
        + struct.pack(">iii", each.rebalance_timeout_ms, each.session_timeout_ms, len(each.subscription))
        + each.subscription
        + struct.pack(">i", len(each.assignment))
        + each.assignment
        for each in members
    )
    assert sum(1 for _ in decode_group_value(value)) == 5
    assert finished(decode_group_value(value)) == GROUP._replace(members=members)


def test_a_version_that_kafka_does_not_have_is_let_be() -> None:
    assert finished(decode_group_value(b"\x00\x09rest")) is None
    assert decode_offset_value(b"\x00\x09" + bytes(20)) is None


@pytest.mark.parametrize("version", range(5))
def test_what_is_cut_off_is_said_to_be_malformed(version: int) -> None:
    whole = group_value(version)
    for end in range(len(whole)):
        with pytest.raises(ApiError):
            finished(decode_group_value(whole[:end]))
    offset = encode_offset_value(CommittedOffset(5, 2, "note", 99, topic_id=TOPIC_ID))
    for end in range(len(offset)):
        with pytest.raises(ApiError):
            decode_offset_value(offset[:end])


def test_the_topics_of_subscriptions_of_any_version() -> None:
    first = struct.pack(">hi", 0, 2) + text("a") + text("b")
    newer = struct.pack(">hi", 3, 1) + text("c") + struct.pack(">i", -1) + b"whatever comes later"
    assert subscribed_topics([first, newer]) == {"a", "b", "c"}
    assert subscribed_topics([first, b"\x00"]) is None
    assert subscribed_topics([]) == frozenset()
