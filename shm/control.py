"""The control segment: broker words, process slots, current requests, the partition table, and their positions.

The supervisor creates it, every process uses it, a monitoring program attaches to it.
"""

from __future__ import annotations

from rotunda.shm.layout import BROKER_WORDS
from rotunda.shm.storage import StorageReading, StorageState
from rotunda.shm.tables.current_request import CurrentRequest
from rotunda.shm.tables.partitions import PartitionTable
from rotunda.shm.tables.process_slots import (
    EMPTY,
    HANDLER,
    PROCESSOR,
    ROLES,
    STATES,
    STOPPED,
    ProcessSlots,
    ProcessStatus,
)
from rotunda.shm.words import words_of

_METADATA_VERSION = BROKER_WORDS.word("metadata_version")
_DRAINING = BROKER_WORDS.word("draining")
_STORAGE_STATE = BROKER_WORDS.word("storage_state")
_STORAGE_FREE_BYTES = BROKER_WORDS.word("storage_free_bytes")
_WANTED_PROCESSORS = BROKER_WORDS.word("wanted_processors")
_PROCESSORS_MADE = BROKER_WORDS.word("processors_made")
_PROCESSORS = BROKER_WORDS.word("processors")
_WANTED_HANDLERS = BROKER_WORDS.word("wanted_handlers")
_HANDLERS_MADE = BROKER_WORDS.word("handlers_made")
_HANDLERS = BROKER_WORDS.word("handlers")
_HOLD = BROKER_WORDS.word("hold")

#: The states of an unused process.
_ENDED = frozenset({STATES[EMPTY], STATES[STOPPED]})


class BrokerWords:
    """State of the whole broker (layout.BROKER_WORDS)."""

    __slots__ = ("_words",)

    def __init__(self, view: memoryview, base: int) -> None:
        self._words = words_of(view, base, BROKER_WORDS.size)

    @property
    def metadata_version(self) -> int:
        """Last committed change of the metadata. HOT: one load."""
        version: int = self._words[_METADATA_VERSION]
        return version

    def set_metadata_version(self, version: int) -> None:
        """Publish a durable change. Controller only."""
        self._words[_METADATA_VERSION] = version

    @property
    def draining(self) -> bool:
        """Whether the broker is shutting down."""
        return bool(self._words[_DRAINING])

    def set_draining(self, draining: bool) -> None:
        """Signal every process to finish. Supervisor only."""
        self._words[_DRAINING] = 1 if draining else 0

    @property
    def storage_state(self) -> int:
        """State of the data directory's disk, a `shm.storage.StorageState`. HOT: one load."""
        state: int = self._words[_STORAGE_STATE]
        return state

    @property
    def storage_free_bytes(self) -> int:
        """Free bytes on the data directory's disk, as of the last check."""
        free_bytes: int = self._words[_STORAGE_FREE_BYTES]
        return free_bytes

    def set_storage(self, state: int, free_bytes: int) -> None:
        """Publish the result of a disk check. Controller only."""
        self._words[_STORAGE_FREE_BYTES] = free_bytes
        self._words[_STORAGE_STATE] = state

    @property
    def wanted_processors(self) -> int:
        """The configured number of processors; 0 before the first check."""
        wanted: int = self._words[_WANTED_PROCESSORS]
        return wanted

    def set_wanted_processors(self, wanted: int) -> None:
        """Request this number of processors. Controller only."""
        self._words[_WANTED_PROCESSORS] = wanted

    @property
    def processors_made(self) -> int:
        """The number of processors with allocated memory: that of others must not be touched. HOT: one load."""
        made: int = self._words[_PROCESSORS_MADE]
        return made

    @property
    def processors(self) -> int:
        """The number of processors that get connections. HOT: one load."""
        processors: int = self._words[_PROCESSORS]
        return processors

    def set_processors_made(self, made: int) -> None:
        """Publish allocated memory. Supervisor only."""
        # SYNC: after the contents of the new memory; pairs with the loads of `processors_made`.
        self._words[_PROCESSORS_MADE] = made

    def set_processors(self, processors: int) -> None:
        """Set the number of processors that get connections. Supervisor only."""
        self._words[_PROCESSORS] = processors

    @property
    def wanted_handlers(self) -> int:
        """The configured number of handlers; 0 before the first check."""
        wanted: int = self._words[_WANTED_HANDLERS]
        return wanted

    def set_wanted_handlers(self, wanted: int) -> None:
        """Request this number of handlers. Controller only."""
        self._words[_WANTED_HANDLERS] = wanted

    @property
    def handlers_made(self) -> int:
        """The number of handlers with allocated memory: rings of others must not be touched."""
        made: int = self._words[_HANDLERS_MADE]
        return made

    def set_handlers_made(self, made: int) -> None:
        """Publish allocated rings. Supervisor only."""
        self._words[_HANDLERS_MADE] = made

    @property
    def handlers(self) -> int:
        """The number of handlers that own partitions. No handler sees it change; a processor does during a hold."""
        handlers: int = self._words[_HANDLERS]
        return handlers

    def set_handlers(self, handlers: int) -> None:
        """Set the number of handlers that own partitions. Supervisor only, while no target lives."""
        self._words[_HANDLERS] = handlers

    @property
    def hold(self) -> int:
        """Odd while processors must not send to targets. HOT: one load."""
        hold: int = self._words[_HOLD]
        return hold

    def set_hold(self, hold: int) -> None:
        """Make processors hold requests (odd) or send them (even). Supervisor only."""
        # SYNC: after the number of handlers; pairs with the loads in `network.processor.hold`.
        self._words[_HOLD] = hold


class ControlSegment:
    """The parts over `view`; zeroed memory and `slots.initialise()` make them valid."""

    def __init__(self, view: memoryview, processors: int, handlers: int, max_partitions: int) -> None:
        """Map the segment for the maximum numbers of processors and handlers."""
        slots_base = BROKER_WORDS.size
        current_base = slots_base + ProcessSlots.bytes_needed(processors, handlers)
        partitions_base = current_base + CurrentRequest.bytes_needed(handlers + 1)
        self.broker_words = BrokerWords(view, 0)
        self.slots = ProcessSlots(view, slots_base, processors, handlers)
        #: Current requests by target.
        self.current = tuple(CurrentRequest(view, current_base, target) for target in range(handlers + 1))
        self.partitions = PartitionTable(view, partitions_base, max_partitions, handlers)

    def storage(self) -> StorageReading:
        """Return the state of the data directory's disk, as published by the controller and the handlers."""
        errors = {index: self.slots.storage_error(HANDLER, index) for index in range(self.broker_words.handlers)}
        failing = {index: error for index, error in errors.items() if error}
        return StorageReading(
            StorageState(self.broker_words.storage_state), self.broker_words.storage_free_bytes, failing
        )

    def statuses(self) -> list[ProcessStatus]:
        """Return a reading of every slot, in slot order, except for unused processes that are not alive."""
        in_use = {ROLES[PROCESSOR]: self.broker_words.processors, ROLES[HANDLER]: self.broker_words.handlers}
        found = self.slots.statuses()
        return [each for each in found if each.index < in_use.get(each.role, 1) or each.state not in _ENDED]

    @staticmethod
    def bytes_needed(processors: int, handlers: int, max_partitions: int) -> int:
        """Return the usable bytes the control segment needs."""
        return (
            BROKER_WORDS.size
            + ProcessSlots.bytes_needed(processors, handlers)
            + CurrentRequest.bytes_needed(handlers + 1)
            + PartitionTable.bytes_needed(max_partitions, handlers)
        )
