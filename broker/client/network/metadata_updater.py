"""When and where to send Metadata requests, and recovery when no broker responds (`G08`, `G09`; KIP-899, KIP-1102).

Runs on the I/O thread, as a part of the network client. Kafka's DefaultMetadataUpdater.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable
from typing import Protocol

from rotunda.broker.client.errors import AuthenticationFailed, KafkaError
from rotunda.broker.client.network.metadata import Metadata
from rotunda.broker.client.network.network_config import REBOOTSTRAP, NetworkConfig
from rotunda.broker.client.network.requests import Build
from rotunda.broker.client.network.snapshot import MetadataResponse, Node
from rotunda.broker.protocol.error_codes import ErrorCode

logger = logging.getLogger(__name__)


class MetadataClient(Protocol):
    """The part of the network client that this module uses."""

    def least_loaded_node(self, now_ms: float) -> Node | None:
        """Return the broker with the fewest requests in flight; None if none is available."""

    def is_any_node_ready(self, now_ms: float) -> bool:
        """Whether a connection to any known broker is ready."""

    def can_send_request(self, node_id: int, now_ms: float) -> bool:
        """Whether a request can be sent to a broker now."""

    def can_connect(self, node_id: int, now_ms: float) -> bool:
        """Whether a connection attempt is allowed now."""

    def is_any_node_connecting(self) -> bool:
        """Whether any connection is being established."""

    def initiate_connect(self, node: Node, now_ms: float) -> None:
        """Start to connect."""

    def send_metadata_request(self, node_id: int, build: Build, now_ms: float) -> None:
        """Send a request; its response is passed to `handle_response`."""


class MetadataUpdater:
    """Sends metadata requests, one at a time."""

    def __init__(self, metadata: Metadata, client: MetadataClient, config: NetworkConfig) -> None:
        self._metadata = metadata
        self._client = client
        self._request_timeout_ms = config.request_timeout_ms
        self._reconnect_backoff_ms = config.reconnect_backoff_ms
        self._rebootstraps = config.metadata_recovery_strategy == REBOOTSTRAP
        self._trigger_ms = config.metadata_recovery_rebootstrap_trigger_ms
        #: Request version of the request in progress, and whether it is partial.
        self._in_progress: tuple[int, bool] | None = None
        #: Time of the first request without a successful response; None if there is none.
        self._asking_since_ms: float | None = None

    def nodes(self) -> Iterable[Node]:
        """Return the known brokers."""
        return self._metadata.fetch().nodes.values()

    def is_update_due(self, now_ms: float) -> bool:
        """Whether a metadata request must be sent before any other."""
        return self._in_progress is None and self._metadata.time_to_next_update_ms(now_ms) <= 0

    def maybe_update(self, now_ms: float) -> float:
        """Send a request if one is due; return the time until the next check, in milliseconds."""
        in_progress = self._request_timeout_ms if self._in_progress is not None else 0.0
        wait_ms = max(self._metadata.time_to_next_update_ms(now_ms), in_progress)
        if wait_ms > 0:
            return wait_ms
        if self._asking_since_ms is None:
            self._asking_since_ms = now_ms
        node = self._client.least_loaded_node(now_ms)
        if node is None and self._rebootstraps and not self._client.is_any_node_ready(now_ms):
            self.rebootstrap(now_ms)
            node = self._client.least_loaded_node(now_ms)
        if node is None:
            logger.debug("no metadata request: no broker is reachable")
            return self._reconnect_backoff_ms
        return self._ask(node, now_ms)

    def needs_rebootstrap(self, now_ms: float) -> bool:
        """Whether requests failed for too long, or a broker requested a rebootstrap."""
        since = self._asking_since_ms
        return self._rebootstraps and since is not None and now_ms - since > self._trigger_ms

    def rebootstrap(self, now_ms: float) -> None:
        """Restart from `bootstrap.servers`."""
        self._metadata.rebootstrap()
        self._asking_since_ms = now_ms

    def handle_disconnection(self, node_id: int, now_ms: float, error: AuthenticationFailed | None) -> None:
        """Request an update because a connection ended; `error` if the broker rejected this client."""
        snapshot = self._metadata.fetch()
        if snapshot.is_bootstrap and node_id in snapshot.nodes:
            logger.warning("Bootstrap broker %s disconnected", snapshot.nodes[node_id])
        if self.is_update_due(now_ms):
            self.handle_failure(now_ms, None)
        if error is not None:
            self._metadata.fatal_error(error)
        self._metadata.request_update()

    def handle_failure(self, now_ms: float, error: KafkaError | None) -> None:
        """Record a failed request."""
        if error is not None:
            self._metadata.fatal_error(error)
        self._metadata.failed_update(now_ms)
        self._in_progress = None

    def handle_response(self, response: MetadataResponse, now_ms: float) -> None:
        """Handle a response; one without brokers counts as a failure."""
        if response.error == ErrorCode.REBOOTSTRAP_REQUIRED and self._rebootstraps:
            logger.info("the broker requests a rebootstrap")
            self._asking_since_ms = -math.inf
            self._metadata.failed_update(now_ms)
        elif not response.nodes:
            self._metadata.failed_update(now_ms)
        elif self._in_progress is not None:
            if response.errors():
                logger.warning("Metadata has errors for topics: %s", _named(response.errors()))
            request_version, is_partial = self._in_progress
            self._metadata.update(request_version, response, is_partial, now_ms)
            self._asking_since_ms = None
        self._in_progress = None

    def _ask(self, node: Node, now_ms: float) -> float:
        client = self._client
        if client.can_send_request(node.id, now_ms):
            request = self._metadata.new_request(now_ms)
            self._in_progress = request.request_version, request.is_partial
            client.send_metadata_request(node.id, request.build, now_ms)
            return self._request_timeout_ms
        if client.is_any_node_connecting():
            # Its state will change, which triggers the next check.
            return self._reconnect_backoff_ms
        if client.can_connect(node.id, now_ms):
            client.initiate_connect(node, now_ms)
            return self._reconnect_backoff_ms
        return math.inf


def _named(errors: dict[str, int]) -> str:
    names = {int(code): code.name for code in ErrorCode}
    return ", ".join(f"{topic}: {names.get(code, code)}" for topic, code in errors.items())
