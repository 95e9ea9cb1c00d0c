"""Detects clients that fail repeatedly, and delays their error responses (`D22`).

Part of a processor. Only error responses are examined, and only while the setting is on. Failures are counted by
connection, API and resource. From the second error of a leader or coordinator, or the sixth of any kind, within a
second, each response with nothing but errors is delayed, until a second has passed without one. So a client that
retries at once does so once per delay. Nothing else changes for it.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from struct import Struct
from typing import TYPE_CHECKING, Final

from rotunda.broker.network.processor.kept_requests import is_kept
from rotunda.broker.network.processor.throttling.failed_resources import WATCHED, SentRequest, failed_resources
from rotunda.broker.protocol.api_keys import ApiKey
from rotunda.broker.server_log.log_setup import RepeatedWarnings
from rotunda.shm.layout import RESPONSE_ENVELOPE

if TYPE_CHECKING:
    from rotunda.broker.network.processor.channel import Channel
    from rotunda.broker.quotas.quota_manager import QuotaManager

logger = logging.getLogger(__name__)

#: Errors count for this long; after this long without errors a resource starts again.
WINDOW_NS: Final = 1_000_000_000
QUIET_NS: Final = 1_000_000_000

#: Errors of any kind that pass within a window; of those of a leader or coordinator only one passes.
MOST_ERRORS: Final = 5

#: A longer response passes: examining it would delay other connections.
MOST_BYTES: Final = 8192

#: The most failed resources stored for all connections of a processor; the oldest are evicted.
MOST_REMEMBERED: Final = 20_000

_NS_PER_MS: Final = 1_000_000
_NEVER: Final = -(1 << 62)
_FETCH: Final = int(ApiKey.FETCH)

_FACTS: Final = RESPONSE_ENVELOPE.offset("received_ns")
_unpack_int64, _unpack_int32 = Struct("@q").unpack_from, Struct("@i").unpack_from
_unpack_api = Struct("@hh").unpack_from
_API_AT: Final = RESPONSE_ENVELOPE.offset("api_key") - _FACTS
_MAX_WAIT_AT: Final = RESPONSE_ENVELOPE.offset("max_wait_ms") - _FACTS


class Failures:
    """The failures of one resource."""

    __slots__ = ("_errors", "_is_storm", "_last_ns", "_transient_ns")

    def __init__(self) -> None:
        self._is_storm = False
        #: The time at which the last error response is sent.
        self._last_ns = _NEVER
        self._transient_ns = _NEVER
        self._errors: deque[int] = deque(maxlen=MOST_ERRORS)

    def is_over(self, now_ns: int) -> bool:
        """Return whether past failures no longer count."""
        return now_ns > self._last_ns + QUIET_NS

    def count(self, now_ns: int, delay_ns: int, *, is_transient: bool) -> bool:
        """Count a failure; return whether to delay its response, for ``delay_ns`` at most."""
        if self._is_storm and self.is_over(now_ns):
            self._is_storm, self._transient_ns = False, _NEVER
            self._errors.clear()
        if not self._is_storm:
            oldest_ns = now_ns - WINDOW_NS
            errors = self._errors
            self._is_storm = (is_transient and self._transient_ns >= oldest_ns) or (
                len(errors) == MOST_ERRORS and errors[0] >= oldest_ns
            )
            errors.append(now_ns)
            if is_transient:
                self._transient_ns = now_ns
        self._last_ns = now_ns + (delay_ns if self._is_storm else 0)
        return self._is_storm


class RetryStorms:
    """The failed resources on the connections of one processor."""

    def __init__(self, quotas: QuotaManager, now_ns: Callable[[], int]) -> None:
        """``quotas`` has the delay, whether it is on, and the exempt clients."""
        self._quotas = quotas
        self._warnings = RepeatedWarnings(logger, now_ns)
        #: By the hash of connection, API and resource; the most recently failed last.
        self._failures: dict[int, Failures] = {}
        #: Responses that have been delayed.
        self.count = 0

    def __len__(self) -> int:
        return len(self._failures)

    @property
    def are_watched(self) -> bool:
        """Whether the delay is on."""
        return self._quotas.backoff_ms > 0

    def delay_ns(self, channel: Channel, sequence: int, facts: bytes, response: memoryview, now_ns: int) -> int:
        """Return the delay of an error response; 0 for none. Raises InvalidReceive."""
        api_key, version = _unpack_api(facts, _API_AT)
        if api_key not in WATCHED or len(response) > MOST_BYTES:
            return 0
        if self._quotas.is_exempt(channel.user, channel.listener, channel.names[0]):
            return 0
        _, _, frame = channel.repeatable.get(sequence, (0, 0, b""))
        failed = failed_resources(SentRequest(api_key, version, frame if is_kept(frame) else b""), response)
        if not failed:
            return 0
        delay_ns = self._most_ns(api_key, facts, now_ns)
        is_storm = False
        for resource, is_transient in failed.items():
            failures = self._failures_of(hash((channel.connection_id, api_key, resource)))
            is_storm |= failures.count(now_ns, delay_ns, is_transient=is_transient)
        if not is_storm or not delay_ns:
            return 0
        self.count += 1
        self._warnings.warning(
            "retry storm",
            "connection %s (client id %s) fails repeatedly at %s: its responses are delayed by %d ms "
            "(automq.retry.storm.backoff)",
            channel.name,
            channel.names[0],
            ApiKey(api_key).name,
            delay_ns // _NS_PER_MS,
        )
        return delay_ns

    def forget_quiet(self, now_ns: int) -> None:
        """Delete resources without recent failures. Called periodically."""
        for key in [key for key, failures in self._failures.items() if failures.is_over(now_ns)]:
            del self._failures[key]

    def _most_ns(self, api_key: int, facts: bytes, now_ns: int) -> int:
        """Return the longest delay of a response; for a Fetch the rest of its maximum wait."""
        delay_ns = self._quotas.backoff_ms * _NS_PER_MS
        if api_key != _FETCH:
            return delay_ns
        max_wait_ms: int = _unpack_int32(facts, _MAX_WAIT_AT)[0]
        over_ns: int = _unpack_int64(facts)[0] + max_wait_ms * _NS_PER_MS
        return max(0, min(delay_ns, over_ns - now_ns))

    def _failures_of(self, key: int) -> Failures:
        failures = self._failures.pop(key, None)
        if failures is None:
            failures = Failures()
            if len(self._failures) >= MOST_REMEMBERED:
                del self._failures[next(iter(self._failures))]
        self._failures[key] = failures
        return failures
