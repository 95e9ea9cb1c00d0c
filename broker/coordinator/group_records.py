"""The records of `__consumer_offsets` that classic groups and offsets take, byte for byte as Kafka writes them.

Pure. Keys: OffsetCommitKey 0-1 and GroupMetadataKey 2, distinguished by their version. Values: OffsetCommitValue 0-4
and GroupMetadataValue 0-4. Written are the versions that Kafka writes: offsets with 4, which names the topic's id, with
3 where that is not known and with 1 where an old client wants them to expire; groups with 3. Encoding an offset is HOT.

One tag of ours, beyond any of Kafka's, which skips what it does not know, makes a group's value one of version 4: it
says that a rebalance had begun because a member had gone.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Final, NamedTuple, Protocol, TypeAlias

from broker.coordinator.offsets.offsets import NO_EXPIRY, CommittedOffset
from broker.errors import ApiError, InvalidReceive
from broker.protocol.error_codes import ErrorCode
from broker.protocol.primitives import (
    INT16,
    INT32,
    INT64,
    MALFORMED,
    ZERO_TOPIC_ID,
    check_end,
    compact_nullable_string_bytes,
    compact_string_bytes,
    nullable_string_bytes,
    read_array_count,
    read_compact_array_count,
    read_compact_nullable_string,
    read_compact_string,
    read_nullable_string,
    read_string,
    read_tagged_fields,
    read_unsigned_varint,
    string_bytes,
    tagged_fields_bytes,
    unsigned_varint_bytes,
)
from broker.protocol.record_template import NumberedValue
from broker.protocol.steps import ELEMENTS_AT_ONCE, Steps

OFFSET_COMMIT_KEYS: Final = (0, 1)
GROUP_METADATA_KEY: Final = 2

_OFFSET_KEY_VERSION: Final = 1
_OFFSET_VERSION_WITH_EXPIRY: Final = 1
_OFFSET_VERSION_WITHOUT_TOPIC_ID: Final = 3
_OFFSET_VERSION: Final = 4
_GROUP_VERSION: Final = 3
_NEWEST_VERSION: Final = 4
_FIRST_FLEXIBLE: Final = 4
_LEADER_EPOCH_FROM: Final = 3
_REBALANCE_TIMEOUT_FROM: Final = 1
_STATE_TIME_FROM: Final = 2
_INSTANCE_FROM: Final = 3
_TOPIC_ID_TAG: Final = 0
_REBALANCING_TAG: Final = 10_000

_VERSION: Final = INT16.pack
_OFFSET_HEAD: Final = struct.Struct(
    ">h"  # version
    "q"  # offset
    "i"  # leader epoch
).pack
_OFFSET_HEAD_1: Final = struct.Struct(
    ">h"  # version
    "q"  # offset
).pack
#: What stands between the commit time and the topic id of version 4: one tag, its number, its size.
_TOPIC_ID_HEAD: Final = bytes((1, _TOPIC_ID_TAG, 16))


class MemberRecord(NamedTuple):
    """A member as a group's record has it: its metadata for the protocol chosen, and its assignment."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


class Member(Protocol):
    """What a group's record has of a member beside its metadata and its assignment."""

    @property
    def member_id(self) -> str:
        """Its id."""

    @property
    def instance_id(self) -> str | None:
        """The id of a static member."""

    @property
    def client_id(self) -> str:
        """What its client calls itself."""

    @property
    def client_host(self) -> str:
        """Where its client is."""

    @property
    def rebalance_timeout_ms(self) -> int:
        """How long it may take to join again."""

    @property
    def session_timeout_ms(self) -> int:
        """How long it may be silent."""


#: A member, its metadata for the protocol chosen, and its assignment.
Assigned: TypeAlias = "tuple[Member, bytes, bytes]"


class GroupRecord(NamedTuple):
    """A group as its record has it. ``state_ms``: when it came into its state, -1 if that is not known."""

    protocol_type: str
    generation: int
    protocol_name: str | None
    leader: str | None
    state_ms: int
    members: tuple[MemberRecord, ...] = ()
    rebalancing: bool = False
    """A member has left since these were given their assignments: there is to be another rebalance."""


# ---- offsets ---------------------------------------------------------------------------------------------------------


def offset_key_prefix(group_id: str, topic: str) -> bytes:
    """Return the key of a group's offsets for a topic but for its last 4 bytes, which are the partition."""
    return _VERSION(_OFFSET_KEY_VERSION) + string_bytes(group_id) + string_bytes(topic)


def encode_offset_key(group_id: str, topic: str, partition: int) -> bytes:
    """Return the key of a group's offset for a partition."""
    return offset_key_prefix(group_id, topic) + INT32.pack(partition)


