"""The authentication of a processor's connections: frames to their authenticators, answers, and ends.

Part of a processor. A channel of a listener with SASL has an authenticator until its user is known, and on as long as
its session can end. Frames of such a channel pass here before they reach a ring, and none but ApiVersions does so
before the user is known. Who fails is answered and closed after a delay, so that guessing takes time (`B23`); who does
not get on is closed too. All of it is gone with the process: clients of a killed one connect and authenticate again.
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

#: So much of what a client has sent is logged, and kept to recognise what it repeats.
_LOGGED_CAUSE, _LOGGED_USER = 300, 100

#: As many bytes show what protocol a client speaks.
_FOREIGN_BYTES = 8
_SIZE = Struct(">i")
_HEAD = Struct(">hhi")
_HANDSHAKE = int(ApiKey.SASL_HANDSHAKE)
_NS_PER_MS = 1_000_000

#: A listener that the settings do not know yet lets nobody in.
_NOT_READY = SaslListener("", {}, 65536, {})

#: Size, api key, version and correlation id of a frame, as far as it has them.
Head = tuple[int, int, int, int]
#: Sends a frame on, or not if there is no room.
TrySend = Callable[["Channel", bytes, Head, int], bool]


class Settings(Protocol):
    """The settings in force (`LiveSettings`)."""

    @property
    def broker_config(self) -> BrokerConfig:
        """Those of the broker."""

    @property
    def user_credentials(self) -> UserCredentials:
        """The users."""

    def refresh(self, *, at_once: bool) -> bool:
        """Take over what has changed; return whether anything has."""


class Counts:
    """What the metrics say of authentication."""

    __slots__ = ("expired", "failed", "failed_again", "latency_again_ns", "succeeded", "succeeded_again")

    def __init__(self) -> None:
        self.succeeded = self.failed = self.succeeded_again = self.failed_again = 0
        self.latency_again_ns = self.expired = 0

    @property
    def values(self) -> tuple[int, ...]:
        """All of them, in the order of `processor_metrics.AUTHENTICATIONS`."""
        first = (self.succeeded, self.failed)
        return (*first, self.succeeded_again, self.failed_again, self.latency_again_ns, self.expired)


class Authentication:
    """The channels of one processor that have an authenticator."""

    def __init__(self, config: BrokerConfig, now_ns: Callable[[], int], wall_ms: Callable[[], int]) -> None:
        self._now_ns, self._wall_ms = now_ns, wall_ms
        self._warnings = RepeatedWarnings(logger, now_ns)
        #: By index: the name of each listener, and its protocol.
        self.listeners: Sequence[tuple[Any, ...]] = [(each.name, each.protocol) for each in config.bound_listeners]
        self._listeners: Mapping[str, SaslListener] = {}
        #: Channels whose users are not known yet, and until when they may be: the oldest first.
        self._waiting: OrderedDict[Channel, int] = OrderedDict()
        #: Who has failed: when to answer, whom, and what.
        self._failed: deque[tuple[int, Channel, bytes]] = deque()
        #: Where connections are put that are to be closed, and why.
        self.ended: list[tuple[Channel, str]] = []
        #: Gets to know as whom a connection has authenticated.
        self.clients: ClientRegistry | None = None
        self.counts = Counts()
        self._maker = SaslListeners(wall_ms)
        self._live: Settings | None = None
        self._take_over(config, UserCredentials())

    def follow(self, live: Settings) -> None:
        """Go by these settings from now on, as they are now and as they will be; their credentials change in place."""
        self._live = live
        self._take_over(live.broker_config, live.user_credentials)

    def _take_over(self, config: BrokerConfig, credentials: UserCredentials) -> None:
        self._config = config
        self._listeners = self._maker.make(config, credentials)
        self._delay_ns = config.connection_failed_authentication_delay_ms * _NS_PER_MS
        self._limit_ns = config.authentication_timeout_ms * _NS_PER_MS

    def begin(self, channel: Channel) -> None:
        """Have a new connection authenticate, if its listener asks for that."""
        name, protocol, *_ = self.listeners[channel.listener]
        if protocol.startswith("SASL_"):
            # A processor without SASL need not load the schemas of messages.
            from rotunda.broker.security.sasl.authenticator import Authenticator  # noqa: PLC0415

            live = self._live
            if live is not None:
                # Who was made, or which listener was opened, before this connection came is known to it.
                live.refresh(at_once=True)
                if live.broker_config is not self._config:
                    self.follow(live)
            channel.authenticator = Authenticator(self._listeners.get(name, _NOT_READY), self._wall_ms)
            self._waiting[channel] = self._now_ns() + self._limit_ns

    def forget(self, channel: Channel) -> None:
        """Keep nothing of a channel that is closed."""
        self._waiting.pop(channel, None)

    def take(
        self, channel: Channel, authenticator: Authenticator, frame: bytes, head: Head, now_ns: int
    ) -> bool | None:
        """Deal with the next frame of a channel that has an authenticator.

        None: it goes on to its target. False: it is to come again once what is in flight has been answered.
        """
        if authenticator.is_open:
            if head[1] != _HANDSHAKE:
                return None if self._goes_on(channel, authenticator, now_ns) else True
            if not self._begins_again(channel, authenticator, now_ns):
                return None
        if channel.in_flight:
            # Its answers come in order.
            channel.muted |= MuteCause.ORDER
            return False
        step = authenticator.take(frame, channel.next_sequence, now_ns)
        if step.passes_on:
            return None
        if step.failure is not None:
            self._fail(channel, authenticator, step.failure, step.answer, now_ns)
        else:
            self._go_on(channel, authenticator, step, now_ns)
        return True

    def take_all(self, channel: Channel, data: bytes, try_send: TrySend) -> bytes:
        """Deal with the frames of a channel until its user is known; return what is left.

        Tokens may come as frames that are no requests (`H08`).
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
        """Raise InvalidReceive if a large request may not be taken now."""
        if not authenticator.is_open:
            raise InvalidReceive("a large request while the client authenticates again")
        if self._has_expired(authenticator, self._now_ns()):
            self.counts.expired += 1
            raise InvalidReceive(f"the session of User:{channel.user} has ended, and its client goes on")

    def wait_ms(self, most_ms: int) -> int:
        """Return for how long the loop may sleep: until somebody is to be answered, and at most so long."""
        if not self._failed:
            return most_ms
        return max(0, min(most_ms, -((self._now_ns() - self._failed[0][0]) // _NS_PER_MS)))

    def end_due(self, open_channels: Mapping[int, Channel]) -> None:
        """Answer and close who has failed long enough ago, and close who has not authenticated in time."""
        if not self._waiting and not self._failed:
            return
        now_ns = self._now_ns()
        while self._failed and self._failed[0][0] <= now_ns:
            _, channel, answer = self._failed.popleft()
            if channel.connection_id in open_channels:
                self._write(channel, answer)
                self.ended.append((channel, "failed_authentication"))
        while self._waiting and next(iter(self._waiting.values())) <= now_ns:
            channel, _ = self._waiting.popitem(last=False)
            self._warnings.warning(
                f"slow {channel.peer}",
                "closing connection %s of listener %s: it has not authenticated within %d ms "
                "(authentication.timeout.ms)",
                channel.name,
                self.listeners[channel.listener][0],
                self._limit_ns // _NS_PER_MS,
            )
            self.ended.append((channel, "failed_authentication"))

    def _begins_again(self, channel: Channel, authenticator: Authenticator, now_ns: int) -> bool:
        # While others are in flight it comes again.
        listener = self._listeners.get(self.listeners[channel.listener][0], _NOT_READY)
        return bool(channel.in_flight) or authenticator.begin_again(listener, now_ns)

    def _goes_on(self, channel: Channel, authenticator: Authenticator, now_ns: int) -> bool:
        if not self._has_expired(authenticator, now_ns):
            return True
        self.counts.expired += 1
        channel.muted |= MuteCause.UNAUTHENTICATED
        self.ended.append((channel, "expired"))
        return False

    def _has_expired(self, authenticator: Authenticator, now_ns: int) -> bool:
        return bool(authenticator.expires_ns) and now_ns > authenticator.expires_ns

    def _go_on(self, channel: Channel, authenticator: Authenticator, step: Step, now_ns: int) -> None:
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
        self._write(channel, step.answer)

    def _fail(
        self, channel: Channel, authenticator: Authenticator, failure: Failure, answer: bytes, now_ns: int
    ) -> None:
        if authenticator.is_repeated:
            self.counts.failed_again += 1
        else:
            self.counts.failed += 1
        failure = failure._replace(cause=failure.cause[:_LOGGED_CAUSE], user=failure.user[:_LOGGED_USER])
        self._warnings.warning(
            f"{channel.peer} {failure}",
            "listener %s: authentication of %s%s%s has failed: %s",
            self.listeners[channel.listener][0],
            channel.peer,
            f" with {failure.mechanism}" if failure.mechanism else "",
            f" as {failure.user!r}" if failure.user else "",
            failure.cause,
        )
        self._waiting.pop(channel, None)
        channel.inbox = b""
        channel.muted |= MuteCause.UNAUTHENTICATED
        self._failed.append((now_ns + self._delay_ns, channel, answer))

    def _write(self, channel: Channel, answer: bytes) -> None:
        if not answer:
            return
        channel.out.append(answer)
        try:
            if not channel.send_out():
                channel.muted |= MuteCause.OUTPUT
        except OSError:
            channel.discard_output()
            self.ended.append((channel, "io_error"))
