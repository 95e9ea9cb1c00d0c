"""Authenticates a processor's connections: runs their authenticators, sends the responses, closes failed ones.

Part of a processor. A channel of a SASL listener has an authenticator until its user is known, and longer if its
session can expire. Its frames pass through this module before they reach a ring; before the user is known only
ApiVersions does. A failed client gets its response and is closed after a delay, which slows down guessing (`B23`); a
client that makes no progress is closed too. All of this state ends with the process: clients of a killed processor
reconnect and authenticate again.
"""

from __future__ import annotations

import logging
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping, Sequence
from struct import Struct
from typing import TYPE_CHECKING, Any, Protocol

from rotunda.broker.errors import InvalidReceive
from rotunda.broker.network.processor.foreign_protocols import describe_foreign
from rotunda.broker.network.processor.throttling.mute_state import MuteCause
from rotunda.broker.protocol.api_keys import ApiKey
from rotunda.broker.security.sasl.listener import SaslListener
from rotunda.broker.security.sasl.listeners import SaslListeners
from rotunda.broker.security.sasl.user_credentials import UserCredentials
from rotunda.broker.security.session import pack_session
from rotunda.broker.server_log.log_setup import RepeatedWarnings

if TYPE_CHECKING:
    from rotunda.broker.config.broker_config import BrokerConfig
    from rotunda.broker.network.accounting.client_registry import ClientRegistry
    from rotunda.broker.network.processor.channel import Channel
    from rotunda.broker.security.sasl.authenticator import Authenticator, Failure, Step

logger = logging.getLogger(__name__)

#: Characters of a client's input that are logged, and used to recognise repetitions.
_LOGGED_CAUSE, _LOGGED_USER = 300, 100

#: This many bytes show the protocol of a client.
_FOREIGN_BYTES = 8
_SIZE = Struct(">i")
_HEAD = Struct(">hhi")
_HANDSHAKE = int(ApiKey.SASL_HANDSHAKE)
_NS_PER_MS = 1_000_000

#: A listener unknown to the settings accepts no user.
_NOT_READY = SaslListener("", {}, 65536, {})

#: Size, api key, version and correlation id of a frame, as far as it has them.
Head = tuple[int, int, int, int]
#: Sends a frame on; returns False if there is no room.
TrySend = Callable[["Channel", bytes, Head, int], bool]


class Settings(Protocol):
    """The current settings (`LiveSettings`)."""

    @property
    def broker_config(self) -> BrokerConfig:
        """The broker's settings."""

    @property
    def user_credentials(self) -> UserCredentials:
        """The users' credentials."""

    def refresh(self, *, at_once: bool) -> bool:
        """Apply changed settings; return whether any have changed."""


class Counts:
    """The authentication counters for the metrics."""

    __slots__ = ("expired", "failed", "failed_again", "latency_again_ns", "succeeded", "succeeded_again")

    def __init__(self) -> None:
        self.succeeded = self.failed = self.succeeded_again = self.failed_again = 0
        self.latency_again_ns = self.expired = 0

    @property
    def values(self) -> tuple[int, ...]:
        """All counters, in the order of `processor_metrics.AUTHENTICATIONS`."""
        first = (self.succeeded, self.failed)
        return (*first, self.succeeded_again, self.failed_again, self.latency_again_ns, self.expired)


