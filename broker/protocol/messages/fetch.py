"""Fetch, versions 4-18: the request and response codecs under one name."""

from broker.protocol.messages.fetch_request import (
    FetchPart,
    FetchRequest,
    ForgottenPart,
    parse_fetch,
)
from broker.protocol.messages.fetch_response import FetchPartResponse, FetchResponse, encode_fetch_response

__all__ = (
    "FetchPart",
    "FetchPartResponse",
    "FetchRequest",
    "FetchResponse",
    "ForgottenPart",
    "encode_fetch_response",
    "parse_fetch",
)
