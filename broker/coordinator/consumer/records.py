"""The records of KIP-848's consumer groups in `__consumer_offsets`, byte for byte as Kafka writes them.

Pure. Keys are of versions 3 to 8 and 16, which say what a record is about; values are of version 0, with tagged fields.
What is known of a group's topics is kept as a hash with its epoch, as since Kafka 4.1; records of key version 4, which
said it before, are read over.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Collection
from functools import lru_cache
from typing import Final, NamedTuple

from broker.coordinator.consumer.assignment import Assignment, assignment_of
from broker.coordinator.consumer.member import ClassicMetadata, ConsumerGroupMember, MemberState
from broker.errors import ApiError, InvalidReceive
from broker.protocol.error_codes import ErrorCode
from broker.protocol.primitives import (
    INT16,
    INT32,
    INT64,
    MALFORMED,
    compact_nullable_string_bytes,
    compact_string_bytes,
    read_compact_count,
    read_compact_nullable_string,
    read_compact_string,
    read_string,
    read_tagged_fields,
    skip_tagged_fields,
    string_bytes,
    tagged_fields_bytes,
    unsigned_varint_bytes,
)

Record = tuple[bytes, bytes | None]


class KeyKind(enum.IntEnum):
    """What a record is about: the version of its key."""

    GROUP = 3
    TOPICS = 4
    MEMBER = 5
    TARGET = 6
    TARGET_MEMBER = 7
    CURRENT_MEMBER = 8
    REGEX = 16


KEY_KINDS: Final = frozenset(KeyKind)
_OF_GROUP: Final = frozenset({KeyKind.GROUP, KeyKind.TOPICS, KeyKind.TARGET})


class Key(NamedTuple):
    """A key. ``name`` is a member's id, or a pattern; empty for what is about the group as a whole."""

    kind: KeyKind
    group_id: str
    name: str = ""


class GroupEpoch(NamedTuple):
    """The epoch of a group, and a hash of the topics that it goes with (0 for none)."""

    epoch: int
    metadata_hash: int = 0


class MemberMetadata(NamedTuple):
    """What a member has said of itself. Names are those of ConsumerGroupMember."""

    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    topic_names: frozenset[str]
    topic_regex: str
    rebalance_timeout_ms: int
    server_assignor: str | None
    classic: ClassicMetadata | None = None


class CurrentAssignment(NamedTuple):
    """Where a member is. Names are those of ConsumerGroupMember."""

    epoch: int
    previous_epoch: int
    state: MemberState
    assigned: Assignment
    pending_revocation: Assignment


class ResolvedRegex(NamedTuple):
    """The topics that matched a pattern, as of a version of the metadata and a time (ms since the epoch)."""

    topic_names: frozenset[str]
    version: int
    timestamp_ms: int


_EPOCHS: Final = struct.Struct(
    ">i"  # member epoch
    "i"  # previous member epoch
    "b"  # state
)
_RESOLVED_AT: Final = struct.Struct(
    ">q"  # version
    "q"  # timestamp
)
_VERSION_0: Final = INT16.pack(0)
_NO_TAGS: Final = b"\x00"
_TAG_METADATA_HASH: Final = 0
_TAG_CLASSIC: Final = 0
_UUID_BYTES: Final = 16


def encode_key(key: Key) -> bytes:
    """Return the bytes of a key."""
    head = INT16.pack(key.kind) + string_bytes(key.group_id)
    return head if key.kind in _OF_GROUP else head + string_bytes(key.name)


def decode_key(data: bytes) -> Key:
    """Return the key of a record whose version is one of KEY_KINDS. ApiError when it is malformed."""
    try:
        kind = KeyKind(INT16.unpack_from(data)[0])
        group_id, offset = read_string(data, INT16.size, len(data))
        name = "" if kind in _OF_GROUP else read_string(data, offset, len(data))[0]
    except (*MALFORMED, InvalidReceive, ValueError) as error:
        raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"malformed key of a consumer group: {error}") from error
    return Key(kind, group_id, name)


def deletion(kind: KeyKind, group_id: str, name: str = "") -> Record:
    """Return the record that deletes a key."""
    return encode_key(Key(kind, group_id, name)), None


