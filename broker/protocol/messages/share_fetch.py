"""ShareFetch's response, around records that stay in their files. HOT.

Versions 1 and 2 are equal. Pure; runs in handlers. The request and the other APIs of share groups have compiled codecs.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Final, NamedTuple

from rotunda.broker.protocol.primitives import unsigned_varint_bytes

_HEAD: Final = struct.Struct(
    ">i"  # correlation id
    "x"  # tagged fields of the header
    "i"  # throttle time
    "h"  # error code
    "x"  # error message: null
    "i"  # acquisition lock timeout
)
_PART: Final = struct.Struct(
    ">i"  # partition
    "h"  # error code
    "x"  # error message: null
    "h"  # acknowledge error code
    "x"  # acknowledge error message: null
    "i"  # current leader: unknown
    "i"  # its epoch: unknown
    "x"  # tagged fields of the leader
)
_ACQUIRED: Final = struct.Struct(
    ">q"  # first offset
    "q"  # last offset
    "h"  # delivery count
    "x"  # tagged fields
)
_SIZE: Final = struct.Struct(">i")
_NO_TAGS: Final = b"\0"
#: No node endpoints, no tagged fields.
_END: Final = b"\1\0"
_NOBODY: Final = -1

_topic_of = attrgetter("topic_id")


class SharePartResponse(NamedTuple):
    """A partition in a response; ``acquired`` are (first offset, last offset, delivery count)."""

    topic_id: bytes
    partition: int
    error_code: int = 0
    acknowledge_error_code: int = 0
    records_bytes: int = 0
    acquired: Sequence[tuple[int, int, int]] = ()


def frame_share_fetch_response(
    correlation_id: int, lock_timeout_ms: int, parts: Iterable[SharePartResponse], throttle_ms: int = 0
) -> list[bytes]:
    """Return the bytes before, between and after the records of the parts that have any, size prefix included.

    Neighbours of the same topic share its entry.
    """
    topics = [(topic_id, list(of_topic)) for topic_id, of_topic in groupby(parts, key=_topic_of)]
    pieces = [_HEAD.pack(correlation_id, throttle_ms, 0, lock_timeout_ms), unsigned_varint_bytes(len(topics) + 1)]
    chunks: list[bytes] = []
    records_bytes = 0
    for topic_id, of_topic in topics:
        pieces += (topic_id, unsigned_varint_bytes(len(of_topic) + 1))
        for _, partition, error, acknowledge_error, size, acquired in of_topic:
            pieces += (
                _PART.pack(partition, error, acknowledge_error, _NOBODY, _NOBODY),
                unsigned_varint_bytes(size + 1),
            )
            if size:
                chunks.append(b"".join(pieces))
                pieces = []
                records_bytes += size
            pieces.append(unsigned_varint_bytes(len(acquired) + 1))
            pieces += [_ACQUIRED.pack(*each) for each in acquired]
            pieces.append(_NO_TAGS)
        pieces.append(_NO_TAGS)
    pieces.append(_END)
    chunks.append(b"".join(pieces))
    chunks[0] = _SIZE.pack(sum(map(len, chunks)) + records_bytes) + chunks[0]
    return chunks
