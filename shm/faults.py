"""The words by which tests inject faults: the version of the active faults, and each target's counts.

Targets and processors read and count, the process of the tests sets. Each word has one writer (`shm.fault_layout`).
"""

from __future__ import annotations

from rotunda.shm.fault_layout import FAULT_COUNT, FAULT_TABLE, MOST_FAULTS
from rotunda.shm.record import WORD_BYTES
from rotunda.shm.words import words_of

_VERSION, _DELAYS_OVER = FAULT_TABLE.word("version"), FAULT_TABLE.word("delays_over_ns")
_COUNTS = FAULT_TABLE.size // WORD_BYTES


class FaultWords:
    """The words in a segment, for this number of targets."""

    def __init__(self, view: memoryview, targets: int) -> None:
        self._words = words_of(view, 0, self.bytes_needed(targets))
        self._targets = targets

    @staticmethod
    def bytes_needed(targets: int) -> int:
        """Return the size of the segment."""
        return FAULT_TABLE.size + targets * MOST_FAULTS * FAULT_COUNT.size

    @property
    def version(self) -> int:
        """The version of the active faults; 0: none yet. HOT."""
        version: int = self._words[_VERSION]
        return version

    def set_version(self, version: int) -> None:
        """Activate a version that is in the file. Only the tests."""
        self._words[_VERSION] = version

    @property
    def delays_over_ns(self) -> int:
        """Responses delayed before this monotonic time are sent."""
        over_ns: int = self._words[_DELAYS_OVER]
        return over_ns

    def end_delays(self, now_ns: int) -> None:
        """Release the responses delayed so far. Only the tests."""
        self._words[_DELAYS_OVER] = now_ns

    def count(self, place: int) -> int:
        """Return how often the faults with this index have struck, in all targets."""
        first = _COUNTS + place
        return sum(self._words[first : first + self._targets * MOST_FAULTS : MOST_FAULTS])

    def add(self, target: int, place: int) -> None:
        """Count a strike of a fault. Only that target."""
        self._words[_COUNTS + target * MOST_FAULTS + place] += 1
