"""Fetch responses, versions 4-18. HOT.

The answer is built around the records, not with them: `frame_fetch_response` returns what stands before, between and
after the partitions' records, and the processor sends the records themselves from the log files. Each partition is
encoded by itself and as it becomes known, most of them by the fast path of those that have no error (`PlainParts`):
an answer is then put together from what is there.
"""

import struct
from collections.abc import Iterable, Sequence
from itertools import groupby
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
    """The answer for one partition; its `records_size` bytes of records go out between it and its tags.

    `aborted_transactions` are pairs of producer id and first offset, or None when the client did not ask
    for committed reads; `diverging_epoch` is (epoch, end offset); `current_leader` is (broker id, leader
    epoch).
    """

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


class EncodedTopic(NamedTuple):
    """The entry of one topic in an answer: what stands before its partitions, and how many there are."""

    head: bytes
    partitions: int


#: Where records go: (index of the part that they follow, their size, the tags of the part, which follow them). A plain
#: tuple: one is made for most answers.
Gap = tuple[int, int, bytes]


_pack_int32 = struct.Struct(">i").pack
_pack_pair_of_int32 = struct.Struct(">ii").pack
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
#: The status of an answer that has nothing to say but its parts.
PLAIN: Final = (0, 0, 0)

_DIVERGING_EPOCH_TAG: Final = 0
_CURRENT_LEADER_TAG: Final = 1


def frame_fetch_response(
    version: int,
    correlation_id: int,
    topics: Sequence[EncodedTopic],
    parts: Sequence[bytes],
    gaps: Sequence[Gap] = (),
    status: tuple[int, int, int] = PLAIN,
) -> list[bytes]:
    """Return the answer around its records: one chunk more than there are gaps.

    ``parts`` are what `encode_part` and `PlainParts` return, topic by topic; ``gaps`` are in order, and their records
    go out between the chunks. ``status`` is (throttle time in ms, error code, session id). The first chunk begins with
    the size of the whole, records included, and the response header.
    """
    if len(parts) == 1 and len(topics) == 1 and status == PLAIN:
        return _frame_one(version, correlation_id, topics[0], parts[0], gaps)
    flexible = version >= FIRST_FLEXIBLE
    pieces = [b"\x00" if flexible else b""]
    pieces.append(_pack_head(*status) if version >= SESSION_FROM else _pack_int32(status[0]))
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
    """Return the entries of an answer, given the topic (name, id) of each part; neighbours share one."""
    return [
        EncodedTopic(head + _count_bytes(count, version >= FIRST_FLEXIBLE), count)
        for head, count in ((_topic_head(version, *topic), len(list(parts))) for topic, parts in groupby(topics))
    ]


def _frame_one(version: int, correlation_id: int, topic: EncodedTopic, part: bytes, gaps: Sequence[Gap]) -> list[bytes]:
    """Return the answer of one part, by a shorter way to the same bytes."""
    head = _HEADS_OF_ONE[version] + topic.head + part
    end = b"\x00\x00" if version >= FIRST_FLEXIBLE else b""
    if not gaps:
        return [_pack_pair_of_int32(len(head) + len(end) + 4, correlation_id) + head + end]
    _, records_bytes, tags = gaps[0]
    end = tags + end
    return [_pack_pair_of_int32(len(head) + records_bytes + len(end) + 4, correlation_id) + head, end]


class PlainParts:
    """Encodes parts that have neither an error nor an aborted transaction, for one version. HOT."""

    __slots__ = ("_end", "_is_flexible", "_middle", "_with_start", "tags")

    def __init__(self, version: int, *, committed: bool) -> None:
        """Make an encoder for one version; ``committed``: the client has asked for committed reads."""
        self._with_start = version >= LOG_START_FROM
        self._is_flexible = version >= FIRST_FLEXIBLE
        part = FetchPartResponse(0, 0, 0, aborted_transactions=() if committed else None)
        numbers = self._numbers(0, 0, -1, -1)
        no_records = unsigned_varint_bytes(1) if self._is_flexible else _pack_int32(0)
        self._middle = encode_part(version, part).removeprefix(numbers).removesuffix(no_records)
        #: What follows the records of a part.
        self.tags = part_tags(version, part)
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
    """Return what stands before the only topic of an answer that has nothing else to say."""
    flexible = version >= FIRST_FLEXIBLE
    tags = b"\x00" if flexible else b""
    return tags + (_pack_head(0, 0, 0) if version >= SESSION_FROM else _pack_int32(0)) + _count_bytes(1, flexible)


#: By version.
_HEADS_OF_ONE: Final = {version: _head_of_one(version) for version in range(4, 19)}


def _topic_head(version: int, name: str | None, topic_id: bytes | None) -> bytes:
    """Return how the entry of a topic begins: by name below version 13, by id (16 bytes) from there on."""
    if version >= TOPIC_ID_FROM:
        return topic_id or ZERO_TOPIC_ID
    return compact_string_bytes(name or "") if version >= FIRST_FLEXIBLE else string_bytes(name or "")


def encode_part(version: int, part: FetchPartResponse) -> bytes:
    """Return a part up to and including the length of its records, which its `part_tags` follow."""
    partition, error_code, high_watermark, stable, start, records_size, aborted, replica, _, _ = part
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


def part_tags(version: int, part: FetchPartResponse) -> bytes:
    """Return what follows the records of a part."""
    if version < FIRST_FLEXIBLE:
        return b""
    if part.diverging_epoch is None and part.current_leader is None:
        return b"\x00"
    fields = []
    if part.diverging_epoch is not None:
        fields.append((_DIVERGING_EPOCH_TAG, _pack_epoch_end(*part.diverging_epoch)))
    if part.current_leader is not None:
        fields.append((_CURRENT_LEADER_TAG, _pack_leader(*part.current_leader)))
    return tagged_fields_bytes(fields)
