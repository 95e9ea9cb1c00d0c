"""Foreign protocols: what a client that does not speak Kafka's probably speaks, by the first bytes it sent.

Pure. It turns the mysterious "receive size 369296129" into a sentence that its reader can act on.
"""

from __future__ import annotations

_HTTP_METHODS = (b"GET ", b"HEAD", b"POST", b"PUT ", b"DELE", b"OPTI", b"PATC", b"CONN", b"PRI ")
_TLS_HANDSHAKE = b"\x16\x03"


def describe_foreign(start: bytes) -> str | None:
    """Return a sentence about the protocol that these bytes open, or None when they could be anything."""
    if start[:4] in _HTTP_METHODS:
        return "this looks like HTTP: the port speaks Kafka's protocol; use a Kafka client"
    if start[:2] == _TLS_HANDSHAKE:
        return "this looks like TLS: the listener is PLAINTEXT; set security.protocol=PLAINTEXT in the client"
    if start[:4] == b"SSH-":
        return "this looks like SSH"
    return None
