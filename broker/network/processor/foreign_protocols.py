"""Detects the protocol of a client that does not use Kafka's, by the first bytes received.

Pure; used by processors. It turns the mysterious "receive size 369296129" into a sentence that its reader can act on.
"""

from __future__ import annotations

_HTTP_METHODS = (b"GET ", b"HEAD", b"POST", b"PUT ", b"DELE", b"OPTI", b"PATC", b"CONN", b"PRI ")
_TLS_HANDSHAKE = b"\x16\x03"
#: After the size of a request, whose first byte is also 0 unless it has 16 MB or more.
_API_KEY_AT = 4


def describe_foreign(start: bytes) -> str | None:
    """Return a sentence about the protocol of these first bytes, or None if it is not recognised."""
    if start[:4] in _HTTP_METHODS:
        return (
            "an HTTP request to a Kafka port: use a Kafka client; for the status page see the address in `rotunda "
            "status`"
        )
    if start[:2] == _TLS_HANDSHAKE:
        return (
            "a TLS client on a plaintext listener: set security.protocol=PLAINTEXT, or SASL_PLAINTEXT, in the client, "
            "or use an SSL listener"
        )
    if start[:4] == b"SSH-":
        return "an SSH client"
    return None


def describe_not_tls(start: bytes) -> str:
    """Return a sentence about a client that does not use TLS on a TLS listener, by its first bytes."""
    if start[:4] in _HTTP_METHODS:
        return (
            "an HTTP request to a Kafka port with TLS: use a Kafka client; for the status page see the address in "
            "`rotunda status`"
        )
    if not start[0] and (len(start) <= _API_KEY_AT or not start[_API_KEY_AT]):
        return "a Kafka request without TLS: set security.protocol=SSL, or SASL_SSL, in the client"
    return "not a TLS handshake, which the listener needs"
