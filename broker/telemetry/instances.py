"""The client instances of a handler, and the rules of their requests (KIP-714).

An instance is kept while its client sends requests; nothing of it is stored, since a client that is not known is taken
up by its next request. Runs in handler processes; times are monotonic.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from rotunda.broker.protocol.error_codes import ErrorCode
from rotunda.broker.telemetry.series import Series
from rotunda.broker.telemetry.subscriptions import ClientFacts, Subscription, Subscriptions

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

#: Most instances; the one without a request for the longest time is dropped.
MOST_INSTANCES: Final = 16_384

#: An instance is dropped after so many push intervals without a request, but not before this time.
MOST_INTERVALS: Final = 3
LEAST_KEPT_NS: Final = 60_000_000_000

#: How often instances are checked for that.
CHECK_INTERVAL_NS: Final = 5_000_000_000

_NS_PER_MS: Final = 1_000_000
#: Of a request that there has not been.
_NEVER_NS: Final = -(1 << 62)
_ID_BYTES: Final = 16
ZERO_ID: Final = bytes(_ID_BYTES)
#: Ids that no instance may have: zero, and the one that Kafka reserves.
RESERVED_IDS: Final = frozenset({ZERO_ID, (1).to_bytes(_ID_BYTES, "big")})

#: Errors after which a client may ask for its subscription before the interval has passed.
_ASKS_AGAIN: Final = frozenset({ErrorCode.UNKNOWN_SUBSCRIPTION_ID, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE})
#: Compression types of a push: the codecs of record batches.
_CODECS: Final = range(5)


class Instance:
    """One client instance: its subscription, its latest requests, and the values that it has pushed."""

    __slots__ = (
        "client",
        "connection_id",
        "has_terminated",
        "instance_id",
        "last_error",
        "last_get_ns",
        "last_push_ns",
        "may_push_early",
        "pushed_wall_ms",
        "seen_ns",
        "series",
        "subscription",
        "user",
        "version",
    )

    def __init__(self, instance_id: bytes, series: Series) -> None:
        self.instance_id = instance_id
        self.series = series
        self.client: ClientFacts
        self.user = ""
        self.connection_id = -1
        self.subscription: Subscription
        #: That of the metadata as of the subscription.
        self.version = -1
        self.last_get_ns = self.last_push_ns = _NEVER_NS
        self.seen_ns = 0
        self.last_error = 0
        self.has_terminated = False
        self.may_push_early = False
        self.pushed_wall_ms: int | None = None

    def may_get(self, now_ns: int) -> bool:
        """Return whether a GetTelemetrySubscriptions is not too early, and record it then."""
        last_ns = max(self.last_get_ns, self.last_push_ns)
        if now_ns - last_ns < self.interval_ns and self.last_error not in _ASKS_AGAIN:
            return False
        self.last_get_ns = now_ns
        self.may_push_early = True
        return True

    def may_push(self, now_ns: int) -> bool:
        """Return whether a PushTelemetry is not too early, and record it then. After a get it never is."""
        if not self.may_push_early and now_ns - self.last_push_ns < self.interval_ns:
            return False
        self.last_push_ns = now_ns
        self.may_push_early = False
        return True

    @property
    def interval_ns(self) -> int:
        """The push interval."""
        return self.subscription.interval_ms * _NS_PER_MS

    def is_inactive(self, now_ns: int) -> bool:
        """Return whether it has sent no request for so long that its client has ended."""
        return now_ns - self.seen_ns > max(LEAST_KEPT_NS, MOST_INTERVALS * self.interval_ns)


class Instances:
    """All instances of one handler, the latest used last."""

    def __init__(
        self,
        configs: Callable[[], Mapping[str, Mapping[str, str]]],
        version: Callable[[], int],
        has_ended: Callable[[int], bool],
    ) -> None:
        """``configs``: the stored subscriptions as of a metadata ``version``; ``has_ended``: of a connection."""
        self._configs = configs
        self._version = version
        self._has_ended = has_ended
        self._known: OrderedDict[bytes, Instance] = OrderedDict()
        self._subscriptions = Subscriptions({})
        self._compiled: Mapping[str, Mapping[str, str]] = {}
        self._checked_ns = 0
        self.series_count = 0

    def __iter__(self) -> Iterator[Instance]:
        return iter(list(self._known.values()))

    def __len__(self) -> int:
        return len(self._known)

    def new_id(self) -> bytes:
        """Return an id that no instance has."""
        while True:
            found = os.urandom(_ID_BYTES)
            if found not in RESERVED_IDS and found not in self._known:
                return found

    def seen(self, client: ClientFacts, instance_id: bytes, user: str, connection_id: int, now_ns: int) -> Instance:
        """Return a client's instance with its current subscription; the first request of a client creates it.

        A changed subscription starts it anew, as in Kafka: its next request is never too early.
        """
        instance = self._known.get(instance_id)
        if instance is None:
            if len(self._known) >= MOST_INSTANCES:
                self._drop(next(iter(self._known)))
            instance = self._known[instance_id] = Instance(instance_id, Series())
        self._known.move_to_end(instance_id)
        version = self._version()
        if instance.version != version or instance.client != client:
            subscription = self._current().of(client, instance_id)
            if instance.version >= 0 and subscription != instance.subscription:
                instance.last_get_ns = instance.last_push_ns = _NEVER_NS
                instance.has_terminated = False
            instance.client, instance.subscription, instance.version = client, subscription, version
        instance.user, instance.connection_id, instance.seen_ns = user, connection_id, now_ns
        return instance

    def drop_ended(self, now_ns: int) -> None:
        """Drop the instances whose client has ended or disconnected. Called in each turn; checks now and then."""
        if now_ns - self._checked_ns < CHECK_INTERVAL_NS:
            return
        self._checked_ns = now_ns
        for instance in self:
            if instance.is_inactive(now_ns) or self._has_ended(instance.connection_id):
                self._drop(instance.instance_id)

    def drop_oldest_values(self, most_series: int) -> None:
        """Drop the values of the least recently used instances, until at most ``most_series`` remain."""
        for instance in self:
            if self.series_count <= most_series:
                return
            self.series_count -= instance.series.clear()

    def _drop(self, instance_id: bytes) -> None:
        self.series_count -= self._known.pop(instance_id).series.clear()

    def _current(self) -> Subscriptions:
        configs = self._configs()
        # The metadata cache changes them in place.
        if configs != self._compiled:
            self._subscriptions, self._compiled = Subscriptions(configs), dict(configs)
        return self._subscriptions


def push_error(instance: Instance, request: Any, most_bytes: int, now_ns: int) -> int:
    """Return the error of a PushTelemetry, in Kafka's order of checks. One that terminates is never too early."""
    if instance.has_terminated:
        return ErrorCode.INVALID_REQUEST
    instance.has_terminated = request.terminating
    if not instance.may_push(now_ns) and not request.terminating:
        return ErrorCode.THROTTLING_QUOTA_EXCEEDED
    if request.subscription_id != instance.subscription.subscription_id:
        return ErrorCode.UNKNOWN_SUBSCRIPTION_ID
    if request.compression_type not in _CODECS:
        return ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    return ErrorCode.TELEMETRY_TOO_LARGE if len(request.metrics) > most_bytes else 0
