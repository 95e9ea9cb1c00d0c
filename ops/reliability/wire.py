"""A raw connection: requests described by plain values, or any bytes at all. Each wait has a deadline."""

from __future__ import annotations

import socket
import struct
from types import TracebackType
from typing import Any, Self

from rotunda.broker.protocol import codec
from rotunda.broker.protocol.api_keys import ApiKey

CLIENT_ID = "campaign"
SECONDS = 15.0
RECEIVE_BYTES = 1 << 16
LARGEST_ANSWER_BYTES = 1 << 28


class Wire:
    """One connection, open in its `with` block. Raises OSError when it fails, ConnectionError when it is closed."""

    def __init__(self, port: int, seconds: float = SECONDS) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), seconds)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, failure: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def receive(self) -> bytes:
        (size,) = struct.unpack(">i", self._take(4))
        if not 0 <= size <= LARGEST_ANSWER_BYTES:
            raise ConnectionError(f"an answer of {size} bytes")
        return self._take(size)

    def ask(self, api_key: ApiKey, version: int, fields: dict[str, Any]) -> Any:
        """Send a request and return its response as a compiled message."""
        self.send(codec.encode_request(api_key, version, 1, CLIENT_ID, fields))
        answer = self.receive()
        return codec.decode_response(api_key, version, answer, 0, len(answer))

    def _take(self, size: int) -> bytes:
        pieces = []
        while size:
            piece = self.socket.recv(min(size, RECEIVE_BYTES))
            if not piece:
                raise ConnectionResetError("closed by the broker")
            pieces.append(piece)
            size -= len(piece)
        return b"".join(pieces)
