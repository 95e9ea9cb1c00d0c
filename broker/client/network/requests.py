"""A client's requests: their bytes and versions, the requests in flight, and the responses (`G22`, `G23`).

Values of the I/O thread; other threads also read `ApiVersions.finalized_features`. Kafka's InFlightRequests and
ApiVersions. This module must not know about connections.
"""

from __future__ import annotations

import logging
import math
import struct
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from rotunda.broker.client.errors import IllegalState, UnsupportedVersion
from rotunda.broker.client.network.backoff import time_left_ms
from rotunda.broker.errors import InvalidReceive
from rotunda.broker.protocol.api_keys import ApiKey, response_header_version
from rotunda.broker.protocol.codec import decode_body, encode_request
from rotunda.broker.protocol.error_codes import ErrorCode
from rotunda.broker.protocol.primitives import MALFORMED, skip_tagged_fields
from rotunda.broker.release import installed_version

if TYPE_CHECKING:
    from rotunda.broker.client.errors import KafkaError

logger = logging.getLogger(__name__)

Buffer: TypeAlias = bytes | bytearray | memoryview
#: Builds the buffers of a request, size and header included, from version, correlation id and client id. They are sent
#: in order without being joined, and must not change until the response is received.
Build: TypeAlias = Callable[[int, int, str], Sequence[Buffer]]
#: Decodes a response body from version, buffer, start and end.
Decode: TypeAlias = Callable[[int, Buffer, int, int], Any]
_CORRELATION_ID = struct.Struct(">i")
#: First version in which the client applies the throttle time (KIP-219); APIs not listed: every version.
_THROTTLED_FROM: Final[Mapping[int, int]] = {
    ApiKey.PRODUCE: 6,
    ApiKey.METADATA: 6,
    ApiKey.FIND_COORDINATOR: 2,
    ApiKey.API_VERSIONS: 2,
    ApiKey.INIT_PRODUCER_ID: 1,
    ApiKey.ADD_PARTITIONS_TO_TXN: 1,
    ApiKey.ADD_OFFSETS_TO_TXN: 1,
    ApiKey.END_TXN: 1,
    ApiKey.TXN_OFFSET_COMMIT: 1,
}


@dataclass(slots=True)
class ClientRequest:
    """A request for a broker.

    `versions` are the lowest and the highest version that `build` supports; None: those in CLIENT_VERSIONS.
    `decode` decodes the response body; None: the compiled message. `callback` is called by `poll`, on the I/O thread.
    """

    node_id: int
    api_key: int
    build: Build
    correlation_id: int
    created_ms: float
    expects_response: bool = True
    timeout_ms: float = 30_000
    callback: Callable[[ClientResponse], None] | None = None
    decode: Decode | None = None
    versions: tuple[int, int] | None = None


@dataclass(slots=True)
class ClientResponse:
    """The result of a request: `body`, or the reason for its absence."""

    request: ClientRequest
    received_ms: float
    #: Version of the sent request; -1 if it was not sent.
    version: int = -1
    body: Any = None
    disconnected: bool = False
    #: This side closed the connection, because the response exceeded its timeout.
    timed_out: bool = False
    version_mismatch: KafkaError | None = None

    @property
    def node_id(self) -> int:
        return self.request.node_id

    @property
    def was_received(self) -> bool:
        return not self.disconnected and self.version_mismatch is None

    @property
    def latency_ms(self) -> float:
        """Time since the request was created."""
        return max(0.0, self.received_ms - self.request.created_ms)

    def complete(self) -> None:
        """Call the callback, if any."""
        if self.request.callback is not None:
            self.request.callback(self)


def codec_request(api_key: int, fields: Mapping[str, Any]) -> Build:
    """Return a `build` from Kafka's snake_case field names, as in `broker.protocol.codec`."""

    def build(version: int, correlation_id: int, client_id: str) -> Sequence[Buffer]:
        return (encode_request(api_key, version, correlation_id, client_id, fields),)

    return build


def completed(responses: list[ClientResponse]) -> list[ClientResponse]:
    """Call the callbacks and return the responses; exceptions of callbacks are logged (`G32`)."""
    for response in responses:
        try:
            response.complete()
        except Exception:
            logger.exception("Uncaught error in request completion:")
    return responses


class NetworkReceive(NamedTuple):
    """One response: [offset, end) of `buffer`, without its size."""

    node_id: int
    buffer: Buffer
    offset: int
    end: int


