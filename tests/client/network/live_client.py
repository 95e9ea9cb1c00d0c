"""A network client of real brokers, driven by the test's own thread."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Self

from rotunda.broker.client.access import access_of
from rotunda.broker.client.network.addresses import parse_bootstrap
from rotunda.broker.client.network.metadata import ProducerMetadata
from rotunda.broker.client.network.network_client import NetworkClient
from rotunda.broker.client.network.network_config import USE_ALL_DNS_IPS, NetworkConfig
from rotunda.broker.client.network.requests import ClientRequest, ClientResponse, codec_request
from rotunda.broker.client.network.selector import Selector
from rotunda.broker.client.network.snapshot import Node
from rotunda.broker.clock import Clock, SystemClock
from rotunda.broker.protocol.api_keys import ApiKey
from tests.client.network.fake_selector import INIT_PRODUCER_ID, SEED
from tests.support.deadline import wait_until


class LiveClient:
    """The client of one user, whose properties have Java's names."""

    def __init__(
        self, properties: Mapping[str, str], config: NetworkConfig | None = None, clock: Clock | None = None
    ) -> None:
        access = access_of(properties)
        self.config = config or NetworkConfig(client_id="live")
        self.clock = clock or SystemClock()
        chance = random.Random(SEED)
        self.metadata = ProducerMetadata(self.config, chance, self.clock)
        self.metadata.bootstrap(parse_bootstrap(access.bootstrap.split(","), USE_ALL_DNS_IPS))
        self.selector = Selector(self.config, access, self.clock)
        self.network = NetworkClient(self.selector, self.metadata, self.config, self.clock, chance)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, failure: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.network.close()

    @property
    def now_ms(self) -> float:
        """Return the clock's time."""
        return self.clock.monotonic_ns() / 1_000_000

    def poll(self, timeout_ms: float = 20.0) -> list[ClientResponse]:
        """Poll once."""
        return self.network.poll(timeout_ms, self.now_ms)

    def poll_until(self, is_so: Callable[[], Any], what: str) -> Any:
        """Poll until something is so, and return it."""

        def polled() -> Any:
            self.poll()
            return is_so()

        return wait_until(polled, what)

    def know(self, topic: str) -> Node:
        """Return the broker that leads the first partition of a topic, which is made if there is none."""
        self.metadata.add(topic, self.now_ms)
        leader: Node = self.poll_until(lambda: self.metadata.fetch().leader_for(topic, 0), f"a leader of {topic}")
        return leader

    def connect(self, node: Node) -> None:
        """Wait until a broker accepts requests."""
        self.poll_until(lambda: self.network.ready(node, self.now_ms), "a connection that is ready")

    def send(self, node: Node, api_key: int = ApiKey.INIT_PRODUCER_ID, **fields: Any) -> list[ClientResponse]:
        """Send a request, by default an InitProducerId; its response is appended to the list."""
        found: list[ClientResponse] = []
        build = codec_request(api_key, fields or INIT_PRODUCER_ID)
        number = self.network.next_correlation_id()
        timeout_ms = self.config.request_timeout_ms
        request = ClientRequest(
            node.id, api_key, build, number, self.now_ms, timeout_ms=timeout_ms, callback=found.append
        )
        self.network.send(request, self.now_ms)
        return found

    def ask(self, node: Node) -> ClientResponse:
        """Send an InitProducerId, and return its response."""
        found = self.send(node)
        self.poll_until(lambda: found, "a response")
        return found[0]
