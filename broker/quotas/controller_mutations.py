"""The quota of one request that creates or deletes partitions: a token bucket, as in Kafka (KIP-599, `E15`).

Runs in the controller. In versions whose clients know THROTTLING_QUOTA_EXCEEDED the quota is strict: while the bucket
is below empty, each topic is rejected. Older versions are executed, and throttled afterwards.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from rotunda.broker.errors import ApiError
from rotunda.broker.protocol.error_codes import ErrorCode

if TYPE_CHECKING:
    from rotunda.broker.quotas.meters import TokenMeter


class ControllerMutationQuota:
    """The remaining quota of one request, and its client's throttle time."""

    def __init__(self, meter: TokenMeter | None, now_ns: Callable[[], int], *, strict: bool) -> None:
        """Without a ``meter`` the client has no quota."""
        self._meter = meter
        self._now_ns = now_ns
        self._strict = strict
        self._is_exceeded = False
        #: Number of partitions created or deleted, counted also without a quota.
        self.charged = 0

    def charge(self, partitions: int) -> None:
        """Charge partitions before they are created or deleted. Raises ApiError if the quota is exceeded."""
        if self._meter is not None:
            self._charge(self._meter, partitions)
        self.charged += partitions

    def _charge(self, meter: TokenMeter, partitions: int) -> None:
        now_ns = self._now_ns()
        if self._strict and meter.throttle_ms(now_ns):
            self._is_exceeded = True
            raise ApiError(ErrorCode.THROTTLING_QUOTA_EXCEEDED)
        meter.take(partitions, now_ns)
        self._is_exceeded |= not self._strict

    def throttle_ms(self) -> int:
        """Return the client's throttle time in ms, and record it."""
        if self._meter is None or not self._is_exceeded:
            return 0
        now_ns = self._now_ns()
        throttle_ms = self._meter.throttle_ms(now_ns)
        if throttle_ms:
            self._meter.throttled(throttle_ms, now_ns)
        return throttle_ms
