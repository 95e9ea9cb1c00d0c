"""Compiled readers and writers of every version of every message: round trips, comparison with kio, malformed bytes."""

from __future__ import annotations

import io
import random
import struct
import tracemalloc
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from kio.index import KioIndexError, load_request_schema, load_response_schema
from kio.serial import entity_reader, entity_writer

from rotunda.broker.errors import InvalidReceive
from rotunda.broker.protocol.api_keys import ApiKey
from rotunda.broker.protocol.codec import decode_and_locate, read, reader, write, writer
from rotunda.broker.protocol.primitives import MOST_TAGGED_FIELDS, unsigned_varint_bytes
from rotunda.broker.protocol.schema.definitions import Field, MessageDefinition, StructureDefinition, definition
from rotunda.broker.protocol.schema.table import APIS, MESSAGES
from tests.protocol.random_messages import present_fields, random_mapping, random_message, versions_of

SEED = random.randrange(2**32)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
#: kio has other names for these.
RENAMED = {
    "acceptable_recovery_lag_legacy": "acceptable_recovery_lag",
    "generation_id_or_member_epoch": "generation_id",
    "id": "id_",
}


@pytest.fixture
def chance() -> random.Random:
    print(f"seed {SEED}")
    return random.Random(SEED)


def test_the_table_has_every_kind_of_message() -> None:
    kinds = {definition(name).kind for name in MESSAGES}
    assert kinds == {"request", "response", "header", "data", "key", "value"}
    for api in APIS.values():
        assert definition(f"{api}Request").versions == definition(f"{api}Response").versions


@pytest.mark.parametrize("name", MESSAGES)
def test_messages_are_read_as_they_were_written(name: str, chance: random.Random) -> None:
    message = definition(name)
    for version in versions_of(message):
        for _ in range(4):
            value = random_message(chance, message, version)
            body = write(name, version, value)
            assert read(name, version, b"??" + body + b"!!", 2, 2 + len(body)) == value
            mapping = random_mapping(chance, message.structure, version)
            body = write(name, version, mapping)
            assert write(name, version, read(name, version, memoryview(body), 0, len(body))) == body


@pytest.mark.parametrize("name", MESSAGES)
def test_malformed_messages_are_rejected_or_read(name: str, chance: random.Random) -> None:
    message = definition(name)
    for version in versions_of(message):
        body = write(name, version, random_message(chance, message, version))
        for cut in chance.choices(range(len(body) + 1), k=20):
            # Bytes after the message in its buffer are not part of it.
            attempt(name, version, body[:cut] + b"\1" * 64, cut)
        for _ in range(30):
            mutated = bytearray(body or b"\0")
            for _ in range(chance.choice((1, 1, 2, 8))):
                mutated[chance.randrange(len(mutated))] = chance.choice(
                    (0, 1, 2, 0x7F, 0x80, 0xFF, chance.randrange(256))
                )
            attempt(name, version, mutated, len(mutated))


def attempt(name: str, version: int, buffer: bytes | bytearray, end: int) -> None:
    try:
        read(name, version, buffer, 0, end)
    except InvalidReceive:
        return


@pytest.mark.parametrize("name", MESSAGES)
def test_a_message_that_is_cut_off_is_rejected(name: str, chance: random.Random) -> None:
    message = definition(name)
    for version in versions_of(message):
        body = write(name, version, random_message(chance, message, version))
        # At every byte of a short message, at some bytes of a long one.
        for cut in range(len(body)) if len(body) < 100 else chance.choices(range(len(body)), k=40):
            with pytest.raises(InvalidReceive):
                read(name, version, body, 0, cut)


def test_counts_and_lengths_are_checked_before_memory_is_allocated() -> None:
    claims = {
        ("DeleteGroupsRequest", 1): b"\x7f\xff\xff\xff" + bytes(20),
        ("DeleteGroupsRequest", 2): b"\xff\xff\xff\xff\x0f" + bytes(20),
        ("FetchRequest", 16): bytes(21) + b"\xff\xff\xff\xff\x0f" + bytes(20),
        ("ElectLeadersRequest", 0): b"\0\0\0\1\0\1t\x7f\xff\xff\xff" + bytes(20),
        ("SaslAuthenticateRequest", 1): b"\x7f\xff\xff\xff" + bytes(20),
        ("SaslAuthenticateRequest", 2): b"\xff\xff\xff\xff\x0f" + bytes(20),
        ("AssignReplicasToDirsRequest", 0): bytes(12) + b"\xff\xff\xff\xff\x0f" + bytes(20),
    }
    for (name, version), body in claims.items():
        reader(name, version)
        tracemalloc.start()
        with pytest.raises(InvalidReceive):
            read(name, version, body, 0, len(body))
        assert tracemalloc.get_traced_memory()[1] < 20_000, name
        tracemalloc.stop()


