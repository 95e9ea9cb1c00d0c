"""The message definitions and compiled codecs against those of Apache Kafka's jars."""

from __future__ import annotations

import base64
import json
import random
import re
import struct
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from ops import schema
from ops.compatibility import preparation
from rotunda.broker.errors import InvalidReceive
from rotunda.broker.protocol.codec import read, write
from rotunda.broker.protocol.schema.definitions import Field, StructureDefinition, definition
from rotunda.broker.protocol.schema.table import MESSAGES
from tests.protocol.random_messages import present_fields, random_message, versions_of
from tests.support.deadline import deadline_s

pytestmark = [pytest.mark.slow, pytest.mark.needs("schema")]

SEED = random.randrange(2**32)
EXAMPLES = 8

#: (message, version, bytes)
Case = tuple[str, int, bytes]


def test_the_tables_are_generated_from_the_jars() -> None:
    expected = schema.generate(preparation.SCHEMA_JARS)
    assert schema.TABLE.read_text(encoding="utf-8") == expected, "run ops/schema.py"
    errors = schema.generate_errors(preparation.SCHEMA_JARS, preparation.SCHEMA_CLASSES)
    assert schema.ERRORS.read_text(encoding="utf-8") == errors, "run ops/schema.py"


def test_kafka_reads_and_writes_the_same_bytes_and_values() -> None:
    print(f"seed {SEED}")
    chance = random.Random(SEED)
    cases: list[Case] = []
    values = []
    for name in MESSAGES:
        message = definition(name)
        for version in versions_of(message):
            for _ in range(EXAMPLES):
                values.append(random_message(chance, message, version))
                cases.append((name, version, write(name, version, values[-1])))
    for (name, version, body), value, (written, text) in zip(cases, values, kafka(cases), strict=True):
        assert written == body, (name, version, value, text)
        assert json.loads(text) == as_json(value, definition(name).structure, version), (name, version)


def test_what_kafka_writes_again_is_read_as_the_same_value() -> None:
    """Of changed bytes, those that both accept: unknown tagged fields are added, so that Kafka preserves them."""
    print(f"seed {SEED}")
    chance = random.Random(SEED)
    cases: list[Case] = []
    for name in MESSAGES:
        message = definition(name)
        for version in versions_of(message):
            for _ in range(EXAMPLES):
                body = bytearray(write(name, version, random_message(chance, message, version)))
                for _ in range(min(len(body), 2)):
                    body[chance.randrange(len(body))] = chance.randrange(256)
                if accepted(name, version, bytes(body)) is not None:
                    cases.append((name, version, bytes(body)))
    compared = 0
    for (name, version, body), (written, text) in zip(cases, kafka(cases), strict=True):
        if not written and body:
            # Kafka rejects text that repeats a key, arrays that it has no memory for, and so on.
            print(name, version, text)
            continue
        compared += 1
        again, first = (_with_short_gaps(accepted(name, version, each)) for each in (written, body))
        assert again == first, (name, version, body)
    assert compared > len(cases) * 0.9


def _with_short_gaps(value: Any) -> str:
    """Return a message as text. For bytes that are not UTF-8 Java has fewer U+FFFD in a row than Python."""
    return re.sub("\ufffd+", "\ufffd", repr(value))


def accepted(name: str, version: int, body: bytes) -> Any:
    try:
        return read(name, version, body, 0, len(body))
    except InvalidReceive:
        return None


def kafka(cases: list[Case]) -> Iterator[tuple[bytes, str]]:
    """Yield Kafka's encoding of each message, and its values as JSON or the failure."""
    request = bytearray()
    for name, version, body in cases:
        request += struct.pack(">i", len(name)) + name.encode() + struct.pack(">hi", version, len(body)) + body
    request += struct.pack(">i", -1)
    classes = f"{preparation.SCHEMA_CLASSES}:{preparation.SCHEMA_JARS}/*"
    command = ["java", "-Xmx256m", "-cp", classes, "RoundTrip"]
    response = subprocess.run(command, input=request, capture_output=True, check=True, timeout=deadline_s(100)).stdout
    offset = 0
    for _ in cases:
        parts = []
        for _ in range(2):
            (size,) = struct.unpack_from(">i", response, offset)
            parts.append(response[offset + 4 : offset + 4 + size])
            offset += 4 + size
        yield parts[0], parts[1].decode()


def as_json(value: Any, structure: StructureDefinition, version: int) -> dict[str, Any]:
    """Return a value as Kafka's converters to JSON have it."""
    found = {}
    for field in present_fields(structure, version):
        inner = getattr(value, field.name)
        if field.kind == "records" and inner is not None:
            found[f"{camel_case(field.name)}SizeInBytes"] = len(inner)
        elif field.tag is None or inner != field.default:
            found[camel_case(field.name)] = field_as_json(inner, field, version)
    return found


def field_as_json(value: Any, field: Field, version: int) -> Any:
    if isinstance(value, tuple):
        return [field_as_json(each, field, version) for each in value]
    if value is None:
        return None
    if field.structure is not None:
        return as_json(value, field.structure, version)
    if field.kind == "uuid":
        return base64.urlsafe_b64encode(value).decode().rstrip("=")
    return base64.b64encode(value).decode() if isinstance(value, bytes) else value


def camel_case(name: str) -> str:
    return re.sub(r"_([a-z0-9])", lambda found: found[1].upper(), name)
