"""The addresses and the software of clients by connection, for descriptions, and whether they are connected.

Written by processors, read by handlers. A processor fills a row when a connection opens (layout.CLIENT_HOST). The row's
index follows from the connection's id, so a handler with a request finds the row without a search, and requests do not
contain addresses. A handler's replacement knows as much as the handler did. A row outlives its connection until another
one uses it, so the address for a client's last requests is still found.
"""

from __future__ import annotations

import socket

from rotunda.shm.layout import CLIENT_HOST
from rotunda.shm.words import words_of

#: Rows of each processor, a power of two. Further connections are handled, but not described.
ROWS = 8192

#: The address of a connection without a row.
UNKNOWN = ""

_V4_MAPPED = bytes(10) + b"\xff\xff"
_NOWHERE = bytes(16)
_NOBODY = -1
_PROCESSOR_SHIFT = 48  # of a connection id, as layout.REQUEST_ENVELOPE has it
_MOST_KNOWN = 4096
_WORDS = CLIENT_HOST.size // 8
_ADDRESS = CLIENT_HOST.offset("address")
_ENDED = CLIENT_HOST.offset("ended_id") // 8
_SOFTWARE = CLIENT_HOST.offset("software")
_SOFTWARE_BYTES = CLIENT_HOST.size - _SOFTWARE
_SEPARATOR = b"\0"


def packed_host(host: str) -> bytes:
    """Return an IP address as 16 bytes; an IPv4 address in its mapped form."""
    if ":" in host:
        return socket.inet_pton(socket.AF_INET6, host.partition("%")[0])
    return _V4_MAPPED + socket.inet_aton(host)


def host_text(packed: bytes) -> str:
    """Return the address in a result of `packed_host`."""
    if packed.startswith(_V4_MAPPED):
        return socket.inet_ntoa(packed[12:])
    return socket.inet_ntop(socket.AF_INET6, packed)


def bytes_needed(processors: int) -> int:
    """Return the size of all rows."""
    return processors * ROWS * CLIENT_HOST.size


def place(processor: int) -> tuple[int, int]:
    """Return the start of a processor's rows, and their bytes."""
    return bytes_needed(processor), bytes_needed(1)


class ClientHostWriter:
    """One processor's rows. It may replace a writer that died at any point: connections do not outlive processors."""

    __slots__ = ("_used", "_view", "_words")

    def __init__(self, view: memoryview, processor: int) -> None:
        size_bytes = bytes_needed(1)
        start = processor * size_bytes
        self._view = view[start : start + size_bytes]
        self._words = words_of(view, start, size_bytes)
        self._used = bytearray(ROWS)

    def is_used(self, connection_id: int) -> bool:
        """Return whether a new connection's row is in use by an open one."""
        return bool(self._used[connection_id % ROWS])

    def put(self, connection_id: int, host: str) -> None:
        """Store a connection's address, unless its row is in use."""
        row = connection_id % ROWS
        if self._used[row]:
            return
        self._used[row] = 1
        at = row * CLIENT_HOST.size + _ADDRESS
        # SYNC: an invalid id, the address, then the id; pairs with the loads in ClientHosts.of.
        self._words[row * _WORDS] = _NOBODY
        self._view[at : at + len(_NOWHERE)] = packed_host(host)
        self._write_software(row, b"")
        self._words[row * _WORDS] = connection_id

    def introduce(self, connection_id: int, software: str, version: str) -> None:
        """Store the software of a connection that has a row: as much of the text as fits."""
        row = connection_id % ROWS
        if self._words[row * _WORDS] == connection_id:
            self._write_software(row, _SEPARATOR.join((software.encode(), version.encode())))

    def _write_software(self, row: int, text: bytes) -> None:
        at = row * CLIENT_HOST.size + _SOFTWARE
        self._view[at : at + _SOFTWARE_BYTES] = text[:_SOFTWARE_BYTES].ljust(_SOFTWARE_BYTES, _SEPARATOR)

    def end(self, connection_id: int) -> None:
        """Publish that a connection has ended, and free its row, which is unchanged until its next use."""
        row = connection_id % ROWS
        if self._words[row * _WORDS] == connection_id:
            self._used[row] = 0
            self._words[row * _WORDS + _ENDED] = connection_id


class ClientHosts:
    """Reads all processors' rows. Zeroed memory is valid, and has no address."""

    __slots__ = ("_known", "_processors", "_view", "_words")

    def __init__(self, view: memoryview, processors: int) -> None:
        self._view = view
        self._words = words_of(view, 0, bytes_needed(processors))
        self._processors = processors
        # Ids are never reused, so a cached address stays valid.
        self._known: dict[int, str] = {}

    def of(self, connection_id: int) -> str:
        """Return a connection's address in Kafka's format, "/127.0.0.1", or UNKNOWN."""
        known = self._known.get(connection_id)
        if known is not None:
            return known
        host = self._look_up(connection_id)
        if host:
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            self._known[connection_id] = host
        return host

    def software_of(self, connection_id: int) -> tuple[str, str]:
        """Return name and version of a connection's software; empty if they are unknown."""
        processor = connection_id >> _PROCESSOR_SHIFT
        if not 0 <= processor < self._processors:
            return "", ""
        word = (processor * ROWS + connection_id % ROWS) * _WORDS
        at = word * 8 + _SOFTWARE
        text = bytes(self._view[at : at + _SOFTWARE_BYTES])
        # The row is of the connection after the read: it was before, because ids are never reused.
        if self._words[word] != connection_id:
            return "", ""
        name, _, version = text.rstrip(_SEPARATOR).partition(_SEPARATOR)
        return name.decode(errors="replace"), version.decode(errors="replace")

    def has_ended(self, connection_id: int) -> bool:
        """Return whether a connection is known to have ended: the last one of its row. HOT."""
        processor = connection_id >> _PROCESSOR_SHIFT
        if not 0 <= processor < self._processors:
            return False
        ended_id: int = self._words[(processor * ROWS + connection_id % ROWS) * _WORDS + _ENDED]
        return ended_id == connection_id

    def _look_up(self, connection_id: int) -> str:
        processor = connection_id >> _PROCESSOR_SHIFT
        if not 0 <= processor < self._processors:
            return UNKNOWN
        word = (processor * ROWS + connection_id % ROWS) * _WORDS
        at = word * 8 + _ADDRESS
        # SYNC: the id, the address, then the id again; pairs with ClientHostWriter.put.
        if self._words[word] != connection_id:
            return UNKNOWN
        packed = bytes(self._view[at : at + len(_NOWHERE)])
        if self._words[word] != connection_id or packed == _NOWHERE:
            return UNKNOWN
        return f"/{host_text(packed)}"
