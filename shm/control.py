"""The control segment: cluster words, process slots, what targets do, the partition table, and where each lies.

The supervisor makes it, every process uses it, a watching program attaches it.
"""

from __future__ import annotations

from shm.current_request import CurrentRequest
from shm.layout import CLUSTER_WORDS
from shm.partitions import PartitionTable
from shm.process_slots import HANDLER, ProcessSlots
from shm.storage import StorageReading, StorageState
from shm.words import words_of

_METADATA_VERSION = CLUSTER_WORDS.word("metadata_version")
_DRAINING = CLUSTER_WORDS.word("draining")
_STORAGE_STATE = CLUSTER_WORDS.word("storage_state")
_STORAGE_FREE_BYTES = CLUSTER_WORDS.word("storage_free_bytes")


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

    @property
    def storage_state(self) -> int:
        """State of the data directory's disk, a `shm.storage.StorageState`. HOT: one load."""
        state: int = self._words[_STORAGE_STATE]
        return state

    @property
    def storage_free_bytes(self) -> int:
        """What is free on the data directory's disk, as of the last look."""
        free_bytes: int = self._words[_STORAGE_FREE_BYTES]
        return free_bytes

    def set_storage(self, state: int, free_bytes: int) -> None:
        """Publish what a look at the disk found. Controller only."""
        self._words[_STORAGE_FREE_BYTES] = free_bytes
        self._words[_STORAGE_STATE] = state


class ControlSegment:
    """The parts over `view`; zeroed memory and `slots.initialise()` make them valid."""

    def __init__(self, view: memoryview, processors: int, handlers: int, max_partitions: int) -> None:
        slots_base = CLUSTER_WORDS.size
        current_base = slots_base + ProcessSlots.bytes_needed(processors, handlers)
        partitions_base = current_base + CurrentRequest.bytes_needed(handlers + 1)
        self.cluster = ClusterWords(view, 0)
        self.slots = ProcessSlots(view, slots_base, processors, handlers)
        self._handlers = handlers
        #: By target: what it is doing.
        self.current = tuple(CurrentRequest(view, current_base, target) for target in range(handlers + 1))
        self.partitions = PartitionTable(view, partitions_base, max_partitions, handlers)

    def storage(self) -> StorageReading:
        """Return the state of the data directory's disk, as the controller and the handlers publish it."""
        errors = {index: self.slots.storage_error(HANDLER, index) for index in range(self._handlers)}
        failing = {index: error for index, error in errors.items() if error}
        return StorageReading(StorageState(self.cluster.storage_state), self.cluster.storage_free_bytes, failing)

    @staticmethod
    def bytes_needed(processors: int, handlers: int, max_partitions: int) -> int:
        """Return the usable bytes the control segment needs."""
        return (
            CLUSTER_WORDS.size
            + ProcessSlots.bytes_needed(processors, handlers)
            + CurrentRequest.bytes_needed(handlers + 1)
            + PartitionTable.bytes_needed(max_partitions, handlers)
        )
