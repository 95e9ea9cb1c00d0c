"""The connection counts by listener, address and processor: the acceptor's ledger (`A33`).

Pure counting, in the acceptor. A connection is identified by its serial. It is counted once when it is handed to a
processor and uncounted once, by whichever report is first: its close, the end of its processor, or a loss in transit.
"""

from __future__ import annotations

from collections import Counter


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
        """Return the counted serials of a processor."""
        return set(self._open[processor])

    def count(self, processor: int) -> int:
        """Return the number of counted connections of a processor. HOT."""
        return len(self._open[processor])

    def closable(self, processor: int, protected: int) -> int:
        """Return the number of counted connections of a processor except those of the listener ``protected``."""
        return sum(listener != protected for listener, _ in self._open[processor].values())

    def inc(self, processor: int, serial: int, listener: int, address: str) -> bool:
        """Count a connection; return False, changing nothing, if it is counted already."""
        if serial in self._open[processor]:
            return False
        self._open[processor][serial] = (listener, address)
        self.by_listener[listener] += 1
        self.by_address[address] += 1
        return True

    def dec(self, processor: int, serial: int) -> int:
        """Uncount a connection; return its listener, or -1 if it was not counted (a late or duplicate report)."""
        entry = self._open[processor].pop(serial, None)
        if entry is None:
            return -1
        listener, address = entry
        self.by_listener[listener] -= 1
        self.by_address[address] -= 1
        if not self.by_address[address]:
            del self.by_address[address]
        return listener
