"""A raw connection to the broker: bytes out, frames in, every wait with a deadline.

It does not validate requests, so that it can send invalid ones; `wire_messages` builds valid ones.
"""

import socket
import struct
from types import TracebackType

from tests.support.deadline import deadline_s

_API_VERSIONS = 18


def request_frame(
    api_key: int, api_version: int, correlation_id: int, body: bytes = b"", *, flexible: bool = False
) -> bytes:
    """Return a whole request: size, header version 1 (2 when flexible), body."""
    client_id = b"wire"
    header = struct.pack(">hhih", api_key, api_version, correlation_id, len(client_id)) + client_id
    return sized(header + (b"\0" if flexible else b"") + body)


def sized(payload: bytes) -> bytes:
    """Return the payload with its size as prefix."""
    return struct.pack(">i", len(payload)) + payload


class WireClient:
    """One connection. Use it in a `with`; reading past the end raises AssertionError."""

    def __init__(self, port: int, *, source_host: str = "127.0.0.1"):
        self.socket = socket.create_connection(("127.0.0.1", port), deadline_s(), (source_host, 0))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._buffer = bytearray()

    def __enter__(self) -> "WireClient":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close at once."""
        self.socket.close()

    def send(self, data: bytes) -> None:
        """Send all the bytes."""
        self.socket.sendall(data)

    def receive_frame(self) -> bytes:
        """Return the next frame without its size; AssertionError on end of stream or deadline."""
        size = struct.unpack(">i", self._take(4))[0]
        return self._take(size)

    def receive_frames(self, count: int) -> list[bytes]:
        """Return the next frames in the order of their arrival."""
        return [self.receive_frame() for _ in range(count)]

    def call(
        self,
        api_key: int,
        api_version: int,
        body: bytes = b"",
        *,
        correlation_id: int = 1,
        flexible: bool = False,
    ) -> bytes:
        """Send one request and return its response after the correlation id, which must be the request's."""
        self.send(request_frame(api_key, api_version, correlation_id, body, flexible=flexible))
        answer = self.receive_frame()
        assert answer[:4] == struct.pack(">i", correlation_id), answer[:16]
        return answer[4:]

    def is_served(self) -> bool:
        """Return whether an ApiVersions request succeeds; False when the connection ends without a response."""
        try:
            return self.call(_API_VERSIONS, 0).startswith(bytes(2))
        except (AssertionError, OSError):
            return False

    def expect_closed(self) -> None:
        """Assert that the peer ends the connection and has sent nothing that was not received yet."""
        assert not self._buffer, bytes(self._buffer)
        try:
            data = self.socket.recv(65536)
        except ConnectionResetError:
            return
        except TimeoutError:
            raise AssertionError("the connection is still open") from None
        assert data == b"", f"{len(data)} bytes instead of the end: {data[:64]!r}"

    def _take(self, count: int) -> bytes:
        while len(self._buffer) < count:
            try:
                data = self.socket.recv(max(65536, count - len(self._buffer)))
            except TimeoutError:
                raise AssertionError(f"no answer: {len(self._buffer)} of {count} bytes") from None
            except ConnectionResetError:
                data = b""
            assert data, f"closed by the broker after {len(self._buffer)} of {count} bytes"
            self._buffer += data
        taken = bytes(self._buffer[:count])
        del self._buffer[:count]
        return taken
