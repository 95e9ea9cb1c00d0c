"""The counts of connections by listener, address and processor: the acceptor's ledger (`A33`).

Pure counting. A connection is known by the serial that the acceptor gave it. It is counted once when it is handed to a
processor and uncounted once, whichever process reports it and however often: by its close, with all of a dead
processor's, or because it was lost on the way.
"""

from __future__ import annotations

import socket
from collections import Counter
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from broker.config.broker_config import BrokerConfig

#: Kafka's default of both limits: none.
UNLIMITED: Final = 2**31 - 1
_NONE: Final[Mapping[str, int]] = MappingProxyType({})


class ConnectionLimits(NamedTuple):
    """`max.connections`, `max.connections.per.ip` and its overrides, by address."""

    total: int = UNLIMITED
    per_address: int = UNLIMITED
    overrides: Mapping[str, int] = _NONE

    def of(self, address: str) -> int:
        """Return how many connections an address may have."""
        return self.overrides.get(address, self.per_address)


def limits_of(config: BrokerConfig) -> ConnectionLimits:
    """Return the limits that the settings make. Waits for name servers if names of hosts are among them."""
    return ConnectionLimits(
        config.max_connections, config.max_connections_per_ip, overrides_of(config.max_connections_per_ip_overrides)
    )


def overrides_of(text: str) -> dict[str, int]:
    """Return limits by address from ``host:number,host:number``. A host that nobody knows now is left out."""
    found = {}
    for entry in filter(None, (each.strip() for each in text.split(","))):
        # An IPv6 address has colons of its own.
        host, _, number = entry.rpartition(":")
        for address in _addresses_of(host.removeprefix("[").removesuffix("]")):
            found[address] = int(number)
    return found


def _addresses_of(host: str) -> set[str]:
    try:
        return {str(info[4][0]) for info in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)}
    except OSError:
        return set()


class ConnectionQuotas:
    """Counts never fall below zero: only a counted serial can be uncounted (`A19`)."""

    def __init__(self, listeners: int, processors: int) -> None:
        self.by_listener = [0] * listeners
        self.by_address: Counter[str] = Counter()
        self._open: list[dict[int, tuple[int, str]]] = [{} for _ in range(processors)]

    @property
    def total(self) -> int:
        """Connections open in all processors."""
        return sum(self.by_listener)

    def serials(self, processor: int) -> set[int]:
        """Return the serials that are counted for a processor."""
        return set(self._open[processor])

    def inc(self, processor: int, serial: int, listener: int, address: str) -> bool:
        """Count a connection; return False, changing nothing, if it is counted already."""
        if serial in self._open[processor]:
            return False
        self._open[processor][serial] = (listener, address)
        self.by_listener[listener] += 1
        self.by_address[address] += 1
        return True

    def dec(self, processor: int, serial: int) -> int:
        """Uncount a connection; return its listener, or -1 if it was not counted: a late or second report."""
        entry = self._open[processor].pop(serial, None)
        if entry is None:
            return -1
        listener, address = entry
        self.by_listener[listener] -= 1
        self.by_address[address] -= 1
        if not self.by_address[address]:
            del self.by_address[address]
        return listener
