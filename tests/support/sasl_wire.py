"""A connection to a broker that speaks SASL frame by frame, as a test likes."""

import socket
import struct
from typing import Any, Self

from rotunda.broker.protocol import codec
from rotunda.broker.protocol.api_keys import ApiKey
from tests.support.scram_client import ScramClient


class SaslWire:
    """A connection that speaks as it likes."""

    def __init__(self, address: int):
        self.socket = socket.create_connection(("127.0.0.1", address), 20)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def request(self, key: ApiKey, version: int, **fields: Any) -> Any:
        """Return the response to a request. Raises ConnectionError when there is none."""
        self.socket.sendall(codec.encode_request(key, version, 1, "wire", fields))
        return self.answer(key, version)

    def answer(self, key: ApiKey, version: int) -> Any:
        """Return the next response."""
        (size,) = struct.unpack(">i", self.take(4))
        body = self.take(size)
        return codec.decode_response(key, version, memoryview(body), 0, size)

    def take(self, size: int) -> bytes:
        """Return so many bytes."""
        data = b""
        while len(data) < size:
            more = self.socket.recv(size - len(data))
            if not more:
                raise ConnectionError("closed")
            data += more
        return data

    def log_in(self, user: str, password: str, mechanism: str = "SCRAM-SHA-256") -> Any:
        """Authenticate by SCRAM; return the last response."""
        assert int(self.request(ApiKey.SASL_HANDSHAKE, 1, mechanism=mechanism).error_code) == 0
        client = ScramClient(mechanism, user, password)
        first = self.request(ApiKey.SASL_AUTHENTICATE, 2, auth_bytes=client.first())
        last = self.request(ApiKey.SASL_AUTHENTICATE, 2, auth_bytes=client.last(bytes(first.auth_bytes)))
        if not int(last.error_code):
            client.check(bytes(last.auth_bytes))
        return last
