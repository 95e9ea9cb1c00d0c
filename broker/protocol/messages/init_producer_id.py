"""InitProducerId, versions 0-5: the first thing that an idempotent producer asks for."""

import struct
from typing import Final, NamedTuple

from broker.errors import InvalidReceive
from broker.protocol.primitives import (
    MALFORMED,
    Buffer,
    check_end,
    read_compact_nullable_string,
    read_nullable_string,
    skip_tagged_fields,
)

FIRST_FLEXIBLE: Final = 2
_PRODUCER_FROM: Final = 3


class InitProducerIdRequest(NamedTuple):
    """A request. `producer_id` and `producer_epoch` are what the producer has already, or -1."""

    transactional_id: str | None
    transaction_timeout_ms: int
    producer_id: int = -1
    producer_epoch: int = -1


class InitProducerIdResponse(NamedTuple):
    """An answer; both numbers are -1 with an error."""

    throttle_ms: int
    error_code: int
    producer_id: int = -1
    producer_epoch: int = -1


_unpack_int32 = struct.Struct(">i").unpack_from
_unpack_producer = struct.Struct(
    ">"
    "q"  # producer_id
    "h"  # producer_epoch
).unpack_from
_pack_size_and_correlation = struct.Struct(">ii").pack
_pack_body = struct.Struct(
    ">"
    "i"  # throttle_time_ms
    "h"  # error_code
    "q"  # producer_id
    "h"  # producer_epoch
).pack


def parse_init_producer_id(buffer: Buffer, version: int, offset: int, end: int) -> InitProducerIdRequest:
    """Return the request whose body is [offset, end) of `buffer`. InvalidReceive when malformed."""
    flexible = version >= FIRST_FLEXIBLE
    read = read_compact_nullable_string if flexible else read_nullable_string
    producer_id = producer_epoch = -1
    try:
        transactional_id, offset = read(buffer, offset, end)
        (timeout_ms,) = _unpack_int32(buffer, offset)
        offset += 4
        if version >= _PRODUCER_FROM:
            producer_id, producer_epoch = _unpack_producer(buffer, offset)
            offset += 10
        if flexible:
            offset = skip_tagged_fields(buffer, offset, end)
    except MALFORMED as error:
        raise InvalidReceive(f"malformed InitProducerId: {error}") from error
    check_end(offset, end)
    return InitProducerIdRequest(transactional_id, timeout_ms, producer_id, producer_epoch)


def encode_init_producer_id_response(version: int, correlation_id: int, response: InitProducerIdResponse) -> bytes:
    """Return the answer, size and header included."""
    body = _pack_body(*response)
    if version >= FIRST_FLEXIBLE:
        body = b"\x00" + body + b"\x00"
    return _pack_size_and_correlation(len(body) + 4, correlation_id) + body
