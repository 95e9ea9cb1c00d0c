"""Sends requests to the brokers of a cluster and returns their responses; connects and disconnects as needed.

Runs on the I/O thread, which calls `poll` in a loop; other threads call `wakeup` and `initiate_close` only. Kafka's
NetworkClient (`G22`, `G23`, `G28`-`G34`) and DefaultMetadataUpdater (`G08`, `G09`; KIP-899, KIP-1102). Requests in
flight when a connection ends are returned as disconnected, in the order in which they were sent; the caller decides
about retries.
"""

from __future__ import annotations

import logging
import math
import random
from typing import TYPE_CHECKING, Any, Final

from rotunda.broker.client.errors import AuthenticationFailed, IllegalState, KafkaError, UnsupportedVersion
from rotunda.broker.client.network.addresses import Resolve, resolve
from rotunda.broker.client.network.channel import ChannelPhase, ChannelState, Endpoint, Selectable
from rotunda.broker.client.network.connection_states import ClusterConnectionStates
from rotunda.broker.client.network.network_config import REBOOTSTRAP
from rotunda.broker.client.network.requests import (
    CLIENT_VERSIONS,
    ApiVersions,
    Build,
    ClientRequest,
    ClientResponse,
    InFlightRequest,
    InFlightRequests,
    NetworkReceive,
    NetworkSend,
    api_versions_request,
    body_of,
    completed,
    decode_api_versions,
    node_api_versions,
    throttle_time_ms,
    version_to_try_next,
)
from rotunda.broker.client.network.sasl_authenticator import FIRST_RESERVED_CORRELATION_ID
from rotunda.broker.client.network.snapshot import metadata_response
from rotunda.broker.errors import InvalidReceive
from rotunda.broker.protocol.api_keys import ApiKey
from rotunda.broker.protocol.error_codes import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rotunda.broker.client.network.metadata import Metadata
    from rotunda.broker.client.network.network_config import NetworkConfig
    from rotunda.broker.client.network.snapshot import MetadataResponse, Node
    from rotunda.broker.clock import Clock

logger = logging.getLogger(__name__)

_NANOSECONDS = 1_000_000
_LOCAL_CLOSE: Final = ChannelState(ChannelPhase.LOCAL_CLOSE)


