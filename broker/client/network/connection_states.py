"""Connection state of each broker, and when to reconnect (`G28`, `G29`, `G30`).

Runs on the I/O thread; a state machine without sockets. Kafka's ClusterConnectionStates.
"""

from __future__ import annotations

import logging
import math
import random
from collections.abc import Sequence
from enum import Enum, auto

from rotunda.broker.client.errors import AuthenticationFailed, IllegalState
from rotunda.broker.client.network.addresses import Address, Resolve, resolve
from rotunda.broker.client.network.backoff import ExponentialBackoff, time_left_ms
from rotunda.broker.client.network.network_config import NetworkConfig

logger = logging.getLogger(__name__)


class ConnectionState(Enum):
    """States of a connection."""

    DISCONNECTED = auto()
    CONNECTING = auto()
    CHECKING_API_VERSIONS = auto()
    READY = auto()
    AUTHENTICATION_FAILED = auto()


_DISCONNECTED = frozenset({ConnectionState.DISCONNECTED, ConnectionState.AUTHENTICATION_FAILED})
_PREPARING = frozenset({ConnectionState.CONNECTING, ConnectionState.CHECKING_API_VERSIONS})
_CONNECTED = frozenset({ConnectionState.CHECKING_API_VERSIONS, ConnectionState.READY})


class _NodeState:
    """State of one broker's connection."""

    __slots__ = (
        "address_index",
        "addresses",
        "authentication_error",
        "failed_attempts",
        "failed_setups",
        "host",
        "last_attempt_ms",
        "last_tried",
        "reconnect_backoff_ms",
        "setup_timeout_ms",
        "state",
        "throttle_until_ms",
    )

    def __init__(self, host: str, now_ms: float, reconnect_backoff_ms: float, setup_timeout_ms: float) -> None:
        self.host = host
        self.state = ConnectionState.CONNECTING
        self.last_attempt_ms = now_ms
        self.reconnect_backoff_ms = reconnect_backoff_ms
        self.setup_timeout_ms = setup_timeout_ms
        self.failed_attempts = 0
        self.failed_setups = 0
        self.throttle_until_ms = -math.inf
        self.authentication_error: AuthenticationFailed | None = None
        self.addresses: Sequence[Address] = ()
        self.address_index = 0
        self.last_tried: Address | None = None

    @property
    def setup_ends_ms(self) -> float:
        return self.last_attempt_ms + self.setup_timeout_ms

    def current_address(self, look_up: Resolve) -> Address:
        """Return the address to try; resolves the host if no addresses are cached. Raises OSError."""
        if not self.addresses:
            self.addresses = look_up(self.host)
            self.address_index = int(len(self.addresses) > 1 and self.addresses[0] == self.last_tried)
        self.last_tried = self.addresses[self.address_index]
        return self.last_tried

    def move_to_next_address(self) -> None:
        """Move to the next address; after the last one the host is resolved again."""
        self.address_index += 1
        if self.address_index >= len(self.addresses):
            self.addresses = ()


