"""Fetch, versions 4-18: the request and response codecs under one name."""

from broker.protocol.messages.fetch_request import (
    FetchPart,
    FetchRequest,
    ForgottenPart,
    parse_fetch,
)
from broker.protocol.messages.fetch_response import (
    EncodedTopic,
    FetchPartResponse,
    Gap,
    PlainParts,
    encode_part,
    frame_fetch_response,
    part_tags,
)

__all__ = (
    "EncodedTopic",
    "FetchPart",
    "FetchPartResponse",
    "FetchRequest",
    "ForgottenPart",
    "Gap",
    "PlainParts",
    "encode_part",
    "frame_fetch_response",
    "parse_fetch",
    "part_tags",
)
