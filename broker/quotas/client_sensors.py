"""A client's sensors: the quotas that apply to it, charged with its requests and responses.

Runs in targets. All clients that share every quota have the same object, whatever their connection. It is attached to
each of their requests until its response, and is None while no quota is set. It includes the limits that all clients
share.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rotunda.broker.protocol.api_keys import ApiKey

if TYPE_CHECKING:
    from rotunda.broker.quotas.broker_sensors import BrokerSensors
    from rotunda.broker.quotas.meters import Book, RateMeter, TokenMeter

_PRODUCE, _FETCH = int(ApiKey.PRODUCE), int(ApiKey.FETCH)

#: In Kafka brokers send this to each other; other clients that send it are not throttled either (`E13`).
_EXEMPT: Final = frozenset({int(ApiKey.WRITE_TXN_MARKERS)})

_NO_LIMIT: Final = 2**31 - 1


class ClientSensors:
    """The meters of one client; None: that quota is not set for it."""

    __slots__ = (
        "_common",
        "_fetch",
        "_produce",
        "_request",
        "batch_ms",
        "book",
        "mutation",
        "spent_ns",
        "staged",
        "throttled_by",
    )

    def __init__(
        self,
        book: Book,
        produce: RateMeter | None,
        fetch: RateMeter | None,
        request: RateMeter | None,
        mutation: TokenMeter | None,
        common: BrokerSensors | None = None,
    ) -> None:
        """Charge these meters; ``common`` is shared with all clients."""
        self.book, self._common = book, common
        self._produce, self._fetch, self._request = produce, fetch, request
        self.mutation = mutation
        #: Time spent for this client since it was charged last.
        self.spent_ns = 0
        #: Sizes of its requests that are committed, and charged, together. Always the same object.
        self.staged: list[int] = []
        #: The quota behind the last throttle time, as in the request log.
        self.throttled_by = 0
        #: The throttle time of its responses in the batch that was charged last.
        self.batch_ms = 0

    def record_response(self, api_key: int, request_bytes: int, now_ns: int) -> int:
        """Charge a request that is about to get its response; return its client's throttle time in ms. HOT.

        If several quotas are used up, the longest time counts (`E14`). A Fetch is charged by `fetched`.
        """
        if api_key == _FETCH:
            return 0
        book, request, ms = self.book, self._request, 0
        spent_ns, self.spent_ns = self.spent_ns + now_ns - book.mark_ns, 0
        book.mark_ns = now_ns
        by = request
        if request is not None and api_key not in _EXEMPT:
            request.unrecorded += spent_ns
            if request.unrecorded >= request.enough or now_ns >= request.due_ns:
                ms = request.settle(now_ns)
        produce = self._produce
        if api_key == _PRODUCE and produce is not None:
            produce.unrecorded += request_bytes
            if produce.unrecorded >= produce.enough or now_ns >= produce.due_ns:
                bandwidth_ms = produce.settle(now_ns)
                if bandwidth_ms > ms:
                    ms, by = bandwidth_ms, produce
        common_ms = 0 if self._common is None else self._common.record_response(api_key, request_bytes, now_ns)
        return self._longest(ms, by, common_ms, now_ns) if ms or common_ms else 0

    def record_responses(self, count: int, request_bytes: int, spent_ns: int, now_ns: int) -> int:
        """Charge Produce requests whose responses are sent together; return, and store, the throttle time in ms."""
        request, produce, ms = self._request, self._produce, 0
        by = request
        if request is not None:
            request.unrecorded += self.spent_ns + spent_ns
            if request.unrecorded >= request.enough or now_ns >= request.due_ns:
                ms = request.settle(now_ns)
        self.spent_ns = 0
        if produce is not None:
            produce.unrecorded += request_bytes
            if produce.unrecorded >= produce.enough or now_ns >= produce.due_ns:
                bandwidth_ms = produce.settle(now_ns)
                if bandwidth_ms > ms:
                    ms, by = bandwidth_ms, produce
        common_ms = 0 if self._common is None else self._common.record_response(_PRODUCE, request_bytes, now_ns, count)
        self.batch_ms = self._longest(ms, by, common_ms, now_ns, count) if ms or common_ms else 0
        return self.batch_ms

    def produced_silently(self, request_bytes: int, now_ns: int) -> int:
        """Charge a Produce without a response, except for the time it has cost (`E13`)."""
        self.spent_ns = 0
        ms = 0 if self._produce is None else self._produce.charge(request_bytes, now_ns)
        common_ms = 0 if self._common is None else self._common.record_response(_PRODUCE, request_bytes, now_ns)
        return self._longest(ms, self._produce, common_ms, now_ns) if ms or common_ms else 0

    def fetched(self, response_bytes: int, now_ns: int) -> int:
        """Charge a response to a Fetch, unless its client must be throttled; return the throttle time in ms (`E12`)."""
        common_ms = 0 if self._common is None else self._common.record_response(_FETCH, 0, now_ns)
        if self._common is not None and not common_ms:
            common_ms = self._common.fetched(response_bytes, now_ns)
        book, meter, by = self.book, self._fetch, self._request
        spent_ns, self.spent_ns = self.spent_ns + now_ns - book.mark_ns, 0
        book.mark_ns = now_ns
        request_ms = 0 if self._request is None else self._request.charge(spent_ns, now_ns)
        fetch_ms = 0
        if meter is not None:
            fetch_ms = meter.charge_unless_throttled(response_bytes, now_ns)
            if (request_ms or common_ms) and not fetch_ms:
                # The response becomes empty because of the other quota.
                meter.unrecorded -= response_bytes
        if fetch_ms > request_ms:
            by = meter
        ms = max(request_ms, fetch_ms)
        if ms and self._common is not None and not common_ms:
            self._common.refund(response_bytes)
        return self._longest(ms, by, common_ms, now_ns) if ms or common_ms else 0

    def _longest(self, ms: int, by: RateMeter | None, common_ms: int, now_ns: int, count: int = 1) -> int:
        """Return the applicable throttle time; record its quota, and how many responses carry the client's own."""
        if ms and by is not None:
            by.throttled(ms, now_ns, count)
            self.throttled_by = by.throttled_by
        if self._common is not None and common_ms > ms:
            self.throttled_by = self._common.throttled_by
        return max(ms, common_ms)

    def charge_time(self, spent_ns: int, now_ns: int) -> None:
        """Charge time without throttling: the client's next request sees the result. HOT."""
        if self._request is not None:
            self._request.charge(spent_ns, now_ns)

    @property
    def most_fetched(self) -> int:
        """Size in bytes of the largest response to a Fetch without a throttle time (`E12`)."""
        own = None if self._fetch is None else self._fetch.most_at_once
        shared = None if self._common is None else self._common.most_fetched
        return min(_NO_LIMIT if each is None else each for each in (_NO_LIMIT, own, shared))
