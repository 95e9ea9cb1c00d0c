"""The broker's sensors: the limits on all clients together, and the throttling of all clients under overload (`E18`).

Runs in targets. One object is shared by the sensors of every client that is not exempt. Since the limits are shared by
all clients, their throttle time is bounded by the time over which they are measured.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rotunda.broker.protocol.api_keys import ApiKey
from rotunda.shm.recorder_layout import THROTTLED_BY

if TYPE_CHECKING:
    from rotunda.broker.quotas.meters import RateMeter
    from rotunda.broker.quotas.overload import Overload

_PRODUCE: Final = int(ApiKey.PRODUCE)
_OVERLOAD: Final = 1 + THROTTLED_BY.index("overload.queue.time.ms")


class BrokerSensors:
    """The meters that all clients share; None: that limit is not set."""

    __slots__ = ("_fetch", "_overload", "_produce", "_rate", "throttled_by")

    def __init__(
        self, produce: RateMeter | None, fetch: RateMeter | None, rate: RateMeter | None, overload: Overload
    ) -> None:
        """Use ``rate`` to count requests, of any size and duration."""
        self._produce, self._fetch, self._rate = produce, fetch, rate
        self._overload = overload
        #: The limit behind the last throttle time.
        self.throttled_by = 0

    def record_response(self, api_key: int, request_bytes: int, now_ns: int, count: int = 1) -> int:
        """Charge ``count`` requests, except the bytes of a Fetch; return the throttle time in ms."""
        ms = self._overload.throttle(count)
        if ms:
            self.throttled_by = _OVERLOAD
        ms = self._charge(self._rate, count, now_ns, ms)
        return ms if api_key != _PRODUCE else self._charge(self._produce, request_bytes, now_ns, ms)

    def fetched(self, response_bytes: int, now_ns: int) -> int:
        """Charge a response to a Fetch unless its client must be throttled; return the throttle time in ms."""
        if self._fetch is None:
            return 0
        ms = self._fetch.charge_unless_throttled(response_bytes, now_ns)
        if ms:
            self._fetch.throttled(ms, now_ns)
            self.throttled_by = self._fetch.throttled_by
        return ms

    def _charge(self, meter: RateMeter | None, used: int, now_ns: int, most_ms: int) -> int:
        """Charge a meter; return the longer one of its throttle time and the others'."""
        if meter is None:
            return most_ms
        ms = meter.charge(used, now_ns)
        if ms:
            meter.throttled(ms, now_ns)
        if ms <= most_ms:
            return most_ms
        self.throttled_by = meter.throttled_by
        return ms

    def refund(self, response_bytes: int) -> None:
        """Undo the charge of a response to a Fetch, which becomes empty because of another quota."""
        if self._fetch is not None:
            self._fetch.unrecorded -= response_bytes

    @property
    def most_fetched(self) -> int | None:
        """Size in bytes of the largest response to a Fetch without a throttle time; None without a limit."""
        return None if self._fetch is None else self._fetch.most_at_once
