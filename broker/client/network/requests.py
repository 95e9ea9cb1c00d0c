"""A request on its way and its response, as those who send one see them.

Values of the I/O thread.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from broker.protocol.codec import encode_request

if TYPE_CHECKING:
    from broker.client.errors import KafkaError

logger = logging.getLogger(__name__)

Buffer: TypeAlias = bytes | bytearray | memoryview
#: The bytes of a request, size and header included, by version, correlation id and client id. They are sent as they
#: are, one after the other, without being joined, and must not change until the response is there.
Build: TypeAlias = Callable[[int, int, str], Sequence[Buffer]]
#: The body of a response: by version, where it is, where it begins and where it ends.
Decode: TypeAlias = Callable[[int, Buffer, int, int], Any]


@dataclass(slots=True)
class ClientRequest:
    """A request for a broker.

    `versions` are the lowest and the highest version that `build` can write; None: those that this client speaks.
    `decode` makes the response's body; None: the compiled message. `callback` is called by `poll`, on the I/O thread.
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
    """What came of a request: `body`, or why there is none."""

    request: ClientRequest
    received_ms: float
    #: What was sent in; -1 if nothing was.
    version: int = -1
    body: Any = None
    disconnected: bool = False
    #: The connection was closed by this side, for the response took too long.
    timed_out: bool = False
    version_mismatch: KafkaError | None = None

    @property
    def node_id(self) -> int:
        """Which broker it is from."""
        return self.request.node_id

    @property
    def was_received(self) -> bool:
        """Whether there is a body."""
        return not self.disconnected and self.version_mismatch is None

    @property
    def latency_ms(self) -> float:
        """How long it took since the request was made."""
        return max(0.0, self.received_ms - self.request.created_ms)

    def complete(self) -> None:
        """Call the callback, if there is one."""
        if self.request.callback is not None:
            self.request.callback(self)


def codec_request(api_key: int, fields: Mapping[str, Any]) -> Build:
    """Return a `build` from Kafka's snake_case names, as `broker.protocol.codec` takes them."""

    def build(version: int, correlation_id: int, client_id: str) -> Sequence[Buffer]:
        return (encode_request(api_key, version, correlation_id, client_id, fields),)

    return build


def completed(responses: list[ClientResponse]) -> list[ClientResponse]:
    """Return the responses, their callbacks called; what a callback raises is logged (`G32`)."""
    for response in responses:
        try:
            response.complete()
        except Exception:
            logger.exception("Uncaught error in request completion:")
    return responses
