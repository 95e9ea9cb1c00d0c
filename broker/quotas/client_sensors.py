"""A client's sensors: the quotas that hold for it, charged with what it asks for and gets.

Runs in targets. One object stands for all clients that share every quota, whichever connection they come by; it travels
with each of their requests to its answer, and is None where no quota holds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from broker.protocol.api_keys import ApiKey

if TYPE_CHECKING:
    from broker.quotas.meters import Book, RateMeter, TokenMeter

_PRODUCE, _FETCH = int(ApiKey.PRODUCE), int(ApiKey.FETCH)

#: Brokers ask this of one another in Kafka; whoever else does is not held back either (`E13`).
_EXEMPT: Final = frozenset({int(ApiKey.WRITE_TXN_MARKERS)})

_NO_LIMIT: Final = 2**31 - 1


class ClientSensors:
    """The meters of one client; None: that quota is not set for it."""

    __slots__ = ("_book", "_fetch", "_produce", "_request", "mutation")

    def __init__(
        self,
        book: Book,
        produce: RateMeter | None,
        fetch: RateMeter | None,
        request: RateMeter | None,
        mutation: TokenMeter | None,
    ) -> None:
        self._book = book
        self._produce, self._fetch, self._request = produce, fetch, request
        self.mutation = mutation

    def took(self, now_ns: int) -> None:
        """Charge the time since the last charge of this process, whether or not it is too much. HOT."""
        book = self._book
        if self._request is not None:
            self._request.charge_unchecked(now_ns - book.mark_ns)
        book.mark_ns = now_ns

    def share_time(self, ns: int) -> None:
        """Charge a share of time that was spent for several clients."""
        if self._request is not None:
            self._request.charge_unchecked(ns)

    def answered(self, api_key: int, request_bytes: int, now_ns: int) -> int:
        """Charge a request that is about to be answered; return for how many ms its client is to be throttled. HOT.

        Of several quotas that it has used up the longest time counts (`E14`). A Fetch is charged by `fetched`.
        """
        if api_key == _FETCH:
            return 0
        ms = self._took_until(now_ns) if api_key not in _EXEMPT else 0
        by = self._request
        if api_key == _PRODUCE and self._produce is not None:
            bandwidth_ms = self._produce.charge(request_bytes, now_ns)
            if bandwidth_ms > ms:
                ms, by = bandwidth_ms, self._produce
        if ms and by is not None:
            by.throttled(ms, now_ns)
        return ms

    def produced_silently(self, request_bytes: int, now_ns: int) -> int:
        """Charge a Produce without an answer, which the time that it has taken is not charged for (`E13`)."""
        if self._produce is None:
            return 0
        ms = self._produce.charge(request_bytes, now_ns)
        if ms:
            self._produce.throttled(ms, now_ns)
        return ms

    def fetched(self, answer_bytes: int, now_ns: int) -> int:
        """Charge an answer to a Fetch, unless its client is to be throttled: return for how many ms (`E12`)."""
        request_ms = self._took_until(now_ns)
        meter, by = self._fetch, self._request
        fetch_ms = 0
        if meter is not None:
            fetch_ms = meter.charge_unless_throttled(answer_bytes, now_ns)
            if request_ms and not fetch_ms:
                # The answer is going to be empty for the sake of the other quota.
                meter.charge_unchecked(-answer_bytes)
        if fetch_ms > request_ms:
            by = meter
        ms = max(request_ms, fetch_ms)
        if ms and by is not None:
            by.throttled(ms, now_ns)
        return ms

    @property
    def most_fetched(self) -> int:
        """The largest answer to a Fetch that need not be throttled, in bytes (`E12`)."""
        return _NO_LIMIT if self._fetch is None else min(_NO_LIMIT, self._fetch.most_at_once)

    def _took_until(self, now_ns: int) -> int:
        book, request = self._book, self._request
        spent_ns, book.mark_ns = now_ns - book.mark_ns, now_ns
        return 0 if request is None else request.charge(spent_ns, now_ns)
