"""The names of foreign protocols in log lines."""

import pytest

from rotunda.broker.network.processor.foreign_protocols import describe_foreign


@pytest.mark.parametrize(
    ("start", "named"),
    [
        (b"GET / HTTP/1.1", "HTTP"),
        (b"POST /topic", "HTTP"),
        (b"PRI * HTTP/2.0", "HTTP"),
        (b"\x16\x03\x01\x02\x00\x01", "TLS"),
        (b"SSH-2.0-OpenSSH", "SSH"),
    ],
)
def test_known_openings_are_named(start: bytes, named: str) -> None:
    assert named in (describe_foreign(start) or "")


@pytest.mark.parametrize("start", [b"", b"G", b"\x16", b"\x00\x00\x00\x0c", b"\xff\xff\xff\xff", b"gibberish"])
def test_anything_else_is_not(start: bytes) -> None:
    assert describe_foreign(start) is None