def encode_offset_value(committed: CommittedOffset) -> bytes:
    """Return the value that says what a group has committed. HOT."""
    offset, leader_epoch, metadata, commit_ms, expire_ms, topic_id = committed
    text = metadata.encode()
    if expire_ms != NO_EXPIRY:
        head = _OFFSET_HEAD_1(_OFFSET_VERSION_WITH_EXPIRY, offset)
        return head + INT16.pack(len(text)) + text + INT64.pack(commit_ms) + INT64.pack(expire_ms)
    if topic_id == ZERO_TOPIC_ID:
        head = _OFFSET_HEAD(_OFFSET_VERSION_WITHOUT_TOPIC_ID, offset, leader_epoch)
        return head + INT16.pack(len(text)) + text + INT64.pack(commit_ms)
    head = _OFFSET_HEAD(_OFFSET_VERSION, offset, leader_epoch)
    return head + unsigned_varint_bytes(len(text) + 1) + text + INT64.pack(commit_ms) + _TOPIC_ID_HEAD + topic_id


def numbered_offset_value(leader_epoch: int, metadata: str, topic_id: bytes) -> NumberedValue:
    """Return `encode_offset_value` of a commit but for its offset and its time, which are the two numbers."""
    text = metadata.encode()
    if topic_id == ZERO_TOPIC_ID:
        version, size, tail = _OFFSET_VERSION_WITHOUT_TOPIC_ID, INT16.pack(len(text)), b""
    else:
        version, size, tail = _OFFSET_VERSION, unsigned_varint_bytes(len(text) + 1), _TOPIC_ID_HEAD + topic_id
    return NumberedValue(_VERSION(version), INT32.pack(leader_epoch) + size + text, tail)


def decode_offset_key(key: bytes) -> tuple[str, str, int]:
    """Return (group, topic, partition). Raises ApiError when malformed."""
    try:
        group_id, at = read_string(key, 2, len(key))
        topic, at = read_string(key, at, len(key))
        return group_id, topic, INT32.unpack_from(key, at)[0]
    except (*MALFORMED, InvalidReceive) as error:
        raise _corrupt("key of an offset", error) from error


def decode_offset_value(value: bytes) -> CommittedOffset | None:
    """Return what was committed, or None for a version that Kafka does not have. Raises ApiError when malformed."""
    try:
        return _decode_offset_value(value)
    except (*MALFORMED, InvalidReceive) as error:
        raise _corrupt("offset", error) from error


def _decode_offset_value(value: bytes) -> CommittedOffset | None:
    version, offset = struct.unpack_from(">hq", value)
    if not 0 <= version <= _NEWEST_VERSION:
        return None
    flexible, end, at = version >= _FIRST_FLEXIBLE, len(value), 10
    leader_epoch, expire_ms, topic_id = -1, NO_EXPIRY, ZERO_TOPIC_ID
    if version >= _LEADER_EPOCH_FROM:
        (leader_epoch,) = INT32.unpack_from(value, at)
        at += 4
    metadata, at = (read_compact_string if flexible else read_string)(value, at, end)
    (commit_ms,) = INT64.unpack_from(value, at)
    at += 8
    if version == _OFFSET_VERSION_WITH_EXPIRY:
        (expire_ms,) = INT64.unpack_from(value, at)
    if flexible:
        tags, at = read_tagged_fields(value, at, end)
        if _TOPIC_ID_TAG in tags:
            topic_id = value[tags[_TOPIC_ID_TAG] : tags[_TOPIC_ID_TAG] + 16]
    check_end(at, end)
    return CommittedOffset(offset, leader_epoch, metadata, commit_ms, expire_ms, topic_id)


# ---- groups ----------------------------------------------------------------------------------------------------------


def encode_group_key(group_id: str) -> bytes:
    """Return the key of a classic group."""
    return _VERSION(GROUP_METADATA_KEY) + string_bytes(group_id)


def decode_group_key(key: bytes) -> str:
    """Return the group's id. Raises ApiError when malformed."""
    try:
        return read_string(key, 2, len(key))[0]
    except (*MALFORMED, InvalidReceive) as error:
        raise _corrupt("key of a group", error) from error


_TIMEOUTS: Final = struct.Struct(
    ">i"  # rebalance timeout in ms
    "i"  # session timeout in ms
)


def encode_group_value(group: GroupRecord, members: Sequence[Assigned]) -> bytes:
    """Return the value that says what a classic group of these members is: version 3, or 4 if it is rebalancing."""
    form = _FLEXIBLE if group.rebalancing else _LEGACY
    return b"".join(
        (
            _VERSION(_FIRST_FLEXIBLE if group.rebalancing else _GROUP_VERSION),
            form.string(group.protocol_type),
            INT32.pack(group.generation),
            form.nullable_string(group.protocol_name),
            form.nullable_string(group.leader),
            INT64.pack(group.state_ms),
            form.length(len(members)),
            *_member_bytes(members, form),
            tagged_fields_bytes([(_REBALANCING_TAG, b"\x01")]) if group.rebalancing else b"",
        )
    )


class _Form(NamedTuple):
    """How the types whose form depends on the version are written."""

    string: Callable[[str], bytes]
    nullable_string: Callable[[str | None], bytes]
    length: Callable[[int], bytes]
    end: bytes


