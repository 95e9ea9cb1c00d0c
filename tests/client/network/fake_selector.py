"""Connections under the control of a test, on a clock that only advances when a poll waits."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Mapping, Sequence
from socket import AF_INET
from typing import Any
from uuid import NAMESPACE_DNS, uuid5

from rotunda.broker.client.network.addresses import Address, HostAndPort
from rotunda.broker.client.network.channel import ChannelPhase, ChannelState, Endpoint
from rotunda.broker.client.network.metadata import ProducerMetadata
from rotunda.broker.client.network.network_client import NetworkClient
from rotunda.broker.client.network.network_config import NetworkConfig
from rotunda.broker.client.network.requests import (
    ClientRequest,
    ClientResponse,
    NetworkReceive,
    NetworkSend,
    codec_request,
)
from rotunda.broker.client.network.snapshot import Node
from rotunda.broker.protocol.api_keys import ApiKey
from rotunda.broker.protocol.codec import encode_response
from rotunda.broker.protocol.headers import RequestHeader, parse_header
from tests.support.fakes import FakeClock

SEED = 20_260_923
INIT_PRODUCER_ID = {"transactional_id": None, "transaction_timeout_ms": 1000, "producer_id": -1, "producer_epoch": -1}

#: The API versions of the brokers of these tests.
SERVED = {
    ApiKey.PRODUCE: (3, 12),
    ApiKey.METADATA: (0, 12),
    ApiKey.API_VERSIONS: (0, 4),
    ApiKey.INIT_PRODUCER_ID: (0, 5),
}


class FakeSelector:
    """`Selectable` whose next poll is set by a test."""

    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock
        self.connected: list[int] = []
        self.disconnected: dict[int, ChannelState] = {}
        self.completed_sends: list[NetworkSend] = []
        self.completed_receives: list[NetworkReceive] = []
        #: The connections that were started, those that are ready, and the timeouts of polls.
        self.endpoints: dict[int, Endpoint] = {}
        self.attempts: list[tuple[int, str]] = []
        self.begun_ms: dict[int, float] = {}
        self.ready: set[int] = set()
        self.timeouts: list[float] = []
        #: Headers of sent requests: all, and by broker those without a response yet.
        self.sent: list[RequestHeader] = []
        self.unanswered: dict[int, list[RequestHeader]] = {}
        #: Whether sent requests leave at once.
        self.leaves = True
        self.wakeups = 0
        self._coming: list[NetworkReceive] = []
        self._connecting: list[int] = []
        self._ending: dict[int, ChannelState] = {}

    def connect(self, node_id: int, endpoint: Endpoint, send_buffer_bytes: int, receive_buffer_bytes: int) -> None:
        del send_buffer_bytes, receive_buffer_bytes
        assert node_id not in self.endpoints
        self.endpoints[node_id] = endpoint
        self.attempts.append((node_id, endpoint.address.host))
        self.begun_ms[node_id] = self.clock.monotonic_ns() / 1_000_000

    def send(self, send: NetworkSend) -> None:
        assert send.node_id in self.ready
        data = b"".join(send.buffers)
        header = parse_header(data, 4, len(data))
        self.sent.append(header)
        self.unanswered.setdefault(send.node_id, []).append(header)
        if self.leaves:
            send.write_to(lambda buffers: sum(map(len, buffers)))

    def poll(self, timeout_ms: float) -> None:
        self.timeouts.append(timeout_ms)
        self.connected, self._connecting = self._connecting, []
        self.disconnected, self._ending = self._ending, {}
        self.completed_receives, self._coming = self._coming, []
        self.completed_sends = []
        if not (self.connected or self.disconnected or self.completed_receives) and not math.isinf(timeout_ms):
            self.clock.advance_ns(math.ceil(timeout_ms * 1_000_000))

    def wakeup(self) -> None:
        self.wakeups += 1

    def is_channel_ready(self, node_id: int) -> bool:
        return node_id in self.ready

    def close_channel(self, node_id: int) -> None:
        self.ready.discard(node_id)
        self.endpoints.pop(node_id, None)
        self.unanswered.pop(node_id, None)

    def close(self) -> None:
        for node_id in list(self.endpoints):
            self.close_channel(node_id)

    # Actions of a test.

    def establish(self, node_id: int) -> None:
        """Complete a connection."""
        assert node_id in self.endpoints
        self.ready.add(node_id)
        self._connecting.append(node_id)

    def end(self, node_id: int, state: ChannelState | None = None) -> None:
        """End a connection, or fail its connect."""
        self.close_channel(node_id)
        self._ending[node_id] = state or ChannelState(ChannelPhase.READY, "broker")

    def response(self, node_id: int, fields: Mapping[str, Any], version: int | None = None) -> None:
        """Respond to the oldest request of a broker."""
        header = self.unanswered[node_id].pop(0)
        answered_in = header.api_version if version is None else version
        self.receive(node_id, encode_response(header.api_key, answered_in, header.correlation_id, fields)[4:])

    def receive(self, node_id: int, response: bytes) -> None:
        """Receive these bytes as a response."""
        self._coming.append(NetworkReceive(node_id, response, 0, len(response)))


class World:
    """A client of brokers 1 to `brokers`, all of which a test plays."""

    def __init__(self, config: NetworkConfig | None = None, brokers: int = 2) -> None:
        self.config = config or NetworkConfig(client_id="me")
        self.clock = FakeClock(monotonic_ns=1_000_000_000)
        self.selector = FakeSelector(self.clock)
        chance = random.Random(SEED)
        self.metadata = ProducerMetadata(self.config, chance, self.clock)
        self.metadata.bootstrap([HostAndPort("first", 9092)])
        self.addresses = {f"host{number}": [Address(AF_INET, f"10.0.0.{number}")] for number in range(1, brokers + 1)}
        self.addresses["first"] = [Address(AF_INET, "10.0.0.100")]
        self.client = NetworkClient(self.selector, self.metadata, self.config, self.clock, chance, self._look_up)
        self.nodes = [Node(number, f"host{number}", 9092) for number in range(1, brokers + 1)]

    def _look_up(self, host: str) -> list[Address]:
        if host not in self.addresses:
            raise OSError(f"no such host: {host}")
        return self.addresses[host]

    @property
    def now_ms(self) -> float:
        """Return the clock's time."""
        return self.clock.monotonic_ns() / 1_000_000

    def poll(self, timeout_ms: float = 0.0) -> list[ClientResponse]:
        """Poll the client once."""
        return self.client.poll(timeout_ms, self.now_ms)

    def request(self, node_id: int, **fields: Any) -> ClientRequest:
        """Return an InitProducerId."""
        build = codec_request(ApiKey.INIT_PRODUCER_ID, INIT_PRODUCER_ID)
        sent = {"timeout_ms": self.config.request_timeout_ms, "versions": (0, 5), **fields}
        return ClientRequest(
            node_id, ApiKey.INIT_PRODUCER_ID, build, self.client.next_correlation_id(), self.now_ms, **sent
        )

    def send(self, node_id: int, **fields: Any) -> ClientRequest:
        """Send one."""
        request = self.request(node_id, **fields)
        self.client.send(request, self.now_ms)
        return request

    def establish(self, node_id: int, served: Mapping[int, tuple[int, int]] = SERVED) -> None:
        """Complete a connection, and its ApiVersions exchange."""
        self.selector.establish(node_id)
        self.poll()
        self.selector.response(node_id, versions_answer(served))
        self.poll()

    def connect(self, *node_ids: int, served: Mapping[int, tuple[int, int]] = SERVED) -> None:
        """Connect to brokers that are in the metadata."""
        for node_id in node_ids:
            self.client.ready(self.nodes[node_id - 1], self.now_ms)
            self.establish(node_id, served)

    def know(self, *topics: str) -> None:
        """Load the metadata of all brokers from the bootstrap server."""
        for topic in topics:
            self.metadata.add(topic, self.now_ms)
        self.poll()
        self.establish(-1)
        self.poll()
        self.selector.response(-1, metadata_answer(self.nodes, topics))
        self.poll()
        assert set(self.metadata.fetch().nodes) == {node.id for node in self.nodes}


def versions_answer(served: Mapping[int, tuple[int, int]]) -> dict[str, Any]:
    """Return the fields of an ApiVersions response."""
    ranges = [{"api_key": key, "min_version": low, "max_version": high} for key, (low, high) in served.items()]
    return {"error_code": 0, "api_keys": ranges}


def metadata_answer(nodes: Sequence[Node], topics: Iterable[str] = ()) -> dict[str, Any]:
    """Return the fields of a Metadata response; each topic has a partition on each broker."""
    described = [
        {
            "name": topic,
            "topic_id": uuid5(NAMESPACE_DNS, topic).bytes,
            "partitions": [
                {"partition_index": index, "leader_id": node.id, "leader_epoch": 0, "replica_nodes": [node.id]}
                for index, node in enumerate(nodes)
            ],
        }
        for topic in topics
    ]
    brokers = [{"node_id": node.id, "host": node.host, "port": node.port} for node in nodes]
    return {"brokers": brokers, "cluster_id": "c", "controller_id": 1, "topics": described}