class NetworkSend:
    """Buffers for a broker, sent in order and not joined; `completed` when all are sent."""

    __slots__ = ("_left", "buffers", "completed", "node_id", "size")

    def __init__(self, node_id: int, buffers: Sequence[Buffer]) -> None:
        self.node_id = node_id
        self.buffers = list(buffers)
        self.size = sum(map(len, buffers))
        self._left = self.size
        self.completed = False

    def write_to(self, write: Callable[[Sequence[Buffer]], int]) -> int:
        """Send the remaining buffers with `write`; return the number of bytes sent. Raises OSError."""
        sent = write(self.buffers)
        self._left -= sent
        if self._left == 0:
            self.completed = True
            # Free the memory of batches early.
            self.buffers = []
        elif sent:
            self._drop(sent)
        return sent

    def _drop(self, sent: int) -> None:
        buffers = self.buffers
        done = 0
        while sent >= len(buffers[done]):
            sent -= len(buffers[done])
            done += 1
        del buffers[:done]
        if sent:
            buffers[0] = memoryview(buffers[0])[sent:]


@dataclass(slots=True)
class InFlightRequest:
    """A request that was passed to the socket and has no response yet."""

    request: ClientRequest
    version: int
    send: NetworkSend
    sent_ms: float
    #: Sent by the network client itself; its response is not passed to callers.
    is_internal: bool
    throttle_ms: float = 0.0

    def is_expired(self, now_ms: float) -> bool:
        """Whether the response timeout has passed; throttle time does not count."""
        return time_left_ms(self.expires_ms, now_ms) == 0

    @property
    def expires_ms(self) -> float:
        return self.sent_ms + self.throttle_ms + self.request.timeout_ms


class InFlightRequests:
    """Requests in flight: one deque per broker, the newest on the left; responses complete the rightmost."""

    def __init__(self, max_per_connection: int) -> None:
        self._max = max_per_connection
        self._requests: dict[int, deque[InFlightRequest]] = {}

    def add(self, request: InFlightRequest) -> None:
        self._requests.setdefault(request.request.node_id, deque()).appendleft(request)

    def oldest(self, node_id: int) -> InFlightRequest:
        """Return the oldest request. Raises IllegalState if there is none."""
        return self._queue(node_id)[-1]

    def complete_next(self, node_id: int) -> InFlightRequest:
        """Remove and return the oldest request, whose response was received. Raises IllegalState if there is none."""
        return self._queue(node_id).pop()

    def last_sent(self, node_id: int) -> InFlightRequest:
        """Return the newest request. Raises IllegalState if there is none."""
        return self._queue(node_id)[0]

    def complete_last_sent(self, node_id: int) -> InFlightRequest:
        """Remove and return the newest request, which expects no response. Raises IllegalState if there is none."""
        return self._queue(node_id).popleft()

    def can_send_more(self, node_id: int) -> bool:
        """Whether nothing is in flight, or the newest request is sent completely and the limit is not reached."""
        queue = self._requests.get(node_id)
        return not queue or (queue[0].send.completed and len(queue) < self._max)

    def count(self, node_id: int) -> int:
        queue = self._requests.get(node_id)
        return len(queue) if queue is not None else 0

    @property
    def total(self) -> int:
        return sum(map(len, self._requests.values()))

    def clear(self, node_id: int) -> list[InFlightRequest]:
        """Remove and return all requests of a broker, in the order in which they were sent."""
        return list(reversed(self._requests.pop(node_id, ())))

    def nodes_with_timed_out_requests(self, now_ms: float) -> list[int]:
        return [
            node_id for node_id, queue in self._requests.items() if any(request.is_expired(now_ms) for request in queue)
        ]

    def next_timeout_ms(self, now_ms: float) -> float:
        """Return the time until the first request expires; infinity if none is in flight."""
        ends = [each.expires_ms for queue in self._requests.values() for each in queue]
        return time_left_ms(min(ends), now_ms) if ends else math.inf

    def increment_throttle_time(self, node_id: int, throttle_ms: float) -> None:
        """Extend the timeouts of a broker's requests by the throttle time."""
        for request in self._requests.get(node_id, ()):
            request.throttle_ms += throttle_ms

    def _queue(self, node_id: int) -> deque[InFlightRequest]:
        queue = self._requests.get(node_id)
        if not queue:
            raise IllegalState(f"no requests in flight to node {node_id}")
        return queue


def body_of(sent: InFlightRequest, receive: NetworkReceive) -> Any:
    """Decode the response to the oldest request in flight. Raises InvalidReceive."""
    request = sent.request
    _, buffer, offset, end = receive
    try:
        (correlation_id,) = _CORRELATION_ID.unpack_from(buffer, offset)
        if correlation_id != request.correlation_id:
            raise InvalidReceive(
                f"Correlation id for response ({correlation_id}) does not match request ({request.correlation_id}), "
                f"which is of API {request.api_key} in version {sent.version}"
            )
        offset += _CORRELATION_ID.size
        if response_header_version(request.api_key, sent.version) > 0:
            offset = skip_tagged_fields(buffer, offset, end)
        decode = request.decode
        if decode is not None:
            return decode(sent.version, buffer, offset, end)
        return decode_body(request.api_key, sent.version, buffer, offset, end)
    except (*MALFORMED, ValueError) as failure:
        raise InvalidReceive(f"malformed response of API {request.api_key}: {failure}") from failure