def test_elements_are_bounded_over_all_arrays() -> None:
    topics = [{"name": "t", "partitions": [{"partition_index": 0, "offset": 0}] * 9}] * 10
    body = write("DeleteRecordsRequest", 2, {"topics": topics, "timeout_ms": 5})
    assert read("DeleteRecordsRequest", 2, body, 0, len(body), 100).timeout_ms == 5
    with pytest.raises(InvalidReceive, match="more elements"):
        read("DeleteRecordsRequest", 2, body, 0, len(body), 99)


def test_null_is_rejected_where_the_version_does_not_allow_it() -> None:
    for name, version, body in (
        ("HeartbeatRequest", 0, b"\xff\xff" + bytes(12)),
        ("HeartbeatRequest", 4, b"\0" + bytes(12)),
        ("SaslAuthenticateRequest", 0, b"\xff\xff\xff\xff"),
        ("SaslAuthenticateRequest", 2, b"\0\0"),
        ("MetadataRequest", 0, b"\xff\xff\xff\xff"),
        ("DeleteGroupsRequest", 2, b"\0\0"),
    ):
        with pytest.raises(InvalidReceive, match="null"):
            read(name, version, body, 0, len(body))
    assert read("MetadataRequest", 1, b"\xff\xff\xff\xff", 0, 4).topics is None


def test_null_that_a_version_does_not_know_is_written_as_empty() -> None:
    assert write("MetadataRequest", 0, {"topics": None}) == bytes(4)
    body = write("JoinGroupResponse", 5, {})
    assert read("JoinGroupResponse", 5, body, 0, len(body)).protocol_name == ""


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("text", [b"caf\xe9", b"\xff\xfe" * 100])
def test_c06_strings_that_are_not_utf_8_are_read_as_kafka_reads_them(text: bytes, version: int) -> None:
    """Java's decoder has U+FFFD for such bytes. Legacy and compact lengths of one byte and of two."""
    stand_in = "x" * len(text)
    message = {"groups": [stand_in, "g"], "include_authorized_operations": True}
    body = write("DescribeGroupsRequest", version, message).replace(stand_in.encode(), text)
    found = read("DescribeGroupsRequest", version, b"?" + body, 1, 1 + len(body))
    assert found.groups == (text.decode(errors="replace"), "g")
    assert found.include_authorized_operations
    for cut in range(len(body)):
        with pytest.raises(InvalidReceive):
            read("DescribeGroupsRequest", version, body, 0, cut)


def test_varying_fields_are_located_behind_strings_that_are_not_utf_8() -> None:
    offset = {"partition_index": 0, "committed_offset": 7}
    message = {"group_id": "group", "topics": [{"name": "topic", "partitions": [offset]}]}
    request = b"??" + write("OffsetCommitRequest", 8, message).replace(b"group", b"gr\xffup")
    _, [(place, form)] = decode_and_locate(ApiKey.OFFSET_COMMIT, 8, request, 2, len(request))
    assert struct.unpack_from(f">{form}", request, place) == (7,)


def test_unknown_tagged_fields_are_skipped() -> None:
    body = write("HeartbeatRequest", 4, {"group_id": "g", "member_id": "m"})
    tagged = body[:-1] + b"\2\x05\3abc\x81\1\0"
    assert read("HeartbeatRequest", 4, tagged, 0, len(tagged)).member_id == "m"
    for end in range(len(body), len(tagged)):
        with pytest.raises(InvalidReceive):
            read("HeartbeatRequest", 4, tagged, 0, end)
    many = body[:-1] + unsigned_varint_bytes(MOST_TAGGED_FIELDS + 1) + b"\x7f\0" * (MOST_TAGGED_FIELDS + 1)
    with pytest.raises(InvalidReceive, match="tagged fields"):
        read("HeartbeatRequest", 4, many, 0, len(many))


def test_a_tagged_field_has_the_size_that_it_claims() -> None:
    body = write("FetchRequest", 12, {"cluster_id": "abc"})
    assert read("FetchRequest", 12, body, 0, len(body)).cluster_id == "abc"
    for size in (3, 5):
        wrong = body.replace(b"\1\0\4\4abc", b"\1\0" + bytes((size,)) + b"\4abc") + b"\0"
        with pytest.raises(InvalidReceive, match="wrong size"):
            read("FetchRequest", 12, wrong, 0, len(wrong))


