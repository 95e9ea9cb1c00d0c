"""Readers and writers of every version of every message, compiled from Kafka's definitions when first used.

Run by every process. Messages have Kafka's names; `broker.protocol.codec` frames requests and responses.
"""

from __future__ import annotations

import sys
from functools import cache
from typing import Any

from rotunda.broker.errors import InvalidReceive
from rotunda.broker.protocol.primitives import Buffer
from rotunda.broker.protocol.schema.definitions import MessageDefinition, definition
from rotunda.broker.protocol.schema.marks import VARYING
from rotunda.broker.protocol.schema.reading import Read, make_reader
from rotunda.broker.protocol.schema.writing import Write, make_writer


@cache
def reader(name: str, version: int, own_fields: str = "") -> Read:
    """Return the function that reads a version of a message. InvalidReceive if the version does not exist."""
    return make_reader(_checked(name, version, own_fields), version)


@cache
def locator(name: str, version: int) -> Read:
    """Return the function that reads a version of a request, and locates its varying fields (`make_reader`)."""
    message = _checked(name, version, "")
    return make_reader(message, version, VARYING[message.api_key])


@cache
def writer(name: str, version: int, own_fields: str = "") -> Write:
    """Return the function that writes a version of a message. InvalidReceive if the version does not exist."""
    return make_writer(_checked(name, version, own_fields), version)


def read(name: str, version: int, buffer: Buffer, offset: int, end: int, most_elements: int = sys.maxsize) -> Any:
    """Decode the message in [offset, end) of `buffer`. Raises InvalidReceive."""
    return reader(name, version)(buffer, offset, end, most_elements)


def write(name: str, version: int, values: Any) -> bytes:
    """Return the bytes of a message from its value or from a mapping."""
    return writer(name, version)(values)


def _checked(name: str, version: int, own_fields: str) -> MessageDefinition:
    try:
        found = definition(name, own_fields)
    except KeyError as error:
        raise InvalidReceive(f"no message {name}") from error
    if version not in found.versions:
        raise InvalidReceive(f"no version {version} of {name}")
    return found
