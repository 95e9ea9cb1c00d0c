"""The records of `__transaction_state`, byte for byte as Kafka writes them: keys of version 0, values of 0 and 1.

Pure. Version 1 has tagged fields and is written from transaction version 1 on, as in Kafka. One tag of ours is beyond
any of Kafka's, which skips what it does not know: the epoch that a producer had before its last one, so that a request
to raise the epoch that is read a second time does not raise it again.
"""

from __future__ import annotations

import struct
from itertools import groupby
from typing import Final

from broker.coordinator.transaction.transaction import NO_EPOCH, TransactionMetadata, TransactionState
from broker.errors import ApiError, InvalidReceive
from broker.partitions.transaction_messages import TopicPartition
from broker.protocol.error_codes import ErrorCode
from broker.protocol.primitives import (
    MALFORMED,
    compact_string_bytes,
    read_array_count,
    read_compact_array_count,
    read_compact_string,
    read_string,
    read_tagged_fields,
    skip_tagged_fields,
    string_bytes,
    tagged_fields_bytes,
    unsigned_varint_bytes,
)

_KEY_VERSION: Final = 0
_FIRST_FLEXIBLE: Final = 1

_VERSION: Final = struct.Struct(">h")
_HEAD: Final = struct.Struct(
    ">q"  # producer id
    "h"  # producer epoch
    "i"  # timeout in ms
    "b"  # state
)
_TIMES: Final = struct.Struct(
    ">q"  # last update
    "q"  # start
)
_INT32: Final = struct.Struct(">i")
_INT64: Final = struct.Struct(">q")

_PREVIOUS_PRODUCER_ID, _NEXT_PRODUCER_ID, _CLIENT_VERSION, _LAST_EPOCH = 0, 1, 2, 10_000

#: By tag: the field and its form. A field with its default is not written.
_TAGS: Final = {
    _PREVIOUS_PRODUCER_ID: ("previous_producer_id", _INT64, -1),
    _NEXT_PRODUCER_ID: ("next_producer_id", _INT64, -1),
    _CLIENT_VERSION: ("client_version", _VERSION, 0),
    _LAST_EPOCH: ("last_epoch", _VERSION, NO_EPOCH),
}


def encode_key(transactional_id: str) -> bytes:
    """Return the key of a transactional id."""
    return _VERSION.pack(_KEY_VERSION) + string_bytes(transactional_id)


def decode_key(key: bytes) -> str | None:
    """Return the transactional id of a key, or None when it is a key of a version that is not known."""
    try:
        if _VERSION.unpack_from(key)[0] != _KEY_VERSION:
            return None
        return read_string(key, _VERSION.size, len(key))[0]
    except (*MALFORMED, InvalidReceive) as error:
        raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"malformed key of a transaction: {error}") from error


def encode_value(metadata: TransactionMetadata, version: int) -> bytes:
    """Return the value of that version (0 or 1)."""
    flexible = version >= _FIRST_FLEXIBLE
    body = _VERSION.pack(version)
    body += _HEAD.pack(metadata.producer_id, metadata.epoch, metadata.timeout_ms, metadata.state)
    body += _partitions_bytes(metadata, flexible)
    body += _TIMES.pack(metadata.updated_ms, metadata.start_ms)
    return body + _tags_bytes(metadata) if flexible else body


def decode_value(value: bytes) -> TransactionMetadata | None:
    """Return what a value says, or None when it is of a version that is not known. ApiError when it is malformed."""
    try:
        (version,) = _VERSION.unpack_from(value)
        if version not in (0, 1):
            return None
        flexible = version >= _FIRST_FLEXIBLE
        producer_id, epoch, timeout_ms, state = _HEAD.unpack_from(value, _VERSION.size)
        partitions, offset = _read_partitions(value, _VERSION.size + _HEAD.size, flexible)
        updated_ms, start_ms = _TIMES.unpack_from(value, offset)
        tags = _read_tags(value, offset + _TIMES.size) if flexible else {}
        return TransactionMetadata(
            producer_id, epoch, timeout_ms, updated_ms, TransactionState(state), partitions, start_ms, **tags
        )
    except (*MALFORMED, InvalidReceive, ValueError) as error:
        raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"malformed state of a transaction: {error}") from error


def _partitions_bytes(metadata: TransactionMetadata, flexible: bool) -> bytes:
    """Return the partitions by topic; null where there can be none."""
    if metadata.state is TransactionState.EMPTY:
        return b"\x00" if flexible else _INT32.pack(-1)
    topics = [
        (topic, [partition for _, partition in group])
        for topic, group in groupby(sorted(metadata.partitions), lambda place: place[0])
    ]
    parts = [_count_bytes(len(topics), flexible)]
    for topic, partitions in topics:
        parts.append(compact_string_bytes(topic) if flexible else string_bytes(topic))
        parts.append(_count_bytes(len(partitions), flexible))
        parts.extend(_INT32.pack(partition) for partition in partitions)
        if flexible:
            parts.append(b"\x00")
    return b"".join(parts)


def _read_partitions(value: bytes, offset: int, flexible: bool) -> tuple[frozenset[TopicPartition], int]:
    end = len(value)
    found: set[TopicPartition] = set()
    topics, offset = _read_count(value, offset, flexible)
    for _ in range(topics):
        topic, offset = read_compact_string(value, offset, end) if flexible else read_string(value, offset, end)
        count, offset = _read_count(value, offset, flexible)
        found.update((topic, partition) for partition in struct.unpack_from(f">{count}i", value, offset))
        offset += count * _INT32.size
        if flexible:
            offset = skip_tagged_fields(value, offset, end)
    return frozenset(found), offset


def _count_bytes(count: int, flexible: bool) -> bytes:
    return unsigned_varint_bytes(count + 1) if flexible else _INT32.pack(count)


def _read_count(value: bytes, offset: int, flexible: bool) -> tuple[int, int]:
    """Return a count, 0 for null, and the offset behind it."""
    read = read_compact_array_count if flexible else read_array_count
    count, offset = read(value, offset, len(value))
    return max(count, 0), offset


def _tags_bytes(metadata: TransactionMetadata) -> bytes:
    return tagged_fields_bytes(
        [
            (tag, form.pack(getattr(metadata, name)))
            for tag, (name, form, default) in _TAGS.items()
            if getattr(metadata, name) != default
        ]
    )


def _read_tags(value: bytes, offset: int) -> dict[str, int]:
    tags, _ = read_tagged_fields(value, offset, len(value))
    return {_TAGS[tag][0]: _TAGS[tag][1].unpack_from(value, at)[0] for tag, at in tags.items() if tag in _TAGS}