class Authentication:
    """The channels of one processor that have an authenticator."""

    def __init__(self, config: BrokerConfig, now_ns: Callable[[], int], wall_ms: Callable[[], int]) -> None:
        self._now_ns, self._wall_ms = now_ns, wall_ms
        self._warnings = RepeatedWarnings(logger, now_ns)
        #: By index: the name and protocol of each listener.
        self.listeners: Sequence[tuple[Any, ...]] = [(each.name, each.protocol) for each in config.bound_listeners]
        self._listeners: Mapping[str, SaslListener] = {}
        #: Channels without a known user, with their deadlines: the oldest first.
        self._waiting: OrderedDict[Channel, int] = OrderedDict()
        #: Failed channels: the time of the response, the channel, the response.
        self._failed: deque[tuple[int, Channel, bytes]] = deque()
        #: Connections to be closed, with the cause.
        self.ended: list[tuple[Channel, str]] = []
        #: Receives the authenticated user of a connection.
        self.clients: ClientRegistry | None = None
        self.counts = Counts()
        self._maker = SaslListeners(wall_ms)
        self._live: Settings | None = None
        self._adopt(config, UserCredentials())

    def follow(self, live: Settings) -> None:
        """Apply these settings, now and after each change; their credentials change in place."""
        self._live = live
        self._adopt(live.broker_config, live.user_credentials)

    def _adopt(self, config: BrokerConfig, credentials: UserCredentials) -> None:
        self._config = config
        self._listeners = self._maker.make(config, credentials)
        self._delay_ns = config.connection_failed_authentication_delay_ms * _NS_PER_MS
        self._limit_ns = config.authentication_timeout_ms * _NS_PER_MS

    def begin(self, channel: Channel) -> None:
        """Start the authentication of a new connection if its listener requires it."""
        name, protocol, *_ = self.listeners[channel.listener]
        if protocol.startswith("SASL_"):
            # A processor without SASL need not load the message schemas.
            from rotunda.broker.security.sasl.authenticator import Authenticator  # noqa: PLC0415

            live = self._live
            if live is not None:
                # Users created and listeners opened before this connection must be known to it.
                live.refresh(at_once=True)
                if live.broker_config is not self._config:
                    self.follow(live)
            channel.authenticator = Authenticator(self._listeners.get(name, _NOT_READY), self._wall_ms)
            self._waiting[channel] = self._now_ns() + self._limit_ns

    def forget(self, channel: Channel) -> None:
        """Forget a closed channel."""
        self._waiting.pop(channel, None)

    def take(
        self, channel: Channel, authenticator: Authenticator, frame: bytes, head: Head, now_ns: int
    ) -> bool | None:
        """Handle the next frame of a channel that has an authenticator.

        None: the frame continues to its target. False: retry it after the responses in flight.
        """
        if authenticator.is_open:
            if head[1] != _HANDSHAKE:
                return None if self._is_current(channel, authenticator, now_ns) else True
            if not self._begins_again(channel, authenticator, now_ns):
                return None
        if channel.in_flight:
            # Its responses are sent in order.
            channel.muted |= MuteCause.ORDER
            return False
        step = authenticator.take(frame, channel.next_sequence, now_ns)
        if step.passes_on:
            return None
        if step.failure is not None:
            self._fail(channel, authenticator, step.failure, step.response, now_ns)
        else:
            self._continue(channel, authenticator, step, now_ns)
        return True

    def take_all(self, channel: Channel, data: bytes, try_send: TrySend) -> bytes:
        """Handle a channel's frames until its user is known; return the remaining bytes.

        Tokens may be sent as frames that are not requests (`H08`).
        """
        start = 0
        authenticator = channel.authenticator
        now_ns = self._now_ns()
        while authenticator is not None and not authenticator.is_open and not channel.muted:
            if len(data) - start < _SIZE.size:
                break
            (size,) = _SIZE.unpack_from(data, start)
            if not 0 <= size <= authenticator.most_bytes:
                step = authenticator.too_large(size, describe_foreign(data[start : start + _FOREIGN_BYTES]))
                assert step.failure is not None  # noqa: S101 - it always has one
                self._fail(channel, authenticator, step.failure, b"", now_ns)
                return b""
            end = start + _SIZE.size + size
            if len(data) < end:
                break
            frame = data[start + _SIZE.size : end]
            head = (size, *(_HEAD.unpack_from(frame) if size >= _HEAD.size else (-1, 0, 0)))
            if not try_send(channel, frame, head, now_ns):
                break
            start = end
        return data[start:]

    def check_large(self, channel: Channel, authenticator: Authenticator) -> None:
        """Raise InvalidReceive if a large request is not allowed now."""
        if not authenticator.is_open:
            raise InvalidReceive("a large request during re-authentication")
        if self._has_expired(authenticator, self._now_ns()):
            self.counts.expired += 1
            raise InvalidReceive(f"the session of User:{channel.user} has expired without re-authentication")

    def wait_ms(self, most_ms: int) -> int:
        """Return how long the loop may sleep: until a failed client's response is due, at most ``most_ms``."""
        if not self._failed:
            return most_ms
        return max(0, min(most_ms, -((self._now_ns() - self._failed[0][0]) // _NS_PER_MS)))

    def end_due(self, open_channels: Mapping[int, Channel]) -> None:
        """Send due responses of failed clients and close them; close clients past their authentication deadline."""
        if not self._waiting and not self._failed:
            return
        now_ns = self._now_ns()
        while self._failed and self._failed[0][0] <= now_ns:
            _, channel, response = self._failed.popleft()
            if channel.connection_id in open_channels:
                self._write(channel, response)
                self.ended.append((channel, "failed_authentication"))
        while self._waiting and next(iter(self._waiting.values())) <= now_ns:
            channel, _ = self._waiting.popitem(last=False)
            self._warnings.warning(
                f"slow {channel.peer}",
                "closing connection %s of listener %s: no authentication within %d ms (authentication.timeout.ms)",
                channel.name,
                self.listeners[channel.listener][0],
                self._limit_ns // _NS_PER_MS,
            )
            self.ended.append((channel, "failed_authentication"))

    def _begins_again(self, channel: Channel, authenticator: Authenticator, now_ns: int) -> bool:
        # It is retried while others are in flight.
        listener = self._listeners.get(self.listeners[channel.listener][0], _NOT_READY)
        return bool(channel.in_flight) or authenticator.begin_again(listener, now_ns)

    def _is_current(self, channel: Channel, authenticator: Authenticator, now_ns: int) -> bool:
        if not self._has_expired(authenticator, now_ns):
            return True
        self.counts.expired += 1
        channel.muted |= MuteCause.UNAUTHENTICATED
        self.ended.append((channel, "expired"))
        return False

    def _has_expired(self, authenticator: Authenticator, now_ns: int) -> bool:
        return bool(authenticator.expires_ns) and now_ns > authenticator.expires_ns

    def _continue(self, channel: Channel, authenticator: Authenticator, step: Step, now_ns: int) -> None:
        if authenticator.is_open:
            if authenticator.is_repeated:
                self.counts.succeeded_again += 1
                self.counts.latency_again_ns += now_ns - authenticator.begun_ns
            else:
                self.counts.succeeded += 1
                self._waiting.pop(channel, None)
                channel.user = authenticator.user
                channel.session = pack_session(authenticator.user, channel.peer, channel.reached)
                if self.clients is not None:
                    self.clients.authenticated(channel)
            if not authenticator.expires_ns:
                channel.authenticator = None
        self._write(channel, step.response)

    def _fail(
        self, channel: Channel, authenticator: Authenticator, failure: Failure, response: bytes, now_ns: int
    ) -> None:
        if authenticator.is_repeated:
            self.counts.failed_again += 1
        else:
            self.counts.failed += 1
        failure = failure._replace(cause=failure.cause[:_LOGGED_CAUSE], user=failure.user[:_LOGGED_USER])
        self._warnings.warning(
            f"{channel.peer} {failure}",
            "listener %s: authentication of %s%s%s failed: %s",
            self.listeners[channel.listener][0],
            channel.peer,
            f" with {failure.mechanism}" if failure.mechanism else "",
            f" as {failure.user!r}" if failure.user else "",
            failure.cause,
        )
        self._waiting.pop(channel, None)
        channel.inbox = b""
        channel.muted |= MuteCause.UNAUTHENTICATED
        self._failed.append((now_ns + self._delay_ns, channel, response))

    def _write(self, channel: Channel, response: bytes) -> None:
        if not response:
            return
        channel.out.append(response)
        try:
            if not channel.send_out():
                channel.muted |= MuteCause.OUTPUT
        except OSError:
            channel.discard_output()
            self.ended.append((channel, "io_error"))
