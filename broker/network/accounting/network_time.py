"""Measures the time that a processor spends on each client, and charges it to the request quota (`B29`).

Runs in processor processes. While any such quota exists, reading requests and writing responses is measured connection
by connection, in one round of several, extrapolated to all of them. The time is recorded without a check of the limit:
the target of the client's next request checks it. Without such a quota nothing is measured.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from rotunda.broker.network.processor.channel import Channel, Completion
    from rotunda.broker.quotas.quota_manager import QuotaManager

    Finish = Callable[[Channel, Completion, int], None]


#: One round in this many is measured. An iteration of the loop has up to four rounds, so the measured one varies.
EVERY: Final = 17


class NetworkTime:
    """The measurements of one processor."""

    __slots__ = ("_now_ns", "_quotas", "_round")

    def __init__(self, quotas: QuotaManager, now_ns: Callable[[], int]) -> None:
        self._quotas = quotas
        self._now_ns = now_ns
        self._round = 0

    def of_each(self, channels: Iterable[Channel]) -> Iterable[Channel]:
        """Return the channels; the time the caller spends on each is charged to its client. HOT."""
        return self._timed(channels) if self._quotas.limits_time and self._is_measured() else channels

    def of_lone(self, finish: Finish) -> Finish:
        """Return ``finish`` wrapped to charge the time between two calls to the client. HOT."""
        if not (self._quotas.limits_time and self._is_measured()):
            return finish
        quotas, since_ns = self._quotas, self._now_ns()

        def timed(channel: Channel, completion: Completion, end_ns: int) -> None:
            nonlocal since_ns
            quotas.charge_time(channel.user, channel.client_prefix, (end_ns - since_ns) * EVERY, end_ns)
            since_ns = end_ns
            finish(channel, completion, end_ns)

        return timed

    def _is_measured(self) -> bool:
        self._round = (self._round + 1) % EVERY
        return not self._round

    def _timed(self, channels: Iterable[Channel]) -> Iterator[Channel]:
        quotas, since_ns = self._quotas, self._now_ns()
        for channel in channels:
            yield channel
            now_ns = self._now_ns()
            quotas.charge_time(channel.user, channel.client_prefix, (now_ns - since_ns) * EVERY, now_ns)
            since_ns = now_ns
