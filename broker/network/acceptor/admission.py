"""Who may connect, and when: the layers of limits in Kafka's order (`A07`).

Runs in the acceptor. Pure decisions over its ledger, its rates and the limits in force; the acceptor carries them out:

1. the rate of the listener and of the broker: the connection waits (`arrived`, `A10`);
2. a slot of the listener and of the broker: it waits (`has_slot`, `A08`);
3. the rate of its address, then the rate beyond which the broker refuses: it is closed after a delay, and was never
   there for any of the rates (`refusal_ms`, `A12`, `A13`);
4. the number of its address: it is closed at once (`is_full`, `A14`).
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

from rotunda.broker.network.acceptor.connection_limits import ConnectionLimits
from rotunda.broker.network.acceptor.connection_rate import UNLIMITED, ConnectionRate

if TYPE_CHECKING:
    from rotunda.broker.network.acceptor.connection_quotas import ConnectionQuotas

#: Addresses whose rates are known at a time; beyond it the one that has been silent longest is forgotten.
MOST_ADDRESSES = 10_000
#: An address that makes no connection for so long is forgotten.
ADDRESS_EXPIRATION_MS = 3_600_000


class Admission:
    """Decides by the limits in force."""

    def __init__(self, quotas: ConnectionQuotas, limits: ConnectionLimits) -> None:
        self.limits = limits
        self._quotas = quotas
        self._windows = windows = limits.windows
        self._broker, self._refusals = ConnectionRate(windows), ConnectionRate(windows)
        self._listeners = [ConnectionRate(windows) for _ in quotas.by_listener]
        #: By address, silent longest first: its rate, and when it was used last.
        self._addresses: OrderedDict[str, tuple[ConnectionRate, int]] = OrderedDict()

    def arrived(self, listener: int, now_ms: int) -> int:
        """Count a new connection; return for how many ms it has to wait."""
        limits = self.limits
        delay_ms = _recorded(self._listeners[listener], limits.listener(listener).rate, now_ms)
        if listener != limits.protected:
            delay_ms = max(delay_ms, _recorded(self._broker, limits.rate, now_ms))
        return delay_ms

    def has_slot(self, listener: int) -> bool:
        """Return whether listener and broker may have one more connection."""
        limits = self.limits
        if self._quotas.by_listener[listener] >= limits.listener(listener).total:
            return False
        return listener == limits.protected or self._quotas.total < limits.total

    def refusal_ms(self, listener: int, address: str, now_ms: int) -> int:
        """Return after how many ms a connection is to be closed; 0 if it is not. Once for each connection."""
        limits = self.limits
        delay_ms = 0
        counted = []
        address_limit = limits.rate_of(address)
        if address_limit != UNLIMITED:
            counted.append(self._rate_of(address, now_ms))
            delay_ms = _recorded(counted[0], address_limit, now_ms)
        if not delay_ms and limits.refusal_rate != UNLIMITED and listener != limits.protected:
            counted.append(self._refusals)
            delay_ms = _recorded(self._refusals, limits.refusal_rate, now_ms)
        if delay_ms:
            counted.append(self._listeners[listener])
            if listener != limits.protected:
                counted.append(self._broker)
            for rate in counted:
                rate.record(-1, now_ms)
        return delay_ms

    def is_full(self, address: str) -> bool:
        """Return whether an address has as many connections as it may have."""
        return self._quotas.by_address[address] >= self.limits.of(address)

    def most_of_a_processor(self, listener: int) -> int:
        """Return how many connections a processor may have before one of this listener waits for another to end."""
        limits = self.limits
        return limits.descriptors.protected if listener == limits.protected else limits.descriptors.ordinary

    def excess(self) -> int:
        """Return how many connections there are too many, of those that may be closed for it (`A17`)."""
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
