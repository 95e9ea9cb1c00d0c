"""Request headers of both versions, and the one response header that is an exception."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.schema.request_header.v1.header import RequestHeader as KioHeaderV1
from kio.schema.request_header.v2.header import RequestHeader as KioHeaderV2

from rotunda.broker.errors import InvalidReceive
from rotunda.broker.protocol.api_keys import FLEXIBLE_FROM, ApiKey, is_flexible, request_header_version
from rotunda.broker.protocol.headers import framed, is_valid_software, parse_header, response_header
from tests.protocol.kio_entities import few, kio_bytes
from tests.protocol.messages.hostile import check_hostile


@few
@given(
    api_key=st.sampled_from(sorted(FLEXIBLE_FROM)),
    version=st.integers(0, 20),
    correlation_id=st.integers(-(2**31), 2**31 - 1),
    client_id=st.none() | st.text(max_size=30),
)
def test_c06_request_headers_are_read_as_kio_writes_them(
    api_key: int, version: int, correlation_id: int, client_id: str | None
) -> None:
    header_class = KioHeaderV2 if is_flexible(api_key, version) else KioHeaderV1
    data = kio_bytes(
        header_class(
            request_api_key=api_key,
            request_api_version=version,
            correlation_id=correlation_id,
            client_id=client_id,
        )
    )
    header = parse_header(b"??" + data + b"body", 2, len(data) + 6)
    assert header == (api_key, version, correlation_id, client_id or "", 2 + len(data))


@pytest.mark.parametrize(
    ("client_id", "expected"),
    [
        (b"caf\xe9", "caf\ufffd"),
        (b"\xff\xfe-a", "\ufffd\ufffd-a"),
        (b"\xe2\x82", "\ufffd"),
        (b"\xc0\x80", "\ufffd\ufffd"),
        (b"\xf0\x9f\x98\x80\x80", "\U0001f600\ufffd"),
        (b"\xff" * 32767, "\ufffd" * (32767 // 3)),
    ],
)
@pytest.mark.parametrize("version", [8, 9])
def test_c06_a_client_id_that_is_not_utf_8_is_read_as_kafka_reads_it(
    client_id: bytes, expected: str, version: int
) -> None:
    header = struct.pack(">hhih", ApiKey.METADATA, version, 7, len(client_id)) + client_id + b"\0" * (version == 9)
    assert parse_header(memoryview(b"??" + header + b"body"), 2, 2 + len(header) + 4) == (
        ApiKey.METADATA, version, 7, expected, 2 + len(header)
    )  # fmt: skip


def test_flexible_versions_are_those_of_kio() -> None:
    from kio.index import load_request_schema  # noqa: PLC0415 - the loop below needs nothing else of it
    from kio.schema.index import api_key_map, schema_name_map  # noqa: PLC0415 - as above

    for api_key in ApiKey:
        for version in schema_name_map[api_key_map[api_key]]:
            schema = load_request_schema(api_key, version)
            assert schema.__flexible__ == is_flexible(api_key, version), (api_key, version)
            expected = 2 if schema.__header_schema__ is KioHeaderV2 else 1
            assert request_header_version(api_key, version) == expected


def test_c06_response_header_has_tags_when_flexible_except_for_api_versions() -> None:
    assert response_header(ApiKey.PRODUCE, 8, 258) == b"\x00\x00\x01\x02"
    assert response_header(ApiKey.PRODUCE, 9, 258) == b"\x00\x00\x01\x02\x00"
    assert response_header(ApiKey.API_VERSIONS, 4, 258) == b"\x00\x00\x01\x02"
    assert framed(b"abc") == b"\x00\x00\x00\x03abc"


@pytest.mark.parametrize("frame", [b"", b"\x00\x12\x00", b"\x00\x12\x00\x03\x00\x00\x00"])
def test_c03_c07_frame_too_short_for_a_header_is_invalid(frame: bytes) -> None:
    with pytest.raises(InvalidReceive):
        parse_header(frame, 0, len(frame))


def test_c07_unknown_api_key_is_invalid() -> None:
    with pytest.raises(InvalidReceive, match="999"):
        parse_header(b"\x03\xe7\x00\x00\x00\x00\x00\x01\xff\xff", 0, 10)


@pytest.mark.parametrize("tail", [b"\x00\x03abc", b"\x00\x03abc\x00"])
def test_hostile_headers_are_invalid_and_nothing_worse(tail: bytes) -> None:
    """C07."""
    version = b"\x00\x09" if tail.endswith(b"\x00") else b"\x00\x08"
    check_hostile(parse_header, b"\x00\x00" + version + b"\x00\x00\x00\x01" + tail)


@pytest.mark.parametrize("text", ["a", "apache-kafka-java", "librdkafka", "2.14.2", "A.b-9"])
def test_c09_good_software_names(text: str) -> None:
    assert is_valid_software(text)


@pytest.mark.parametrize("text", ["", "-a", "a-", ".a", "a.", "a b", "a_b", "ä", "a\n"])
def test_c09_bad_software_names(text: str) -> None:
    assert not is_valid_software(text)