class NetworkClient:
    """A client of one cluster; `selector` moves its bytes."""

    def __init__(
        self,
        selector: Selectable,
        metadata: Metadata,
        config: NetworkConfig,
        clock: Clock,
        chance: random.Random | None = None,
        look_up: Resolve = resolve,
    ) -> None:
        self.api_versions = ApiVersions()
        self._selector = selector
        self._config = config
        self._clock = clock
        self._random = chance or random.Random()  # noqa: S311 - spreads load, guards nothing
        self._states = ClusterConnectionStates(config, self._random, look_up)
        self._in_flight = InFlightRequests(config.max_in_flight_requests_per_connection)
        self._metadata = metadata
        self._updater = MetadataUpdater(metadata, self, config)
        #: The version of the next ApiVersions request to each broker.
        self._api_versions_to_fetch: dict[int, int] = {}
        #: Completed without the network: not sent, or sent without expecting a response.
        self._finished: list[ClientResponse] = []
        self._correlation_id = -1
        #: Final state of the last connection to each broker.
        self._ends: dict[int, ChannelState] = {}
        self._is_active = True
        self._is_closed = False

    # Queries of a sender.

    def ready(self, node: Node, now_ms: float) -> bool:
        """Whether a request can be sent; starts to connect if disconnected and an attempt is allowed."""
        if self.is_ready(node, now_ms):
            return True
        if self._states.can_connect(node.id, now_ms):
            self.initiate_connect(node, now_ms)
        return False

    def is_ready(self, node: Node, now_ms: float) -> bool:
        """Whether a request can be sent: no metadata request is due first, and the connection accepts one."""
        return not self._updater.is_update_due(now_ms) and self.can_send_request(node.id, now_ms)

    def can_send_request(self, node_id: int, now_ms: float) -> bool:
        """Whether a connection is ready and below its limit of requests in flight."""
        return (
            self._states.is_ready(node_id, now_ms)
            and self._selector.is_channel_ready(node_id)
            and self._in_flight.can_send_more(node_id)
        )

    def can_connect(self, node_id: int, now_ms: float) -> bool:
        """Whether the broker is disconnected and an attempt is allowed."""
        return self._states.can_connect(node_id, now_ms)

    def poll_delay_ms(self, node: Node, now_ms: float) -> float:
        """Return the time until the next check whether the broker is ready."""
        return self._states.poll_delay_ms(node.id, now_ms)

    def connection_failed(self, node: Node) -> bool:
        """Whether a connection ended, or an attempt failed, and none is in progress."""
        return self._states.is_disconnected(node.id)

    def last_end(self, node: Node) -> ChannelState:
        """Return how the last connection to a broker, or the last attempt, ended."""
        return self._ends[node.id]

    def has_another_address(self, node: Node) -> bool:
        """Whether the broker's host has an untried address after the current one."""
        return self._states.has_another_address(node.id)

    def raise_authentication_error(self, node: Node) -> None:
        """Raise the error of the last failed authentication, if any."""
        error = self._states.authentication_error(node.id)
        if error is not None:
            raise error

    def throttle(self, node_id: int, until_ms: float) -> None:
        """Send nothing to a broker until `until_ms`."""
        self._states.throttle(node_id, until_ms)

    @property
    def in_flight_count(self) -> int:
        """Number of requests without a response."""
        return self._in_flight.total

    @property
    def is_active(self) -> bool:
        """Whether neither `close` nor `initiate_close` was called."""
        return self._is_active

    def next_correlation_id(self) -> int:
        """Return a correlation id; skips those reserved for SASL."""
        following = self._correlation_id + 1
        self._correlation_id = following if following < FIRST_RESERVED_CORRELATION_ID else 0
        return self._correlation_id

    def least_loaded_node(self, now_ms: float) -> Node | None:
        """Return the broker with the fewest requests in flight (`G09`), ties at random; None if none is available."""
        nodes = list(self._updater.nodes())
        if not nodes:
            raise IllegalState("There are no nodes in the Kafka cluster")
        first = self._random.randrange(len(nodes))
        least, ready, connecting, connectable = math.inf, None, None, None
        for node in nodes[first:] + nodes[:first]:
            if self.can_send_request(node.id, now_ms):
                count = self._in_flight.count(node.id)
                if count == 0:
                    return node
                if count < least:
                    least, ready = count, node
            elif self._states.is_preparing(node.id):
                connecting = node
            elif self.can_connect(node.id, now_ms) and (
                connectable is None
                or self._states.last_attempt_ms(node.id) < self._states.last_attempt_ms(connectable.id)
            ):
                connectable = node
        return ready or connecting or connectable

    # Commands of a sender.

    def send(self, request: ClientRequest, now_ms: float) -> None:
        """Send a request, in the highest version that both sides support.

        If there is none, `poll` returns it with `version_mismatch`. Raises IllegalState if the broker is not ready.
        """
        self._ensure_active()
        if not self.can_send_request(request.node_id, now_ms):
            raise IllegalState(f"request to node {request.node_id}, which is not ready")
        self._send(request, now_ms, is_internal=False)

    def poll(self, timeout_ms: float, now_ms: float) -> list[ClientResponse]:
        """Process ready I/O, or wait for it; return completed responses after calling their callbacks."""
        self._ensure_active()
        if self._finished:
            responses, self._finished = self._finished, []
            return completed(responses)
        self._selector.poll(min(timeout_ms, self._updater.maybe_update(now_ms), self._next_timeout_ms(now_ms)))
        now_ms = self._now_ms()
        responses, self._finished = self._finished, []
        self._handle_completed_sends(responses, now_ms)
        self._handle_completed_receives(responses, now_ms)
        self._handle_disconnections(responses, now_ms)
        for node_id in self._selector.connected:
            self._api_versions_to_fetch[node_id] = CLIENT_VERSIONS[ApiKey.API_VERSIONS][1]
        self._fetch_api_versions(now_ms)
        self._handle_timeouts(responses, now_ms)
        if self._updater.needs_rebootstrap(now_ms):
            self._rebootstrap(responses, now_ms)
        return completed(responses)

    def wakeup(self) -> None:
        """Wake the current `poll`, or the next one. Thread-safe."""
        self._selector.wakeup()

    def initiate_close(self) -> None:
        """Reject further requests. Thread-safe."""
        self._is_active = False
        self.wakeup()

    def close(self) -> None:
        self._is_active = False
        if not self._is_closed:
            self._is_closed = True
            self._selector.close()
            self._metadata.close()

    # Called by the metadata updater.

    def is_any_node_connecting(self) -> bool:
        """Whether a connection to any known broker is being established."""
        return any(self._states.is_connecting(node.id) for node in self._updater.nodes())

    def is_any_node_ready(self, now_ms: float) -> bool:
        """Whether a connection to any known broker is ready, even if busy."""
        return any(
            self._states.is_ready(node.id, now_ms) and self._selector.is_channel_ready(node.id)
            for node in self._updater.nodes()
        )

    def initiate_connect(self, node: Node, now_ms: float) -> None:
        config = self._config
        try:
            address = self._states.connecting(node.id, now_ms, node.host)
            endpoint = Endpoint(address, node.host, node.port)
            self._selector.connect(node.id, endpoint, config.send_buffer_bytes, config.receive_buffer_bytes)
        except OSError as failure:
            logger.warning("Error connecting to node %s: %s", node, failure)
            self._states.disconnected(node.id, now_ms)
            self._ends[node.id] = ChannelState(ChannelPhase.NOT_CONNECTED, str(node), failure)
            self._updater.handle_disconnection(node.id, now_ms, None)

    def send_metadata_request(self, node_id: int, build: Build, now_ms: float) -> None:
        """Send a request; its response is passed to the metadata updater."""
        self._send(self._internal(node_id, ApiKey.METADATA, build, now_ms), now_ms, is_internal=True)

    # Sending.

    def _internal(self, node_id: int, api_key: int, build: Build, now_ms: float) -> ClientRequest:
        timeout_ms = self._config.request_timeout_ms
        return ClientRequest(node_id, api_key, build, self.next_correlation_id(), now_ms, timeout_ms=timeout_ms)

    def _send(self, request: ClientRequest, now_ms: float, *, is_internal: bool) -> None:
        oldest, latest = request.versions or CLIENT_VERSIONS[request.api_key]
        node = self.api_versions.get(request.node_id)
        version = latest
        if node is not None:
            try:
                version = node.latest_usable_version(request.api_key, oldest, latest)
            except UnsupportedVersion as mismatch:
                if is_internal:
                    self._updater.handle_failure(now_ms, mismatch)
                else:
                    self._finished.append(ClientResponse(request, now_ms, version_mismatch=mismatch))
                return
        send = NetworkSend(request.node_id, request.build(version, request.correlation_id, self._config.client_id))
        self._in_flight.add(InFlightRequest(request, version, send, now_ms, is_internal))
        self._selector.send(send)
        if send.completed and not request.expects_response:
            self._in_flight.complete_last_sent(request.node_id)
            self._finished.append(ClientResponse(request, now_ms, version))

    def _fetch_api_versions(self, now_ms: float) -> None:
        for node_id, version in list(self._api_versions_to_fetch.items()):
            if self._selector.is_channel_ready(node_id) and self._in_flight.can_send_more(node_id):
                self._states.checking_api_versions(node_id)
                request = self._internal(node_id, ApiKey.API_VERSIONS, api_versions_request(), now_ms)
                request.versions, request.decode = (version, version), decode_api_versions
                del self._api_versions_to_fetch[node_id]
                self._send(request, now_ms, is_internal=True)

    # Events of a poll.

    def _next_timeout_ms(self, now_ms: float) -> float:
        return min(self._states.next_setup_timeout_ms(now_ms), self._in_flight.next_timeout_ms(now_ms))

    def _handle_completed_sends(self, responses: list[ClientResponse], now_ms: float) -> None:
        for send in self._selector.completed_sends:
            newest = self._in_flight.last_sent(send.node_id)
            if not newest.request.expects_response:
                self._in_flight.complete_last_sent(send.node_id)
                responses.append(ClientResponse(newest.request, now_ms, newest.version))

    def _handle_completed_receives(self, responses: list[ClientResponse], now_ms: float) -> None:
        refused: set[int] = set()
        for receive in self._selector.completed_receives:
            if receive.node_id in refused:
                continue
            try:
                self._handle_receive(responses, receive, now_ms)
            except (InvalidReceive, IllegalState) as failure:
                logger.error("invalid response of node %s, disconnecting: %s", receive.node_id, failure)
                refused.add(receive.node_id)
                self._selector.close_channel(receive.node_id)
                end = ChannelState(ChannelPhase.LOCAL_CLOSE, cause=failure)
                self._process_disconnection(responses, receive.node_id, now_ms, end)

    def _handle_receive(self, responses: list[ClientResponse], receive: NetworkReceive, now_ms: float) -> None:
        oldest = self._in_flight.oldest(receive.node_id)
        body = body_of(oldest, receive)
        self._in_flight.complete_next(receive.node_id)
        request = oldest.request
        self._throttle_if_asked(body, oldest, now_ms)
        if not oldest.is_internal:
            responses.append(ClientResponse(request, now_ms, oldest.version, body))
        elif request.api_key == ApiKey.METADATA:
            self._updater.handle_response(metadata_response(body, oldest.version), now_ms)
        else:
            self._handle_api_versions(responses, oldest, body, now_ms)

    def _handle_api_versions(
        self, responses: list[ClientResponse], fetched: InFlightRequest, response: Any, now_ms: float
    ) -> None:
        node_id, code = fetched.request.node_id, int(response.error_code)
        if code == 0:
            self.api_versions.update(node_id, node_api_versions(response))
            self._states.ready(node_id)
        elif code == UnsupportedVersion.code and fetched.version > 0:
            self._api_versions_to_fetch[node_id] = version_to_try_next(response)
        else:
            logger.warning("node %s returned error %s to ApiVersions, disconnecting", node_id, code)
            self._selector.close_channel(node_id)
            end = ChannelState(ChannelPhase.LOCAL_CLOSE, cause=InvalidReceive(f"error {code} of ApiVersions"))
            self._process_disconnection(responses, node_id, now_ms, end)

    def _throttle_if_asked(self, body: Any, answered: InFlightRequest, now_ms: float) -> None:
        throttle_ms = throttle_time_ms(answered, body)
        if throttle_ms > 0:
            node_id = answered.request.node_id
            self._in_flight.increment_throttle_time(node_id, throttle_ms)
            self._states.throttle(node_id, now_ms + throttle_ms)

    def _handle_disconnections(self, responses: list[ClientResponse], now_ms: float) -> None:
        for node_id, state in self._selector.disconnected.items():
            self._process_disconnection(responses, node_id, now_ms, state)

    def _handle_timeouts(self, responses: list[ClientResponse], now_ms: float) -> None:
        for node_id in self._states.nodes_with_setup_timeout(now_ms):
            timeout_ms = self._states.setup_timeout_ms(node_id)
            logger.info(
                "Disconnecting from node %s due to socket connection setup timeout. The timeout value is %.0f ms.",
                node_id, timeout_ms,
            )  # fmt: skip
            self._selector.close_channel(node_id)
            end = ChannelState(
                ChannelPhase.LOCAL_CLOSE, cause=TimeoutError(f"no connection in {timeout_ms / 1000:g} s")
            )
            self._process_disconnection(responses, node_id, now_ms, end, timed_out=True)
        for node_id in self._in_flight.nodes_with_timed_out_requests(now_ms):
            logger.info("Disconnecting from node %s due to request timeout.", node_id)
            self._selector.close_channel(node_id)
            end = ChannelState(ChannelPhase.LOCAL_CLOSE, cause=TimeoutError("no response in time"))
            self._process_disconnection(responses, node_id, now_ms, end, timed_out=True)

    def _rebootstrap(self, responses: list[ClientResponse], now_ms: float) -> None:
        for node in list(self._updater.nodes()):
            self._selector.close_channel(node.id)
            if self._states.is_connecting(node.id) or self._states.is_connected(node.id):
                self._process_disconnection(responses, node.id, now_ms, _LOCAL_CLOSE)
        self._updater.rebootstrap(now_ms)

    def _process_disconnection(
        self,
        responses: list[ClientResponse],
        node_id: int,
        now_ms: float,
        state: ChannelState,
        *,
        timed_out: bool = False,
    ) -> None:
        self._states.disconnected(node_id, now_ms)
        self._ends[node_id] = state
        self._forget_versions(node_id)
        if state.error is not None:
            self._states.authentication_failed(node_id, now_ms, state.error)
        state.log(node_id)
        self._cancel_in_flight(responses, node_id, now_ms, timed_out=timed_out)
        self._updater.handle_disconnection(node_id, now_ms, state.error)

    def _cancel_in_flight(
        self, responses: list[ClientResponse], node_id: int, now_ms: float, *, timed_out: bool
    ) -> None:
        for each in self._in_flight.clear(node_id):
            if not each.is_internal:
                responses.append(
                    ClientResponse(each.request, now_ms, each.version, disconnected=True, timed_out=timed_out)
                )
            elif each.request.api_key == ApiKey.METADATA:
                self._updater.handle_failure(now_ms, None)

    def _forget_versions(self, node_id: int) -> None:
        self.api_versions.remove(node_id)
        self._api_versions_to_fetch.pop(node_id, None)

    def _ensure_active(self) -> None:
        if not self._is_active:
            raise IllegalState("the network client is closed, or about to be")

    def _now_ms(self) -> float:
        return self._clock.monotonic_ns() / _NANOSECONDS


class MetadataUpdater:
    """Sends metadata requests, one at a time."""

    def __init__(self, metadata: Metadata, client: NetworkClient, config: NetworkConfig) -> None:
        self._metadata = metadata
        self._client = client
        self._request_timeout_ms = config.request_timeout_ms
        self._reconnect_backoff_ms = config.reconnect_backoff_ms
        self._rebootstraps = config.metadata_recovery_strategy.lower() == REBOOTSTRAP
        self._trigger_ms = config.metadata_recovery_rebootstrap_trigger_ms
        #: Request version of the request in progress, and whether it is partial.
        self._in_progress: tuple[int, bool] | None = None
        #: Time of the first request without a successful response; None if there is none.
        self._asking_since_ms: float | None = None

    def nodes(self) -> Iterable[Node]:
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
