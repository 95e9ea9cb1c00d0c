"""Fetch, versions 4-18: the request and response codecs under one name."""

from broker.protocol.messages.fetch_request import (
    FetchPart,
    FetchRequest,
    ForgottenPart,
    parse_fetch,
)
from broker.protocol.messages.fetch_response import (
    EmptyParts,
    EncodedTopic,
    FetchPartResponse,
    Gap,
    encode_part,
    frame_fetch_response,
    part_tags,
)

__all__ = (
    "EmptyParts",
    "EncodedTopic",
    "FetchPart",
    "FetchPartResponse",
    "FetchRequest",
    "ForgottenPart",
    "Gap",
    "encode_part",
    "frame_fetch_response",
    "parse_fetch",
    "part_tags",
)
