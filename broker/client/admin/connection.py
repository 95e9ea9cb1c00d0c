"""One blocking connection to a broker: a request out, its response back. Used by the command line only.

It speaks Kafka's protocol like any client, by TLS and SASL where its access says so, so `rotunda topic` works against
any Kafka broker. One request is in flight at a time; there is no retry and no metadata cache.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

from broker.client.access import PLAIN_TEXT, Access
from broker.client.sasl import exchange
from broker.errors import ApiError, InvalidReceive, RotundaError
from broker.protocol import codec
from broker.protocol.api_keys import ApiKey
from broker.protocol.error_codes import ErrorCode

CLIENT_ID = "rotunda-cli"
_SIZE = struct.Struct(">i")
_CORRELATION = struct.Struct(">i")
_LARGEST_RESPONSE_BYTES = 1 << 28


class ConnectionFailed(RotundaError):  # noqa: N818 - named for what happened, like its siblings
    """The broker cannot be reached, or closed the connection, or answered nonsense."""


class ConnectionEnded(ConnectionFailed):
    """The broker has ended a connection that stood."""


class Connection:
    """A connection, open in its `with` block. `address` is host:port; of a comma-separated list the first."""

    def __init__(
        self, address: str, timeout_s: float = 30.0, client_id: str = CLIENT_ID, access: Access = PLAIN_TEXT
    ) -> None:
        self._address = address
        self._client_id = client_id
        self._access = access
        self._timeout_s = timeout_s
        self._correlation_id = 0
        self._socket: socket.socket | None = None
        self._ranges: dict[int, tuple[int, int]] = {}

    def __enter__(self) -> Self:
        try:
            self._socket = socket.create_connection(self.endpoint, self._timeout_s)
            if self._access.context is not None:
                self._socket = self._access.context.wrap_socket(self._socket, server_hostname=self.endpoint[0])
        except (OSError, ValueError) as failure:
            self.close()
            raise ConnectionFailed(f"cannot connect to {self._address}: {failure}") from failure
        try:
            answer = self.request(ApiKey.API_VERSIONS, 0, {})
            if self._access.authenticates:
                self.authenticate()
        except BaseException:
            self.close()
            raise
        self._ranges = {int(each.api_key): (each.min_version, each.max_version) for each in answer.api_keys}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, failure: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def endpoint(self) -> tuple[str, int]:
        """The host and port that it leads to. Raises ValueError for a port that is no number."""
        host, _, port = self._address.partition(",")[0].rpartition(":")
        return host.strip("[]"), int(port)

    def close(self) -> None:
        """Close the socket."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    @property
    def is_open(self) -> bool:
        """Whether requests may be sent: it has been opened, and none has failed."""
        return self._socket is not None

    def serves(self, api_key: ApiKey) -> bool:
        """Return whether the broker serves any version of the API."""
        return api_key in self._ranges

    @property
    def ranges(self) -> Mapping[int, tuple[int, int]]:
        """The lowest and the highest version that the broker serves, by API."""
        return self._ranges

    def highest_version(self, api_key: ApiKey, known: int, oldest: int = 0) -> int:
        """Return the highest version from `oldest` to `known` that is served. Raises ConnectionFailed if none is."""
        lowest, highest = self._ranges.get(api_key, (0, -1))
        version = min(known, highest)
        if version < max(lowest, oldest):
            wanted = f" in version {oldest} or newer" if highest >= 0 and version < oldest else ""
            raise ConnectionFailed(f"the broker at {self._address} does not serve {api_key.name}{wanted}")
        return version

    def request(self, api_key: ApiKey, version: int, fields: Mapping[str, Any]) -> Any:
        """Send a request and return its response as a compiled message.

        `fields` are Kafka's snake_case names, as `broker.protocol.codec` takes them.
        """
        self._correlation_id += 1
        wire = codec.encode_request(api_key, version, self._correlation_id, self._client_id, fields)
        try:
            response = self._exchange(wire)
            (correlation_id,) = _CORRELATION.unpack_from(response)
            if correlation_id != self._correlation_id:
                raise ConnectionFailed(f"{self._address} answered another request than the one sent")
            return codec.decode_response(api_key, version, memoryview(response), 0, len(response))
        except (OSError, struct.error, InvalidReceive) as failure:
            self.close()
            raise ConnectionEnded(f"{api_key.name} to {self._address} failed: {failure}") from failure
        except ConnectionFailed:
            # An answer that comes after all would be taken for another's.
            self.close()
            raise

    def authenticate(self) -> None:
        """Say by SASL who this is. Raises ApiError with the broker's words, and NotTheBroker."""
        check(self.request(ApiKey.SASL_HANDSHAKE, 1, {"mechanism": self._access.mechanism}))
        self.exchange_tokens()

    def exchange_tokens(self) -> None:
        """Do what follows a SaslHandshake. Raises ApiError with the broker's words, and NotTheBroker."""
        access = self._access
        steps = exchange(access.mechanism, access.user, access.password, access.token)
        message = next(steps)
        while True:
            answer = self.request(ApiKey.SASL_AUTHENTICATE, 1, {"auth_bytes": message})
            check(answer)
            try:
                message = steps.send(bytes(answer.auth_bytes))
            except StopIteration:
                return

    def _exchange(self, wire: bytes) -> bytes:
        if self._socket is None:
            raise ConnectionFailed(f"the connection to {self._address} is closed")
        self._socket.sendall(wire)
        (size,) = _SIZE.unpack(self._receive(_SIZE.size))
        if not 0 < size <= _LARGEST_RESPONSE_BYTES:
            raise ConnectionFailed(f"{self._address} does not speak Kafka's protocol")
        return self._receive(size)

    def _receive(self, size: int) -> bytes:
        if self._socket is None:
            raise ConnectionFailed(f"the connection to {self._address} is closed")
        buffer = bytearray(size)
        view = memoryview(buffer)
        filled = 0
        while filled < size:
            count = self._socket.recv_into(view[filled:])
            if count == 0:
                raise ConnectionEnded(f"{self._address} closed the connection")
            filled += count
        return bytes(buffer)


def check(result: Any) -> None:
    """Raise ApiError, with the broker's own words if it has any, when a part of an answer carries an error code."""
    if int(result.error_code):
        raise ApiError(int(result.error_code), getattr(result, "error_message", None))


def name_of(code: int) -> str:
    """Return Kafka's name of an error code, or the number when this version knows none."""
    return next((error.name for error in ErrorCode if error == code), f"error {code}")
