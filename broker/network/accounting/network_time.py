"""The time that a processor spends on each client, charged to the quota for the time of threads (`B29`).

Runs in processor processes. Reading requests and writing answers is measured connection by connection while such a
quota is set for anybody: one round of several, which stands for all of them. It is recorded without a look at whether
it is too much: the target that answers the client's next request sees that. While none is set, nothing is measured.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from rotunda.broker.network.processor.channel import Answered, Channel
    from rotunda.broker.quotas.quota_manager import QuotaManager

    Finish = Callable[[Channel, Answered, int], None]


#: One round in so many is measured. A turn of the loop has up to four of them, so that it is another one each time.
EVERY: Final = 17


class NetworkTime:
    """What one processor charges."""

    __slots__ = ("_now_ns", "_quotas", "_round")

    def __init__(self, quotas: QuotaManager, now_ns: Callable[[], int]) -> None:
        self._quotas = quotas
        self._now_ns = now_ns
        self._round = 0

    def of_each(self, channels: Iterable[Channel]) -> Iterable[Channel]:
        """Return the channels, such that what is done for each before the next is charged to its client. HOT."""
        return self._timed(channels) if self._quotas.limits_time and self._is_measured() else channels

    def of_lone(self, finish: Finish) -> Finish:
        """Return ``finish`` such that the time from one call to the next is charged to the client. HOT."""
        if not (self._quotas.limits_time and self._is_measured()):
            return finish
        quotas, since_ns = self._quotas, self._now_ns()

        def timed(channel: Channel, answered: Answered, end_ns: int) -> None:
            nonlocal since_ns
            quotas.charge_time(channel.user, channel.client_prefix, (end_ns - since_ns) * EVERY, end_ns)
            since_ns = end_ns
            finish(channel, answered, end_ns)

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
