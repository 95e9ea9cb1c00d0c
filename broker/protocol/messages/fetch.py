"""Fetch, versions 4-18: the request and response codecs under one name."""

from broker.protocol.messages.fetch_request import (
    FIRST_EPOCH,
    NO_EPOCH,
    TOPIC_ID_FROM,
    FetchPart,
    FetchRequest,
    ForgottenPart,
    PartFields,
    parse_fetch,
    varying_places,
)
from broker.protocol.messages.fetch_response import (
    EncodedTopic,
    FetchPartResponse,
    Gap,
    PlainParts,
    encode_part,
    encode_topics,
    frame_fetch_response,
    part_tags,
)

__all__ = (
    "FIRST_EPOCH",
    "NO_EPOCH",
    "TOPIC_ID_FROM",
    "EncodedTopic",
    "FetchPart",
    "FetchPartResponse",
    "FetchRequest",
    "ForgottenPart",
    "Gap",
    "PartFields",
    "PlainParts",
    "encode_part",
    "encode_topics",
    "frame_fetch_response",
    "parse_fetch",
    "part_tags",
    "varying_places",
)