def throttle_time_ms(sent: InFlightRequest, body: Any) -> float:
    """Return the throttle time that the client must apply to the broker."""
    throttle = getattr(body, "throttle_time_ms", 0)
    if not throttle or sent.version < _THROTTLED_FROM.get(sent.request.api_key, 0):
        return 0.0
    return float(throttle)


SOFTWARE_NAME: Final = "rotunda-python"

#: Lowest and highest version that this client supports, for requests without their own `versions`: callers with an
#: encoder of their own pass those.
CLIENT_VERSIONS: Final[Mapping[int, tuple[int, int]]] = MappingProxyType(
    {
        ApiKey.METADATA: (1, 13),
        ApiKey.FIND_COORDINATOR: (0, 6),
        ApiKey.SASL_HANDSHAKE: (1, 1),
        ApiKey.API_VERSIONS: (0, 4),
        ApiKey.INIT_PRODUCER_ID: (0, 6),
        ApiKey.ADD_PARTITIONS_TO_TXN: (0, 3),
        ApiKey.ADD_OFFSETS_TO_TXN: (0, 4),
        ApiKey.END_TXN: (0, 5),
        ApiKey.TXN_OFFSET_COMMIT: (0, 5),
        ApiKey.SASL_AUTHENTICATE: (0, 2),
    }
)


@dataclass(frozen=True, slots=True)
class NodeApiVersions:
    """One broker's ApiVersions response."""

    #: Lowest and highest supported version, by API.
    ranges: Mapping[int, tuple[int, int]]
    #: Level of each finalized feature, and the epoch, -1 if absent (KIP-584).
    finalized_features: Mapping[str, int] = field(default_factory=dict)
    finalized_features_epoch: int = -1

    def latest_usable_version(self, api_key: int, oldest: int, latest: int) -> int:
        """Return the highest version that both sides support. Raises UnsupportedVersion."""
        served = self.ranges.get(api_key)
        if served is None:
            raise UnsupportedVersion(f"The node does not support {_name_of(api_key)}")
        usable = min(latest, served[1])
        if usable < max(oldest, served[0]):
            raise UnsupportedVersion(
                f"The node does not support {_name_of(api_key)} with version in range [{oldest},{latest}]. "
                f"The supported range is [{served[0]},{served[1]}]."
            )
        return usable


class ApiVersions:
    """The API versions of all connected brokers."""

    def __init__(self) -> None:
        self._nodes: dict[int, NodeApiVersions] = {}
        self._features: tuple[int, Mapping[str, int]] = (-1, {})

    def update(self, node_id: int, versions: NodeApiVersions) -> None:
        self._nodes[node_id] = versions
        if versions.finalized_features_epoch > self._features[0]:
            self._features = versions.finalized_features_epoch, versions.finalized_features

    def remove(self, node_id: int) -> None:
        """Delete a broker's versions: it may have been upgraded when it reconnects."""
        self._nodes.pop(node_id, None)

    def get(self, node_id: int) -> NodeApiVersions | None:
        """Return a broker's API versions; None before its first response."""
        return self._nodes.get(node_id)

    @property
    def finalized_features(self) -> tuple[int, Mapping[str, int]]:
        """The newest epoch of finalized features from any broker, and their levels by name."""
        return self._features


def api_versions_request() -> Build:
    """Return an ApiVersions request with this client's software name and version (KIP-511)."""
    fields = {"client_software_name": SOFTWARE_NAME, "client_software_version": _software_version()}
    return codec_request(ApiKey.API_VERSIONS, fields)


def decode_api_versions(sent_version: int, buffer: Buffer, offset: int, end: int) -> Any:
    """Decode the response into a compiled message. Raises InvalidReceive.

    A broker that does not support the requested version sends error 35 in a version 0 response (KIP-511).
    """
    refused = int.from_bytes(bytes(buffer[offset : offset + 2]), "big") == ErrorCode.UNSUPPORTED_VERSION
    return decode_body(ApiKey.API_VERSIONS, 0 if refused else sent_version, buffer, offset, end)


def node_api_versions(response: Any) -> NodeApiVersions:
    features: Sequence[Any] = response.finalized_features
    return NodeApiVersions(
        ranges={int(each.api_key): (int(each.min_version), int(each.max_version)) for each in response.api_keys},
        finalized_features={each.name: int(each.max_version_level) for each in features},
        finalized_features_epoch=int(response.finalized_features_epoch),
    )


def version_to_try_next(response: Any) -> int:
    """Return the ApiVersions version to retry with after error 35: the broker's highest, or 0 if it lists none."""
    served = (int(each.max_version) for each in response.api_keys if int(each.api_key) == ApiKey.API_VERSIONS)
    return min(next(served, 0), CLIENT_VERSIONS[ApiKey.API_VERSIONS][1])


def _name_of(api_key: int) -> str:
    return ApiKey(api_key).name if api_key in ApiKey.__members__.values() else f"API {api_key}"


@cache
def _software_version() -> str:
    return installed_version() or "unknown"
