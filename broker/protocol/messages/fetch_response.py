"""Fetch responses, versions 4-18. HOT.

The answer is built around the records, not with them: `encode_fetch_response` returns what stands before,
between and after the partitions' records, and the processor sends the records themselves from the log files.
"""

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

from broker.protocol.messages.fetch_request import (
    FIRST_FLEXIBLE,
    LOG_START_FROM,
    RACK_FROM,
    SESSION_FROM,
    TOPIC_ID_FROM,
)
from broker.protocol.primitives import (
    ZERO_TOPIC_ID,
    compact_string_bytes,
    string_bytes,
    tagged_fields_bytes,
    unsigned_varint_bytes,
)


class FetchPartResponse(NamedTuple):
    """The answer for one partition; its `records_size` bytes of records go out behind its chunk.

    `aborted_transactions` are pairs of producer id and first offset, or None when the client did not ask
    for committed reads; `diverging_epoch` is (epoch, end offset); `current_leader` is (broker id, leader
    epoch).
    """

    topic_name: str | None
    topic_id: bytes | None
    partition: int
    error_code: int
    high_watermark: int
    last_stable_offset: int = -1
    log_start_offset: int = -1
    records_size: int = 0
    aborted_transactions: tuple[tuple[int, int], ...] | None = None
    preferred_read_replica: int = -1
    diverging_epoch: tuple[int, int] | None = None
    current_leader: tuple[int, int] | None = None


class FetchResponse(NamedTuple):
    """A whole answer; neighbouring parts of one topic share its entry."""

    throttle_ms: int
    error_code: int
    session_id: int
    parts: Sequence[FetchPartResponse]


_pack_int32 = struct.Struct(">i").pack
_pack_pair_of_int64 = struct.Struct(">qq").pack
_pack_epoch_end = struct.Struct(
    ">"
    "i"  # epoch
    "q"  # end_offset
    "x"  # no tagged fields
).pack
_pack_leader = struct.Struct(
    ">"
    "i"  # leader_id
    "i"  # leader_epoch
    "x"  # no tagged fields
).pack
_pack_head = struct.Struct(
    ">"
    "i"  # throttle_time_ms
    "h"  # error_code (version 7+)
    "i"  # session_id (version 7+)
).pack
_pack_part_v4 = struct.Struct(
    ">"
    "i"  # partition_index
    "h"  # error_code
    "q"  # high_watermark
    "q"  # last_stable_offset
).pack
_pack_part_v5 = struct.Struct(
    ">"
    "i"  # partition_index
    "h"  # error_code
    "q"  # high_watermark
    "q"  # last_stable_offset
    "q"  # log_start_offset
).pack
_DIVERGING_EPOCH_TAG: Final = 0
_CURRENT_LEADER_TAG: Final = 1


def encode_fetch_response(version: int, correlation_id: int, response: FetchResponse) -> list[bytes]:
    """Return the answer around its records: one chunk more than there are parts.

    Exactly `parts[i].records_size` bytes go out between chunk i and chunk i + 1. The first chunk begins
    with the size of the whole, records included, and the response header.
    """
    throttle_ms, error_code, session_id, parts = response
    flexible = version >= FIRST_FLEXIBLE
    head = b"\x00" if flexible else b""
    if version >= SESSION_FROM:
        head += _pack_head(throttle_ms, error_code, session_id)
    else:
        head += _pack_int32(throttle_ms)
    topics = [1] if len(parts) == 1 else _group_sizes(parts)
    head += _count_bytes(len(topics), flexible)
    chunks: list[bytes] = []
    records_bytes = 0
    index = 0
    for size in topics:
        first = parts[index]
        head += _topic_head(version, first, size)
        for part in parts[index : index + size]:
            chunks.append(head + _part_head(version, part))
            records_bytes += part.records_size
            head = _part_tags(part) if flexible else b""
        if flexible:
            head += b"\x00"
        index += size
    chunks.append(head + b"\x00" if flexible else head)
    total = sum(map(len, chunks)) + records_bytes + 4
    chunks[0] = _pack_int32(total) + _pack_int32(correlation_id) + chunks[0]
    return chunks


def _group_sizes(parts: Sequence[FetchPartResponse]) -> list[int]:
    """Return how many neighbouring parts each topic entry holds."""
    sizes: list[int] = []
    previous: tuple[str | None, bytes | None] | None = None
    for part in parts:
        topic = part[:2]
        if topic == previous:
            sizes[-1] += 1
        else:
            sizes.append(1)
            previous = topic
    return sizes


def _count_bytes(count: int, flexible: bool) -> bytes:
    return unsigned_varint_bytes(count + 1) if flexible else _pack_int32(count)


def _topic_head(version: int, part: FetchPartResponse, partitions: int) -> bytes:
    if version >= TOPIC_ID_FROM:
        return (part.topic_id or ZERO_TOPIC_ID) + unsigned_varint_bytes(partitions + 1)
    if version >= FIRST_FLEXIBLE:
        return compact_string_bytes(part.topic_name or "") + unsigned_varint_bytes(partitions + 1)
    return string_bytes(part.topic_name or "") + _pack_int32(partitions)


def _part_head(version: int, part: FetchPartResponse) -> bytes:
    """Return a part up to and including the length of its records."""
    _, _, partition, error_code, high_watermark, stable, start, records_size, aborted, replica, _, _ = part
    if version >= LOG_START_FROM:
        numbers = _pack_part_v5(partition, error_code, high_watermark, stable, start)
    else:
        numbers = _pack_part_v4(partition, error_code, high_watermark, stable)
    if version >= FIRST_FLEXIBLE:
        transactions = b"\x00" if aborted is None else _aborted_bytes(aborted, flexible=True)
        return numbers + transactions + _pack_int32(replica) + unsigned_varint_bytes(records_size + 1)
    transactions = b"\xff\xff\xff\xff" if aborted is None else _aborted_bytes(aborted, flexible=False)
    if version >= RACK_FROM:
        transactions += _pack_int32(replica)
    return numbers + transactions + _pack_int32(records_size)


def _aborted_bytes(aborted: tuple[tuple[int, int], ...], *, flexible: bool) -> bytes:
    end = b"\x00" if flexible else b""
    return _count_bytes(len(aborted), flexible) + b"".join(
        _pack_pair_of_int64(producer_id, first_offset) + end for producer_id, first_offset in aborted
    )


def _part_tags(part: FetchPartResponse) -> bytes:
    if part.diverging_epoch is None and part.current_leader is None:
        return b"\x00"
    fields = []
    if part.diverging_epoch is not None:
        fields.append((_DIVERGING_EPOCH_TAG, _pack_epoch_end(*part.diverging_epoch)))
    if part.current_leader is not None:
        fields.append((_CURRENT_LEADER_TAG, _pack_leader(*part.current_leader)))
    return tagged_fields_bytes(fields)