class ClusterConnectionStates:
    """Connection states by broker id."""

    def __init__(self, config: NetworkConfig, chance: random.Random, look_up: Resolve = resolve) -> None:
        self._nodes: dict[int, _NodeState] = {}
        self._connecting: set[int] = set()
        self._look_up = look_up
        self._reconnect = ExponentialBackoff(config.reconnect_backoff_ms, config.reconnect_backoff_max_ms, chance)
        self._setup = ExponentialBackoff(
            config.socket_connection_setup_timeout_ms, config.socket_connection_setup_timeout_max_ms, chance
        )

    def can_connect(self, node_id: int, now_ms: float) -> bool:
        """Whether the broker is disconnected and its reconnect backoff has passed."""
        node = self._nodes.get(node_id)
        if node is None:
            return True
        if node.state not in _DISCONNECTED:
            return False
        return time_left_ms(node.last_attempt_ms + node.reconnect_backoff_ms, now_ms) == 0

    def connection_delay_ms(self, node_id: int, now_ms: float) -> float:
        """Return the time until the next readiness check; infinity if an event will trigger it."""
        node = self._nodes.get(node_id)
        if node is None:
            return 0.0
        if node.state is ConnectionState.CONNECTING:
            return node.setup_timeout_ms
        if node.state in _DISCONNECTED:
            return time_left_ms(node.last_attempt_ms + node.reconnect_backoff_ms, now_ms)
        return math.inf

    def throttle_delay_ms(self, node_id: int, now_ms: float) -> float:
        """Return the remaining throttle time of the broker."""
        node = self._nodes.get(node_id)
        return time_left_ms(node.throttle_until_ms, now_ms) if node is not None else 0.0

    def poll_delay_ms(self, node_id: int, now_ms: float) -> float:
        """Return the throttle delay of a connected broker, else the connection delay."""
        throttled = self.throttle_delay_ms(node_id, now_ms)
        if throttled > 0 and self.is_connected(node_id):
            return throttled
        return self.connection_delay_ms(node_id, now_ms)

    def has_another_address(self, node_id: int) -> bool:
        """Whether there is an untried address after the current one."""
        node = self._nodes.get(node_id)
        return node is not None and node.address_index + 1 < len(node.addresses)

    def connecting(self, node_id: int, now_ms: float, host: str) -> Address:
        """Record a connection attempt and return the address to try. Raises OSError if the host cannot be resolved."""
        node = self._nodes.get(node_id)
        if node is not None and node.host == host:
            node.last_attempt_ms = now_ms
            node.state = ConnectionState.CONNECTING
            node.move_to_next_address()
        else:
            if node is not None:
                logger.info("the host of node %s has changed from %s to %s", node_id, node.host, host)
            node = _NodeState(host, now_ms, self._reconnect.backoff_ms(0), self._setup.backoff_ms(0))
            self._nodes[node_id] = node
        self._connecting.add(node_id)
        return node.current_address(self._look_up)

    def disconnected(self, node_id: int, now_ms: float) -> None:
        """Record that the connection ended or could not be established."""
        node = self._node(node_id)
        node.last_attempt_ms = now_ms
        self._lengthen_reconnect_backoff(node)
        if node.state is ConnectionState.CONNECTING:
            node.failed_setups += 1
            node.setup_timeout_ms = self._setup.backoff_ms(node.failed_setups)
            self._connecting.discard(node_id)
        else:
            self._reset_setup_timeout(node)
            if node.state in _CONNECTED:
                # The broker may have another address when it is back.
                node.addresses = ()
        node.state = ConnectionState.DISCONNECTED

    def authentication_failed(self, node_id: int, now_ms: float, error: AuthenticationFailed) -> None:
        node = self._node(node_id)
        node.authentication_error = error
        node.state = ConnectionState.AUTHENTICATION_FAILED
        node.last_attempt_ms = now_ms
        self._lengthen_reconnect_backoff(node)

    def checking_api_versions(self, node_id: int) -> None:
        """Record that the connection is established and an ApiVersions request is in flight."""
        node = self._node(node_id)
        node.state = ConnectionState.CHECKING_API_VERSIONS
        self._reset_setup_timeout(node)
        self._connecting.discard(node_id)

    def ready(self, node_id: int) -> None:
        node = self._node(node_id)
        node.state = ConnectionState.READY
        node.authentication_error = None
        node.failed_attempts = 0
        node.reconnect_backoff_ms = self._reconnect.backoff_ms(0)
        self._reset_setup_timeout(node)
        self._connecting.discard(node_id)

    def throttle(self, node_id: int, until_ms: float) -> None:
        """Send nothing to a broker until `until_ms`."""
        node = self._nodes.get(node_id)
        if node is not None and node.throttle_until_ms < until_ms:
            node.throttle_until_ms = until_ms

    def remove(self, node_id: int) -> None:
        self._nodes.pop(node_id, None)
        self._connecting.discard(node_id)

    def is_ready(self, node_id: int, now_ms: float) -> bool:
        """Whether requests can be sent and the broker is not throttled."""
        node = self._nodes.get(node_id)
        if node is None or node.state is not ConnectionState.READY:
            return False
        return time_left_ms(node.throttle_until_ms, now_ms) == 0

    def is_connecting(self, node_id: int) -> bool:
        node = self._nodes.get(node_id)
        return node is not None and node.state is ConnectionState.CONNECTING

    def is_preparing(self, node_id: int) -> bool:
        """Whether a connection is being established, or its ApiVersions request is in flight."""
        node = self._nodes.get(node_id)
        return node is not None and node.state in _PREPARING

    def is_connected(self, node_id: int) -> bool:
        node = self._nodes.get(node_id)
        return node is not None and node.state in _CONNECTED

    def is_disconnected(self, node_id: int) -> bool:
        """Whether a connection ended, or an attempt failed, and none is in progress."""
        node = self._nodes.get(node_id)
        return node is not None and node.state in _DISCONNECTED

    def authentication_error(self, node_id: int) -> AuthenticationFailed | None:
        node = self._nodes.get(node_id)
        return node.authentication_error if node is not None else None

    def state(self, node_id: int) -> ConnectionState:
        """Return a broker's state. Raises IllegalState if no connection was ever attempted."""
        return self._node(node_id).state

    def last_attempt_ms(self, node_id: int) -> float:
        """Return the time of the last attempt or disconnection; minus infinity for never."""
        node = self._nodes.get(node_id)
        return node.last_attempt_ms if node is not None else -math.inf

    def setup_timeout_ms(self, node_id: int) -> float:
        return self._node(node_id).setup_timeout_ms

    def nodes_with_setup_timeout(self, now_ms: float) -> list[int]:
        """Return the brokers whose connection attempt has timed out."""
        if not self._connecting:
            return []
        ends = ((each, self._nodes[each].setup_ends_ms) for each in self._connecting)
        return [each for each, ends_ms in ends if time_left_ms(ends_ms, now_ms) == 0]

    def next_setup_timeout_ms(self, now_ms: float) -> float:
        """Return the time until the first connection attempt times out; infinity for none."""
        if not self._connecting:
            return math.inf
        ends = (self._nodes[each].setup_ends_ms for each in self._connecting)
        return time_left_ms(min(ends), now_ms)

    def _lengthen_reconnect_backoff(self, node: _NodeState) -> None:
        node.reconnect_backoff_ms = self._reconnect.backoff_ms(node.failed_attempts)
        node.failed_attempts += 1

    def _reset_setup_timeout(self, node: _NodeState) -> None:
        node.failed_setups = 0
        node.setup_timeout_ms = self._setup.backoff_ms(0)

    def _node(self, node_id: int) -> _NodeState:
        node = self._nodes.get(node_id)
        if node is None:
            raise IllegalState(f"no connection to node {node_id} was started")
        return node
