"""Blocking facade of the network client: sends a request to a broker and waits for the response.

Used by the commands, their consumer and tests, in one thread. Requests are not retried; that is up to the caller.
Leaders are those of the last `look`.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Mapping
from contextlib import suppress
from types import TracebackType
from typing import Any, Final, Self

from rotunda.broker.client.access import PLAIN_TEXT, Access
from rotunda.broker.client.errors import SaslAuthenticationFailed, UnsupportedSaslMechanism
from rotunda.broker.client.network.addresses import parse_host_and_port
from rotunda.broker.client.network.channel import ChannelPhase
from rotunda.broker.client.network.metadata import Metadata
from rotunda.broker.client.network.network_client import NetworkClient
from rotunda.broker.client.network.network_config import NetworkConfig
from rotunda.broker.client.network.requests import ClientRequest, ClientResponse, codec_request
from rotunda.broker.client.network.selector import Selector
from rotunda.broker.client.network.snapshot import Node, TopicMetadata, metadata_fields, metadata_response
from rotunda.broker.client.topic_partition import TopicPartition
from rotunda.broker.clock import Clock, SystemClock
from rotunda.broker.errors import ApiError, ConfigError, RotundaError
from rotunda.broker.protocol.api_keys import ApiKey
from rotunda.broker.protocol.error_codes import ErrorCode

CLIENT_ID: Final = "rotunda-cli"
_NANOSECONDS: Final = 1_000_000
_NODE_IDS: Final = 2**31 - 1
_METADATA_VERSION: Final = 12
_COORDINATOR_VERSION: Final = 6
_COORDINATORS_FROM: Final = 4
_GROUP: Final = 0
_REFUSED: Final = (SaslAuthenticationFailed, UnsupportedSaslMechanism)
_MAY_BE_ELSEWHERE: Final = (ChannelPhase.NOT_CONNECTED, ChannelPhase.LOCAL_CLOSE)


class ConnectionFailed(RotundaError):  # noqa: N818 - named for what happened, like its siblings
    """The broker cannot be reached, closed the connection, or sent an invalid response."""


class ConnectionEnded(ConnectionFailed):
    """An established connection ended."""


class _OwnMetadata(Metadata):
    """Metadata that is never due: `BlockingClient.look` sends the requests."""

    def time_to_next_update_ms(self, now_ms: float) -> float:
        del now_ms
        return math.inf


class BlockingClient:
    """A client of the cluster reachable at `addresses`, a comma-separated list of host:port.

    Entering a `with` block connects to the first reachable address. With `is_direct` every request is sent there: for a
    single broker whose advertised address may not lead to it from here.
    """

    def __init__(
        self,
        addresses: str,
        access: Access = PLAIN_TEXT,
        *,
        timeout_s: float = 30.0,
        client_id: str = CLIENT_ID,
        clock: Clock | None = None,
        is_direct: bool = False,
    ) -> None:
        self._is_direct = is_direct
        self._addresses = addresses
        self._access = access
        self._clock = clock or SystemClock()
        self._timeout_ms = round(timeout_s * 1000)
        self._config = NetworkConfig(
            client_id=client_id,
            request_timeout_ms=self._timeout_ms,
            socket_connection_setup_timeout_ms=self._timeout_ms,
            socket_connection_setup_timeout_max_ms=self._timeout_ms,
            reconnect_backoff_ms=0,
            reconnect_backoff_max_ms=0,
            connections_max_idle_ms=-1,
            send_buffer_bytes=-1,
            receive_buffer_bytes=-1,
        )
        self._bootstrap: list[Node] = []
        self._brokers: dict[int, Node] = {}
        self._coordinators: dict[str, Node] = {}
        #: The leader of each partition, for the topics of the last `look`.
        self.leaders: dict[TopicPartition, int] = {}
        self._network = self._connectionless()

    def __enter__(self) -> Self:
        try:
            self._any()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, failure: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._network.close()

    def restart(self) -> None:
        """Close all connections and create a new network client, after a signal that may have interrupted a request."""
        with suppress(KeyError):
            self.close()
        self._coordinators.clear()
        self._network = self._connectionless()

    # Requests.

    def request(
        self,
        api_key: ApiKey,
        fields: Mapping[str, Any],
        known: int,
        oldest: int = 0,
        *,
        node_id: int | None = None,
        timeout_s: float | None = None,
    ) -> Any:
        """Send a request in the highest common version up to `known`; return the response.

        If `node_id` is None, any broker is used. `fields` are Kafka's snake_case names, as in `broker.protocol.codec`.
        Raises ConnectionFailed, and ApiError if the last `look` did not find the broker or it rejects this client.
        """
        node = self._ready(node_id)
        timeout_ms = self._timeout_ms if timeout_s is None else timeout_s * 1000
        request = ClientRequest(
            node.id, api_key, codec_request(api_key, fields), self._network.next_correlation_id(), self._now_ms(),
            timeout_ms=timeout_ms, versions=(oldest, known),
        )  # fmt: skip
        self._network.send(request, self._now_ms())
        response = self._response(request)
        if response.version_mismatch is not None:
            raise self._not_served(node, api_key, oldest) from response.version_mismatch
        if response.disconnected:
            cause = self._network.last_end(node).cause
            text = f"{api_key.name} to {_named(node)} failed: {cause or f'{_named(node)} closed the connection'}"
            raise ConnectionEnded(text) from cause
        return response.body

    def serves(self, api_key: ApiKey) -> bool:
        """Whether a broker supports any version of the API."""
        return api_key in self.ranges

    @property
    def ranges(self) -> Mapping[int, tuple[int, int]]:
        """Lowest and highest version that a broker supports, by API. Raises ConnectionFailed."""
        return self._ranges(self._any())

    @property
    def endpoint(self) -> tuple[str, int]:
        """Host and port of the broker used for requests without a node id. Raises ConnectionFailed."""
        node = self._any()
        return node.host, node.port

    def highest_version(self, api_key: ApiKey, known: int, oldest: int = 0) -> int:
        """Return the version that `request` would use with any broker. Raises ConnectionFailed if there is none."""
        node = self._any()
        lowest, highest = self._ranges(node).get(api_key, (0, -1))
        if min(known, highest) < max(lowest, oldest):
            raise self._not_served(node, api_key, oldest)
        return min(known, highest)

    # The cluster.

    def look(self, topics: Iterable[str] | None) -> dict[str, ApiError | None]:
        """Look up the leaders of these topics' partitions, or of all topics; return each topic's error, or None.

        Raises ConnectionFailed and ApiError.
        """
        fields = metadata_fields(topics, allow_auto_topic_creation=False)
        body = self.request(ApiKey.METADATA, fields, _METADATA_VERSION, 1)
        response = metadata_response(body, _METADATA_VERSION)
        self._brokers = {**response.nodes, **{each.id: each for each in self._coordinators.values()}}
        self.leaders = {
            TopicPartition(topic.name, each.partition): -1 if each.leader_id is None else each.leader_id
            for topic in response.topics
            for each in topic.partitions
        }
        return {topic.name: _problem(topic) for topic in response.topics}

    def find_coordinator(self, group: str) -> Node:
        """Return a group's coordinator, whether or not the group exists. Raises ApiError and ConnectionFailed."""
        fields = {"key_type": _GROUP, "coordinator_keys": [group]}
        response = self.request(ApiKey.FIND_COORDINATOR, fields, _COORDINATOR_VERSION, _COORDINATORS_FROM)
        found = response.coordinators[0]
        check(found)
        return Node(int(found.node_id), str(found.host), int(found.port))

    def coordinator(self, group: str) -> int:
        """Return the node id of a dedicated connection to a group's coordinator, as Kafka's clients use.

        Raises ApiError and ConnectionFailed.
        """
        node = self._coordinators.get(group)
        if node is None:
            found = self.find_coordinator(group)
            node = self._coordinators[group] = found._replace(id=_NODE_IDS - found.id)
            self._brokers[node.id] = node
        return node.id

    def forget_coordinator(self, group: str) -> None:
        """Look up the group's coordinator again at the next call."""
        self._coordinators.pop(group, None)

    # Connections.

    def _connectionless(self) -> NetworkClient:
        chance = random.Random()  # noqa: S311 - spreads load, guards nothing
        metadata = _OwnMetadata(self._config, chance)
        selector = Selector(self._config, self._access, self._clock)
        return NetworkClient(selector, metadata, self._config, self._clock, chance)

    def _ready(self, node_id: int | None) -> Node:
        if node_id is None or self._is_direct:
            return self._any()
        node = self._brokers.get(node_id)
        if node is None:
            raise ApiError(ErrorCode.LEADER_NOT_AVAILABLE, None)
        self._connect(node)
        return node

    def _any(self) -> Node:
        """Return a connected broker, or else connect to the first reachable bootstrap server."""
        if not self._bootstrap:
            self._bootstrap = _parsed(self._addresses)
        for node in (*self._bootstrap, *self._brokers.values()):
            if self._network.is_ready(node, self._now_ms()):
                return node
        problem: RotundaError | None = None
        for node in self._bootstrap:
            try:
                self._connect(node)
            except ConnectionFailed as failure:
                problem = problem or failure
            else:
                return node
        assert problem is not None  # noqa: S101 - there is at least one address
        raise problem

    def _connect(self, node: Node) -> None:
        """Wait until a request can be sent to a broker; tries all its addresses.

        Raises ConnectionFailed, and ApiError if the broker rejects this client.
        """
        network = self._network
        network.ready(node, self._now_ms())
        while not network.is_ready(node, self._now_ms()):
            if not network.connection_failed(node):
                now_ms = self._now_ms()
                network.poll(network.poll_delay_ms(node, now_ms), now_ms)
                continue
            end = network.last_end(node)
            if end.phase in _MAY_BE_ELSEWHERE and network.has_another_address(node):
                network.ready(node, self._now_ms())
                continue
            if isinstance(end.cause, _REFUSED):
                raise ApiError(end.cause.code, str(end.cause)) from end.cause
            if end.phase is ChannelPhase.NOT_CONNECTED:
                raise ConnectionFailed(f"cannot connect to {_named(node)}: {end.cause}") from end.cause
            text = f"cannot connect to {_named(node)}: {end.cause or f'{_named(node)} closed the connection'}"
            raise ConnectionEnded(text) from end.cause

    def _response(self, request: ClientRequest) -> ClientResponse:
        while True:
            for response in self._network.poll(math.inf, self._now_ms()):
                if response.request is request:
                    return response

    def _ranges(self, node: Node) -> Mapping[int, tuple[int, int]]:
        versions = self._network.api_versions.get(node.id)
        return {} if versions is None else versions.ranges

    def _not_served(self, node: Node, api_key: ApiKey, oldest: int) -> ConnectionFailed:
        served = self._ranges(node).get(api_key)
        wanted = f" in version {oldest} or newer" if served is not None and served[1] < oldest else ""
        return ConnectionFailed(f"the broker at {_named(node)} does not serve {api_key.name}{wanted}")

    def _now_ms(self) -> float:
        return self._clock.monotonic_ns() / _NANOSECONDS


def check(result: Any) -> None:
    """Raise ApiError, with the broker's message if any, if a part of a response has an error code."""
    if int(result.error_code):
        raise ApiError(int(result.error_code), getattr(result, "error_message", None))


def _parsed(addresses: str) -> list[Node]:
    try:
        found = [parse_host_and_port(each) for each in addresses.split(",")]
    except ConfigError as failure:
        raise ConnectionFailed(f"cannot connect to {addresses!r}: {failure}") from failure
    return [Node(-number, host, port) for number, (host, port) in enumerate(found, 1)]


def _named(node: Node) -> str:
    return f"[{node.host}]:{node.port}" if ":" in node.host else f"{node.host}:{node.port}"


def _problem(topic: TopicMetadata) -> ApiError | None:
    return ApiError(topic.error, None) if topic.error else None