def group_record(group_id: str, value: GroupEpoch) -> Record:
    """Return the record of a group's epoch."""
    tags = [(_TAG_METADATA_HASH, INT64.pack(value.metadata_hash))] if value.metadata_hash else []
    body = _VERSION_0 + INT32.pack(value.epoch) + tagged_fields_bytes(tags)
    return encode_key(Key(KeyKind.GROUP, group_id)), body


def member_record(group_id: str, member: ConsumerGroupMember) -> Record:
    """Return the record of what a member has said of itself."""
    body = b"".join(
        (
            _VERSION_0,
            compact_nullable_string_bytes(member.instance_id),
            compact_nullable_string_bytes(member.rack_id),
            compact_string_bytes(member.client_id),
            compact_string_bytes(member.client_host),
            _names_bytes(member.topic_names),
            compact_nullable_string_bytes(member.topic_regex or None),
            INT32.pack(member.rebalance_timeout_ms),
            compact_nullable_string_bytes(member.server_assignor),
            tagged_fields_bytes(_classic_tags(member.classic)),
        )
    )
    return encode_key(Key(KeyKind.MEMBER, group_id, member.member_id)), body


def target_record(group_id: str, assignment_epoch: int) -> Record:
    """Return the record of the epoch that the target assignment was made for."""
    return encode_key(Key(KeyKind.TARGET, group_id)), _VERSION_0 + INT32.pack(assignment_epoch) + _NO_TAGS


def target_member_record(group_id: str, member_id: str, assignment: Assignment) -> Record:
    """Return the record of what a member is to have."""
    body = _VERSION_0 + _assignment_bytes(assignment) + _NO_TAGS
    return encode_key(Key(KeyKind.TARGET_MEMBER, group_id, member_id)), body


def current_member_record(group_id: str, member: ConsumerGroupMember) -> Record:
    """Return the record of where a member is."""
    body = b"".join(
        (
            _VERSION_0,
            _EPOCHS.pack(member.epoch, member.previous_epoch, member.state),
            _assignment_bytes(member.assigned),
            _assignment_bytes(member.pending_revocation),
            _NO_TAGS,
        )
    )
    return encode_key(Key(KeyKind.CURRENT_MEMBER, group_id, member.member_id)), body


def regex_record(group_id: str, regex: str, resolved: ResolvedRegex) -> Record:
    """Return the record of the topics that a pattern matches."""
    times = _RESOLVED_AT.pack(resolved.version, resolved.timestamp_ms)
    body = _VERSION_0 + _names_bytes(resolved.topic_names) + times + _NO_TAGS
    return encode_key(Key(KeyKind.REGEX, group_id, regex)), body


def decode_group(value: bytes) -> GroupEpoch:
    """Return a group's epoch. Raises like every decoder here: ApiError when the value is malformed."""
    with _Malformed("epoch of a group"):
        (epoch,) = INT32.unpack_from(value, _start(value))
        tags, _ = read_tagged_fields(value, INT16.size + INT32.size, len(value))
        found = tags.get(_TAG_METADATA_HASH)
        return GroupEpoch(epoch, 0 if found is None else INT64.unpack_from(value, found)[0])


def decode_member(value: bytes) -> MemberMetadata:
    """Return what a member has said of itself."""
    with _Malformed("member of a group"):
        end = len(value)
        instance_id, offset = read_compact_nullable_string(value, _start(value), end)
        rack_id, offset = read_compact_nullable_string(value, offset, end)
        client_id, offset = read_compact_string(value, offset, end)
        client_host, offset = read_compact_string(value, offset, end)
        names, offset = _read_names(value, offset, end)
        regex, offset = read_compact_nullable_string(value, offset, end)
        (timeout_ms,) = INT32.unpack_from(value, offset)
        assignor, offset = read_compact_nullable_string(value, offset + INT32.size, end)
        tags, _ = read_tagged_fields(value, offset, end)
        classic = _read_classic(value, tags[_TAG_CLASSIC], end) if _TAG_CLASSIC in tags else None
        return MemberMetadata(
            instance_id, rack_id, client_id, client_host, names, regex or "", timeout_ms, assignor, classic
        )


def decode_target(value: bytes) -> int:
    """Return the epoch that a target assignment was made for."""
    with _Malformed("target assignment of a group"):
        return int(INT32.unpack_from(value, _start(value))[0])


def decode_target_member(value: bytes) -> Assignment:
    """Return what a member is to have."""
    with _Malformed("target assignment of a member"):
        return _read_assignment(value, _start(value), len(value))[0]


