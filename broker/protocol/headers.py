"""Request and response headers (`C06`), and the names of client software that ApiVersions adds to them (`C09`).

A processor reads key, version and correlation id; a handler parses the whole header to find the body. A request header
is version 1 or, for flexible requests, 2: the same plus tagged fields, with the two-byte length of the client id
unchanged. A response header is the correlation id (`C15`), plus tagged fields for flexible responses except
ApiVersions.
"""

import re
import struct
from typing import Any, Final, NamedTuple

from rotunda.broker.errors import InvalidReceive
from rotunda.broker.protocol.api_keys import FLEXIBLE_FROM, request_header_version, response_header_version
from rotunda.broker.protocol.primitives import (
    MALFORMED,
    Buffer,
    check_end,
    nullable_string_bytes,
    read_nullable_string,
    skip_tagged_fields,
)

_START: Final = struct.Struct(
    ">"
    "h"  # request_api_key
    "h"  # request_api_version
    "i"  # correlation_id
)
_LONGEST_BYTES: Final = 2**15 - 1
#: UTF-8 has four bytes a character at most.
_ALWAYS_FITS: Final = _LONGEST_BYTES // 4
#: The first version of ApiVersions with the client's software.
SOFTWARE_FROM: Final = 3
#: The node id of an ApiVersions that is for any node.
NO_NODE: Final = -1
_SOFTWARE: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
_unpack_start = _START.unpack_from
_pack_int32 = struct.Struct(">i").pack
_pack_correlation_and_tags = struct.Struct(">ix").pack


class RequestHeader(NamedTuple):
    """The header before every request body."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str
    """Empty when the client sent null. Invalid UTF-8 has U+FFFD in it, as in Kafka; cut to the length of a string."""
    body_offset: int
    """Where the body starts, in the buffer that was parsed."""


def parse_header(buffer: Buffer, offset: int, end: int) -> RequestHeader:
    """Return the header of the request in [offset, end).

    InvalidReceive when malformed or of an unknown API (`C07`).
    """
    try:
        api_key, api_version, correlation_id = _unpack_start(buffer, offset)
        flexible_from = FLEXIBLE_FROM.get(api_key)
        if flexible_from is None:
            raise InvalidReceive(f"unknown api key {api_key}")
        client_id, offset = read_nullable_string(buffer, offset + _START.size, end)
        if client_id is not None and len(client_id) > _ALWAYS_FITS:
            client_id = client_id.encode()[:_LONGEST_BYTES].decode(errors="ignore")
        if api_version >= flexible_from:
            offset = skip_tagged_fields(buffer, offset, end)
    except MALFORMED as error:
        raise InvalidReceive(f"malformed request header: {error}") from error
    check_end(offset, end)
    return RequestHeader(api_key, api_version, correlation_id, client_id or "", offset)


def is_valid_software(text: str) -> bool:
    """Return whether a name or version of client software may be shown and counted."""
    return _SOFTWARE.fullmatch(text) is not None


def is_valid_api_versions(version: int, request: Any) -> bool:
    """Return whether ApiVersions has valid client software (`C09`), and both the cluster and the node or neither."""
    if version < SOFTWARE_FROM:
        return True
    software = (request.client_software_name, request.client_software_version)
    names_cluster, names_node = request.cluster_id is not None, request.node_id != NO_NODE
    return names_cluster == names_node and all(map(is_valid_software, software))


def response_header(api_key: int, api_version: int, correlation_id: int) -> bytes:
    """Return the bytes between the size and the body of a response."""
    if response_header_version(api_key, api_version) == 0:
        return _pack_int32(correlation_id)
    return _pack_correlation_and_tags(correlation_id)


def request_header(api_key: int, api_version: int, correlation_id: int, client_id: str) -> bytes:
    """Return the bytes between the size and the body of a request."""
    head = _START.pack(api_key, api_version, correlation_id) + nullable_string_bytes(client_id)
    return head + b"\x00" if request_header_version(api_key, api_version) > 1 else head


def framed(message: bytes) -> bytes:
    return _pack_int32(len(message)) + message
