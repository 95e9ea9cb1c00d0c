"""The control segment: cluster words, process slots, the partition table, and where each of them lies.

The supervisor makes it, every process uses it, a watching program attaches it.
"""

from __future__ import annotations

from shm.layout import CLUSTER_WORDS
from shm.partitions import PartitionTable
from shm.process_slots import ProcessSlots
from shm.words import words_of

_METADATA_VERSION = CLUSTER_WORDS.word("metadata_version")
_DRAINING = CLUSTER_WORDS.word("draining")


class ClusterWords:
    """What concerns every process (layout.CLUSTER_WORDS)."""

    __slots__ = ("_words",)

    def __init__(self, view: memoryview, base: int) -> None:
        self._words = words_of(view, base, CLUSTER_WORDS.size)

    @property
    def metadata_version(self) -> int:
        """Last committed change of the metadata. HOT: one load."""
        version: int = self._words[_METADATA_VERSION]
        return version

    def set_metadata_version(self, version: int) -> None:
        """Announce a change that is durable. Controller only."""
        self._words[_METADATA_VERSION] = version

    @property
    def draining(self) -> bool:
        """Whether the broker is shutting down."""
        return bool(self._words[_DRAINING])

    def set_draining(self, draining: bool) -> None:
        """Tell everyone to finish. Supervisor only."""
        self._words[_DRAINING] = 1 if draining else 0


class ControlSegment:
    """The three parts over `view`; zeroed memory and `slots.initialise()` make them valid."""

    def __init__(self, view: memoryview, processors: int, handlers: int, max_partitions: int) -> None:
        slots_base = CLUSTER_WORDS.size
        partitions_base = slots_base + ProcessSlots.bytes_needed(processors, handlers)
        self.cluster = ClusterWords(view, 0)
        self.slots = ProcessSlots(view, slots_base, processors, handlers)
        self.partitions = PartitionTable(view, partitions_base, max_partitions, handlers)

    @staticmethod
    def bytes_needed(processors: int, handlers: int, max_partitions: int) -> int:
        """Return the usable bytes the control segment needs."""
        return (
            CLUSTER_WORDS.size
            + ProcessSlots.bytes_needed(processors, handlers)
            + PartitionTable.bytes_needed(max_partitions, handlers)
        )
