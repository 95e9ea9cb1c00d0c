"""The control segment: broker words, process slots, what targets do, the partition table, and where each lies.

The supervisor makes it, every process uses it, a watching program attaches it.
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

#: The states of a process that is not in use.
_GONE = frozenset({STATES[EMPTY], STATES[STOPPED]})


class BrokerWords:
    """What concerns every process (layout.BROKER_WORDS)."""

    __slots__ = ("_words",)

    def __init__(self, view: memoryview, base: int) -> None:
        self._words = words_of(view, base, BROKER_WORDS.size)

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

    @property
    def wanted_processors(self) -> int:
        """How many processors there are to be, as it is set now; 0 before anybody has looked."""
        wanted: int = self._words[_WANTED_PROCESSORS]
        return wanted

    def set_wanted_processors(self, wanted: int) -> None:
        """Ask for so many processors. Controller only."""
        self._words[_WANTED_PROCESSORS] = wanted

    @property
    def processors_made(self) -> int:
        """For how many processors memory is ready: no other's may be touched. HOT: one load."""
        made: int = self._words[_PROCESSORS_MADE]
        return made

    @property
    def processors(self) -> int:
        """How many processors get connections. HOT: one load."""
        processors: int = self._words[_PROCESSORS]
        return processors

    def set_processors_made(self, made: int) -> None:
        """Announce memory that is ready. Supervisor only."""
        # SYNC: behind the contents of what was made; pairs with the loads of `processors_made`.
        self._words[_PROCESSORS_MADE] = made

    def set_processors(self, processors: int) -> None:
        """Have this many processors get connections. Supervisor only."""
        self._words[_PROCESSORS] = processors

    @property
    def wanted_handlers(self) -> int:
        """How many handlers there are to be, as it is set now; 0 before anybody has looked."""
        wanted: int = self._words[_WANTED_HANDLERS]
        return wanted

    def set_wanted_handlers(self, wanted: int) -> None:
        """Ask for so many handlers. Controller only."""
        self._words[_WANTED_HANDLERS] = wanted

    @property
    def handlers_made(self) -> int:
        """For how many handlers memory is ready: no other's rings may be touched."""
        made: int = self._words[_HANDLERS_MADE]
        return made

    def set_handlers_made(self, made: int) -> None:
        """Announce rings that are ready. Supervisor only."""
        self._words[_HANDLERS_MADE] = made

    @property
    def handlers(self) -> int:
        """How many handlers own partitions. No handler sees it change; a processor does while it holds."""
        handlers: int = self._words[_HANDLERS]
        return handlers

    def set_handlers(self, handlers: int) -> None:
        """Have this many handlers own partitions. Supervisor only, while no target lives."""
        self._words[_HANDLERS] = handlers

    @property
    def hold(self) -> int:
        """Odd while processors are to send nothing to targets. HOT: one load."""
        hold: int = self._words[_HOLD]
        return hold

    def set_hold(self, hold: int) -> None:
        """Have processors hold requests back (odd) or send them (even). Supervisor only."""
        # SYNC: behind the number of handlers; pairs with the loads in `network.processor.hold`.
        self._words[_HOLD] = hold


class ControlSegment:
    """The parts over `view`; zeroed memory and `slots.initialise()` make them valid."""

    def __init__(self, view: memoryview, processors: int, handlers: int, max_partitions: int) -> None:
        """Take the most processors and handlers that there may be."""
        slots_base = BROKER_WORDS.size
        current_base = slots_base + ProcessSlots.bytes_needed(processors, handlers)
        partitions_base = current_base + CurrentRequest.bytes_needed(handlers + 1)
        self.broker_words = BrokerWords(view, 0)
        self.slots = ProcessSlots(view, slots_base, processors, handlers)
        #: By target: what it is doing.
        self.current = tuple(CurrentRequest(view, current_base, target) for target in range(handlers + 1))
        self.partitions = PartitionTable(view, partitions_base, max_partitions, handlers)

    def storage(self) -> StorageReading:
        """Return the state of the data directory's disk, as the controller and the handlers publish it."""
        errors = {index: self.slots.storage_error(HANDLER, index) for index in range(self.broker_words.handlers)}
        failing = {index: error for index, error in errors.items() if error}
        return StorageReading(
            StorageState(self.broker_words.storage_state), self.broker_words.storage_free_bytes, failing
        )

    def statuses(self) -> list[ProcessStatus]:
        """Return a reading of every slot, in slot order, but for processes that are not in use and not alive."""
        in_use = {ROLES[PROCESSOR]: self.broker_words.processors, ROLES[HANDLER]: self.broker_words.handlers}
        found = self.slots.statuses()
        return [each for each in found if each.index < in_use.get(each.role, 1) or each.state not in _GONE]

    @staticmethod
    def bytes_needed(processors: int, handlers: int, max_partitions: int) -> int:
        """Return the usable bytes the control segment needs."""
        return (
            BROKER_WORDS.size
            + ProcessSlots.bytes_needed(processors, handlers)
            + CurrentRequest.bytes_needed(handlers + 1)
            + PartitionTable.bytes_needed(max_partitions, handlers)
        )
