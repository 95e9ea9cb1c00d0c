"""Admission of connections: the layers of limits in Kafka's order (`A07`).

Runs in the acceptor. Pure decisions over its counts, its rates and the current limits; the acceptor carries them out:

1. the connection rate of the listener and of the broker: the connection waits (`arrived`, `A10`);
2. a slot of the listener and of the broker: it waits (`has_slot`, `A08`);
3. the rate of its address, then the broker's rejection rate: it is closed after a delay and removed from all rates
   (`rejection_ms`, `A12`, `A13`);
4. the number of connections of its address: it is closed at once (`is_full`, `A14`).
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

from rotunda.broker.network.acceptor.connection_limits import ConnectionLimits
from rotunda.broker.network.acceptor.connection_rate import UNLIMITED, ConnectionRate

if TYPE_CHECKING:
    from rotunda.broker.network.acceptor.connection_quotas import ConnectionQuotas

#: Maximum number of addresses with a rate; beyond it the longest silent one is evicted.
MOST_ADDRESSES = 10_000
#: An address without a new connection for this long is evicted.
ADDRESS_EXPIRATION_MS = 3_600_000


class Admission:
    """Applies the current limits."""

    def __init__(self, quotas: ConnectionQuotas, limits: ConnectionLimits) -> None:
        self.limits = limits
        self._quotas = quotas
        self._windows = windows = limits.windows
        self._broker, self._rejections = ConnectionRate(windows), ConnectionRate(windows)
        self._listeners = [ConnectionRate(windows) for _ in quotas.by_listener]
        #: By address, longest silent first: its rate, and the time of last use.
        self._addresses: OrderedDict[str, tuple[ConnectionRate, int]] = OrderedDict()

    def arrived(self, listener: int, now_ms: int) -> int:
        """Count a new connection; return its delay in ms."""
        limits = self.limits
        delay_ms = _recorded(self._listeners[listener], limits.listener(listener).rate, now_ms)
        if listener != limits.protected:
            delay_ms = max(delay_ms, _recorded(self._broker, limits.rate, now_ms))
        return delay_ms

    def has_slot(self, listener: int) -> bool:
        """Return whether listener and broker have room for one more connection."""
        limits = self.limits
        if self._quotas.by_listener[listener] >= limits.listener(listener).total:
            return False
        return listener == limits.protected or self._quotas.total < limits.total

    def rejection_ms(self, listener: int, address: str, now_ms: int) -> int:
        """Return the delay in ms before the connection is closed; 0 to accept it. Call once per connection."""
        limits = self.limits
        delay_ms = 0
        counted = []
        address_limit = limits.rate_of(address)
        if address_limit != UNLIMITED:
            counted.append(self._rate_of(address, now_ms))
            delay_ms = _recorded(counted[0], address_limit, now_ms)
        if not delay_ms and limits.refusal_rate != UNLIMITED and listener != limits.protected:
            counted.append(self._rejections)
            delay_ms = _recorded(self._rejections, limits.refusal_rate, now_ms)
        if delay_ms:
            counted.append(self._listeners[listener])
            if listener != limits.protected:
                counted.append(self._broker)
            for rate in counted:
                rate.record(-1, now_ms)
        return delay_ms

    def is_full(self, address: str) -> bool:
        """Return whether an address has reached its maximum of connections."""
        return self._quotas.by_address[address] >= self.limits.of(address)

    def most_of_a_processor(self, listener: int) -> int:
        """Return the most connections that a processor may have before a new one of this listener waits."""
        limits = self.limits
        return limits.descriptors.protected if listener == limits.protected else limits.descriptors.ordinary

    def excess(self) -> int:
        """Return the number of excess connections, among those that may be closed for it (`A17`)."""
        limits = self.limits
        others = self._quotas.total - (self._quotas.by_listener[limits.protected] if limits.protected >= 0 else 0)
        return max(0, min(others, self._quotas.total - limits.total))

    def _rate_of(self, address: str, now_ms: int) -> ConnectionRate:
        known = self._addresses
        rate = known.pop(address, (None, 0))[0] or ConnectionRate(self._windows)
        known[address] = rate, now_ms
        oldest = next(iter(known.values()))
        if len(known) > MOST_ADDRESSES or now_ms - oldest[1] >= ADDRESS_EXPIRATION_MS:
            known.popitem(last=False)
        return rate


def _recorded(rate: ConnectionRate, limit: int, now_ms: int) -> int:
    rate.record(1, now_ms)
    return 0 if limit == UNLIMITED else rate.delay_ms(limit, now_ms)
