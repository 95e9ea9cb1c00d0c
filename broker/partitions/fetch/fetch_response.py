"""The bytes of a Fetch response, versions 4-18. HOT: every poll of every consumer ends with one.

Runs in handler processes. A response is built around the records, not with them: `frame_fetch_response` returns the
bytes before, between and after the records of the partitions, and the processor sends the records from the log files.
Each partition is encoded separately, as soon as it is known, most of them by the fast path of those that have no error
(`PlainParts`).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Final, NamedTuple

from rotunda.broker.protocol.messages.fetch import TOPIC_ID_FROM
from rotunda.broker.protocol.primitives import (
    ZERO_TOPIC_ID,
    compact_string_bytes,
    string_bytes,
    unsigned_varint_bytes,
)

_FIRST_FLEXIBLE: Final = 12
_LOG_START_FROM: Final = 5
_SESSION_FROM: Final = 7
_RACK_FROM: Final = 11


class EncodedTopic(NamedTuple):
    """The entry of one topic in a response: the bytes before its partitions, and their number."""

    head: bytes
    partitions: int


#: The place of records: (index of the part that they follow, their size, the tags of the part, which follow them). A
#: plain tuple: one is made for most responses.
Gap = tuple[int, int, bytes]


_pack_int32 = struct.Struct(">i").pack
_pack_pair_of_int32 = struct.Struct(">ii").pack
_pack_pair_of_int64 = struct.Struct(">qq").pack
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
#: The status of a response with nothing but its parts.
PLAIN: Final = (0, 0, 0)

_NO_REPLICA: Final = _pack_int32(-1)


def frame_fetch_response(
    version: int,
    correlation_id: int,
    topics: Sequence[EncodedTopic],
    parts: Sequence[bytes],
    gaps: Sequence[Gap] = (),
    status: tuple[int, int, int] = PLAIN,
) -> list[bytes]:
    """Return the response around its records: one chunk more than there are gaps.

    ``parts`` are the results of `encode_part` and `PlainParts`, topic by topic; ``gaps`` are in order, and their
    records are sent between the chunks. ``status`` is (throttle time in ms, error code, session id). The first chunk
    begins with the size of the whole, records included, and the response header.
    """
    if len(parts) == 1 and len(topics) == 1 and status == PLAIN:
        return _frame_one(version, correlation_id, topics[0], parts[0], gaps)
    flexible = version >= _FIRST_FLEXIBLE
    pieces = [b"\x00" if flexible else b""]
    pieces.append(_pack_head(*status) if version >= _SESSION_FROM else _pack_int32(status[0]))
    pieces.append(_count_bytes(len(topics), flexible))
    chunks: list[bytes] = []
    records_bytes = first = passed = 0
    for topic in topics:
        pieces.append(topic.head)
        end = first + topic.partitions
        while passed < len(gaps) and gaps[passed][0] < end:
            index, size, tags = gaps[passed]
            pieces += parts[first : index + 1]
            chunks.append(b"".join(pieces))
            pieces = [tags]
            records_bytes += size
            first = index + 1
            passed += 1
        pieces += parts[first:end]
        first = end
        if flexible:
            pieces.append(b"\x00")
    if flexible:
        pieces.append(b"\x00")
    chunks.append(b"".join(pieces))
    total = sum(map(len, chunks)) + records_bytes + 4
    chunks[0] = _pack_int32(total) + _pack_int32(correlation_id) + chunks[0]
    return chunks


def encode_topics(version: int, topics: Iterable[tuple[str | None, bytes | None]]) -> list[EncodedTopic]:
    """Return the topic entries of a response, from the topic (name, id) of each part; neighbours share one."""
    return [
        EncodedTopic(head + _count_bytes(count, version >= _FIRST_FLEXIBLE), count)
        for head, count in ((_topic_head(version, *topic), len(list(parts))) for topic, parts in groupby(topics))
    ]


def _frame_one(version: int, correlation_id: int, topic: EncodedTopic, part: bytes, gaps: Sequence[Gap]) -> list[bytes]:
    """Return the response of one part: the same bytes, faster."""
    head = _HEADS_OF_ONE[version] + topic.head + part
    end = b"\x00\x00" if version >= _FIRST_FLEXIBLE else b""
    if not gaps:
        return [_pack_pair_of_int32(len(head) + len(end) + 4, correlation_id) + head + end]
    _, records_bytes, tags = gaps[0]
    end = tags + end
    return [_pack_pair_of_int32(len(head) + records_bytes + len(end) + 4, correlation_id) + head, end]


class PlainParts:
    """Encodes parts that have neither an error nor an aborted transaction, for one version. HOT."""

    __slots__ = ("_end", "_is_flexible", "_middle", "_with_start", "tags")

    def __init__(self, version: int, *, committed: bool) -> None:
        """Make an encoder for one version; ``committed``: the request has committed reads."""
        self._with_start = version >= _LOG_START_FROM
        self._is_flexible = version >= _FIRST_FLEXIBLE
        part = encode_part(version, 0, 0, aborted=() if committed else None)
        numbers = self._numbers(0, -1, -1, -1)
        no_records = unsigned_varint_bytes(1) if self._is_flexible else _pack_int32(0)
        self._middle = part.removeprefix(numbers).removesuffix(no_records)
        #: The bytes after the records of a part.
        self.tags = tags_of(version)
        self._end = self._middle + no_records + self.tags

    def encode_empty(self, partition: int, high_watermark: int, stable: int, start: int) -> bytes:
        """Return a whole part without records."""
        if self._with_start:
            return _pack_part_v5(partition, 0, high_watermark, stable, start) + self._end
        return _pack_part_v4(partition, 0, high_watermark, stable) + self._end

    def encode(self, partition: int, high_watermark: int, stable: int, start: int, records_size: int) -> bytes:
        """Return a part up to and including the length of its records, which `tags` follow."""
        size = unsigned_varint_bytes(records_size + 1) if self._is_flexible else _pack_int32(records_size)
        return self._numbers(partition, high_watermark, stable, start) + self._middle + size

    def _numbers(self, partition: int, high_watermark: int, stable: int, start: int) -> bytes:
        if self._with_start:
            return _pack_part_v5(partition, 0, high_watermark, stable, start)
        return _pack_part_v4(partition, 0, high_watermark, stable)


def _count_bytes(count: int, flexible: bool) -> bytes:
    return unsigned_varint_bytes(count + 1) if flexible else _pack_int32(count)


def _head_of_one(version: int) -> bytes:
    """Return the bytes before the only topic of a response with plain status."""
    flexible = version >= _FIRST_FLEXIBLE
    tags = b"\x00" if flexible else b""
    return tags + (_pack_head(0, 0, 0) if version >= _SESSION_FROM else _pack_int32(0)) + _count_bytes(1, flexible)


#: By version.
_HEADS_OF_ONE: Final = {version: _head_of_one(version) for version in range(4, 19)}


def _topic_head(version: int, name: str | None, topic_id: bytes | None) -> bytes:
    """Return how the entry of a topic begins: by name below version 13, by id (16 bytes) from there on."""
    if version >= TOPIC_ID_FROM:
        return topic_id or ZERO_TOPIC_ID
    return compact_string_bytes(name or "") if version >= _FIRST_FLEXIBLE else string_bytes(name or "")


def encode_part(
    version: int,
    partition: int,
    error_code: int,
    offsets: tuple[int, int, int] = (-1, -1, -1),
    records_size: int = 0,
    aborted: Sequence[tuple[int, int]] | None = None,
) -> bytes:
    """Return a part up to and including the length of its records, which `tags_of` follow.

    ``offsets`` are high watermark, last stable offset and log start; ``aborted`` are pairs of producer id and first
    offset, or None without committed reads.
    """
    flexible, has_start = version >= _FIRST_FLEXIBLE, version >= _LOG_START_FROM
    numbers = (partition, error_code, *offsets)
    head = _pack_part_v5(*numbers) if has_start else _pack_part_v4(*numbers[:-1])
    if aborted is None:
        transactions = b"\x00" if flexible else b"\xff\xff\xff\xff"
    else:
        pairs = [_pack_pair_of_int64(*each) + tags_of(version) for each in aborted]
        transactions = _count_bytes(len(aborted), flexible) + b"".join(pairs)
    replica = _NO_REPLICA if version >= _RACK_FROM else b""
    size = unsigned_varint_bytes(records_size + 1) if flexible else _pack_int32(records_size)
    return head + transactions + replica + size


def tags_of(version: int) -> bytes:
    """Return the tagged fields of a structure that has none."""
    return b"\x00" if version >= _FIRST_FLEXIBLE else b""