_LEGACY: Final = _Form(string_bytes, nullable_string_bytes, INT32.pack, b"")
_FLEXIBLE: Final = _Form(
    compact_string_bytes, compact_nullable_string_bytes, lambda count: unsigned_varint_bytes(count + 1), b"\x00"
)


def _member_bytes(members: Sequence[Assigned], form: _Form) -> list[bytes]:
    """Return the members of a group in pieces; there may be 10,000, which share a few clients, hosts and timeouts."""
    string, nullable_string, length, end = form

    @cache
    def common(client_id: str, client_host: str, rebalance_ms: int, session_ms: int) -> bytes:
        return string(client_id) + string(client_host) + _TIMEOUTS.pack(rebalance_ms, session_ms)

    pieces: list[bytes] = []
    for member, subscription, assignment in members:
        pieces += (
            string(member.member_id),
            nullable_string(member.instance_id),
            common(member.client_id, member.client_host, member.rebalance_timeout_ms, member.session_timeout_ms),
            length(len(subscription)),
            subscription,
            length(len(assignment)),
            assignment,
            end,
        )
    return pieces


def decode_group_value(value: bytes) -> Steps[GroupRecord | None]:
    """Return the group in steps, or None for a version that Kafka does not have. Raises ApiError when malformed."""
    try:
        (version,) = INT16.unpack_from(value)
        return (yield from _Reader(value, version).group()) if 0 <= version <= _NEWEST_VERSION else None
    except (*MALFORMED, InvalidReceive) as error:
        raise _corrupt("group", error) from error


class _Reader:
    """Reads one GroupMetadataValue."""

    def __init__(self, value: bytes, version: int) -> None:
        self._value = value
        self._version = version
        self._flexible = version >= _FIRST_FLEXIBLE
        self._at = 2

    def group(self) -> Steps[GroupRecord]:
        """Return the group in steps."""
        protocol_type = self._string()
        generation = self._int32()
        protocol_name = self._nullable_string()
        leader = self._nullable_string()
        state_ms = -1
        if self._version >= _STATE_TIME_FROM:
            (state_ms,) = INT64.unpack_from(self._value, self._at)
            self._at += 8
        count, self._at = (read_compact_array_count if self._flexible else read_array_count)(
            self._value, self._at, len(self._value)
        )
        members = []
        for number in range(1, count + 1):
            members.append(self._member())
            if not number % ELEMENTS_AT_ONCE:
                yield
        rebalancing = _REBALANCING_TAG in self._tags()
        check_end(self._at, len(self._value))
        return GroupRecord(protocol_type, generation, protocol_name, leader, state_ms, tuple(members), rebalancing)

    def _member(self) -> MemberRecord:
        member_id = self._string()
        instance_id = self._nullable_string() if self._version >= _INSTANCE_FROM else None
        client_id, client_host = self._string(), self._string()
        rebalance_timeout_ms = self._int32() if self._version >= _REBALANCE_TIMEOUT_FROM else -1
        session_timeout_ms = self._int32()
        subscription, assignment = self._bytes(), self._bytes()
        self._tags()
        if rebalance_timeout_ms < 0:
            rebalance_timeout_ms = session_timeout_ms
        return MemberRecord(
            member_id, instance_id, client_id, client_host, rebalance_timeout_ms, session_timeout_ms, subscription,
            assignment,
        )  # fmt: skip

    def _int32(self) -> int:
        self._at += 4
        number: int = INT32.unpack_from(self._value, self._at - 4)[0]
        return number

    def _string(self) -> str:
        text, self._at = (read_compact_string if self._flexible else read_string)(
            self._value, self._at, len(self._value)
        )
        return text

    def _nullable_string(self) -> str | None:
        text, self._at = (read_compact_nullable_string if self._flexible else read_nullable_string)(
            self._value, self._at, len(self._value)
        )
        return text

    def _bytes(self) -> bytes:
        if self._flexible:
            length, self._at = read_unsigned_varint(self._value, self._at)
            length -= 1
        else:
            length = self._int32()
        stop = self._at + length
        if length < 0 or stop > len(self._value):
            raise InvalidReceive(f"field of {length} bytes where {len(self._value) - self._at} are left")
        data, self._at = self._value[self._at : stop], stop
        return data

    def _tags(self) -> Mapping[int, int]:
        if not self._flexible:
            return {}
        tags, self._at = read_tagged_fields(self._value, self._at, len(self._value))
        return tags


def subscribed_topics(subscriptions: Iterable[bytes]) -> frozenset[str] | None:
    """Return the topics of ConsumerProtocolSubscriptions of any version; None when one cannot be read.

    Version 0 is the beginning of all: an int16, then an array of strings.
    """
    topics: set[str] = set()
    try:
        for subscription in subscriptions:
            count, at = read_array_count(subscription, 2, len(subscription))
            for _ in range(count):
                topic, at = read_string(subscription, at, len(subscription))
                topics.add(topic)
    except (*MALFORMED, InvalidReceive):
        return None
    return frozenset(topics)


def _corrupt(what: str, error: Exception) -> ApiError:
    return ApiError(ErrorCode.CORRUPT_MESSAGE, f"malformed {what}: {error}")