def test_strings_are_as_long_as_kafkas() -> None:
    for length, is_valid in ((0x7FFF, True), (0x8000, False)):
        body = write("HeartbeatRequest", 4, {"group_id": "g" * length})
        if is_valid:
            assert len(read("HeartbeatRequest", 4, body, 0, len(body)).group_id) == length
        else:
            with pytest.raises(InvalidReceive, match="string group_id"):
                read("HeartbeatRequest", 4, body, 0, len(body))


@pytest.mark.parametrize("version", [0, 1])
def test_an_error_message_is_written_no_longer_than_a_string_may_be(version: int) -> None:
    """It may repeat a value of its request; clients reject a longer string."""
    name = "AlterClientQuotasResponse"
    entry = {"error_code": 42, "error_message": "x" + "é" * 20_000, "entity": []}
    body = write(name, version, {"throttle_time_ms": 0, "entries": [entry]})
    [found] = read(name, version, body, 0, len(body)).entries
    assert found.error_message == "x" + "é" * 16_383


def test_names() -> None:
    with pytest.raises(TypeError, match="group_ids"):
        write("HeartbeatRequest", 4, {"group_ids": "g"})
    with pytest.raises(TypeError, match="nam"):
        write("DeleteTopicsRequest", 6, {"topics": [{"nam": "t"}]})
    # Fields that the version lacks are dropped, with any value.
    assert write("HeartbeatRequest", 0, {"group_instance_id": "i"}) == write("HeartbeatRequest", 0, {})
    assert read("HeartbeatRequest", 0, bytes(8), 0, 8).group_instance_id is None


def test_versions_that_do_not_exist() -> None:
    for name, version in (("HeartbeatRequest", 5), ("HeartbeatRequest", -1), ("FetchRequest", 3), ("Nothing", 0)):
        with pytest.raises(InvalidReceive, match="no "):
            reader(name, version)
        with pytest.raises(InvalidReceive, match="no "):
            writer(name, version)


def kio_class(message: MessageDefinition, version: int) -> Any:
    """Return kio's class for a version of a message, or None."""
    try:
        load = load_request_schema if message.kind == "request" else load_response_schema
        return load(message.api_key, version)
    except KioIndexError:
        return None


def plain(entity: Any, structure: StructureDefinition, version: int) -> Any:
    """Return a kio object as a value of its structure's class."""
    values = {}
    for field in present_fields(structure, version):
        names = (field.name, field.name.removesuffix("_ms"), RENAMED.get(field.name, ""))
        (name,) = {each.name for each in fields(entity)} & set(names)
        found = getattr(entity, name)
        if isinstance(found, tuple):
            values[field.name] = tuple([bytes(16) if each is None else scalar(each, field, version) for each in found])
        else:
            values[field.name] = scalar(found, field, version)
    return structure.value_class(**values)


def scalar(value: Any, field: Field, version: int) -> Any:
    if field.structure is not None and is_dataclass(value):
        return plain(value, field.structure, version)
    if value is None and version not in field.nullable:
        return bytes(16) if field.kind == "uuid" else -1
    if isinstance(value, timedelta):
        return value // timedelta(milliseconds=1)
    if isinstance(value, datetime):
        return (value - EPOCH) // timedelta(milliseconds=1)
    return value.bytes if isinstance(value, UUID) else value


def known_to_kio() -> Iterator[str]:
    for name in MESSAGES:
        message = definition(name)
        if message.kind in {"request", "response"} and any(kio_class(message, each) for each in versions_of(message)):
            yield name


def fit_for_kio(value: Any, structure: StructureDefinition, version: int) -> Any:
    """Replace values that kio's classes cannot hold: unknown error codes, times before 1970 or far in the future."""
    for field in present_fields(structure, version):
        found = getattr(value, field.name)
        if field.structure is not None and found is not None:
            for each in found if field.is_array else (found,):
                fit_for_kio(each, field.structure, version)
        elif field.kind == "int16" and field.name.endswith("error_code"):
            setattr(value, field.name, abs(found) % 100)
        elif field.kind == "int64" and not field.is_array:
            setattr(value, field.name, abs(found) % 2**40)
    return value


@pytest.mark.parametrize("name", list(known_to_kio()))
def test_as_kio_reads_and_writes(name: str, chance: random.Random) -> None:
    message = definition(name)
    for version in versions_of(message):
        kio = kio_class(message, version)
        if kio is None:
            continue
        for _ in range(4):
            value = fit_for_kio(random_message(chance, message, version), message.structure, version)
            body = write(name, version, value)
            entity, size = entity_reader(kio)(body, 0)
            assert size == len(body)
            assert plain(entity, message.structure, version) == value
            buffer = io.BytesIO()
            entity_writer(kio)(buffer, entity)
            assert buffer.getvalue() == body