def decode_current_member(value: bytes) -> CurrentAssignment:
    """Return where a member is."""
    with _Malformed("assignment of a member"):
        epoch, previous_epoch, state = _EPOCHS.unpack_from(value, _start(value))
        assigned, offset = _read_assignment(value, INT16.size + _EPOCHS.size, len(value))
        pending, _ = _read_assignment(value, offset, len(value))
        return CurrentAssignment(epoch, previous_epoch, MemberState(state), assigned, pending)


def decode_regex(value: bytes) -> ResolvedRegex:
    """Return the topics that a pattern matches."""
    with _Malformed("pattern of a group"):
        names, offset = _read_names(value, _start(value), len(value))
        return ResolvedRegex(names, *_RESOLVED_AT.unpack_from(value, offset))


class _Malformed:
    """Turns whatever reading broken bytes raises into ApiError."""

    def __init__(self, what: str) -> None:
        self._what = what

    def __enter__(self) -> None:
        return

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, (*MALFORMED, InvalidReceive, ValueError)):
            raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"malformed {self._what}: {error}") from error


def _start(value: bytes) -> int:
    """Return where the fields of a value begin; only version 0 is known."""
    (version,) = INT16.unpack_from(value)
    if version != 0:
        raise ValueError(f"version {version}")
    return INT16.size


def _classic_tags(classic: ClassicMetadata | None) -> list[tuple[int, bytes]]:
    """Return the tagged field of a member of the classic protocol. It is nullable: a byte says that it is there."""
    if classic is None:
        return []
    parts = [b"\x01", INT32.pack(classic.session_timeout_ms), unsigned_varint_bytes(len(classic.protocols) + 1)]
    for name, subscription in classic.protocols:
        parts.append(compact_string_bytes(name))
        parts.append(unsigned_varint_bytes(len(subscription) + 1) + subscription + _NO_TAGS)
    return [(_TAG_CLASSIC, b"".join(parts) + _NO_TAGS)]


def _read_classic(value: bytes, offset: int, end: int) -> ClassicMetadata | None:
    if value[offset] != 1:
        return None
    (session_timeout_ms,) = INT32.unpack_from(value, offset + 1)
    count, offset = read_compact_count(value, offset + 1 + INT32.size, end)
    protocols = []
    for _ in range(count):
        name, offset = read_compact_string(value, offset, end)
        size, offset = read_compact_count(value, offset, end)
        protocols.append((name, value[offset : offset + size]))
        offset = skip_tagged_fields(value, offset + size, end)
    return ClassicMetadata(session_timeout_ms, tuple(protocols))


def _names_bytes(names: Collection[str]) -> bytes:
    return unsigned_varint_bytes(len(names) + 1) + b"".join(compact_string_bytes(name) for name in sorted(names))


def _read_names(value: bytes, offset: int, end: int) -> tuple[frozenset[str], int]:
    count, offset = read_compact_count(value, offset, end)
    names = []
    for _ in range(count):
        name, offset = read_compact_string(value, offset, end)
        names.append(name)
    return frozenset(names), offset


def _assignment_bytes(assignment: Assignment) -> bytes:
    topics = [topic_id + _partitions_bytes(assignment[topic_id]) for topic_id in sorted(assignment)]
    return unsigned_varint_bytes(len(assignment) + 1) + b"".join(topics)


@lru_cache(4096)
def _partitions_bytes(partitions: frozenset[int]) -> bytes:
    """Return the partitions of one topic; those of most topics are the same few."""
    numbers = struct.pack(f">{len(partitions)}i", *sorted(partitions))
    return unsigned_varint_bytes(len(partitions) + 1) + numbers + _NO_TAGS


def _read_assignment(value: bytes, offset: int, end: int) -> tuple[Assignment, int]:
    topics, offset = read_compact_count(value, offset, end)
    found: list[tuple[bytes, tuple[int, ...]]] = []
    for _ in range(topics):
        topic_id = value[offset : offset + _UUID_BYTES]
        count, offset = read_compact_count(value, offset + _UUID_BYTES, end)
        found.append((topic_id, struct.unpack_from(f">{count}i", value, offset)))
        # Versions after ours may say more of each partition, in tagged fields.
        offset = skip_tagged_fields(value, offset + count * INT32.size, end)
    return assignment_of(found), offset
