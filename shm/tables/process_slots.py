"""One slot per process in shared memory: its pid, generation, restarts, and its last error.

The supervisor writes one part of a slot, the child the other (layout.PROCESS_SLOT); any process may read. A dead
process's slot retains its last error. Knows nothing of how processes are started.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rotunda.shm.layout import PROCESS_SLOT
from rotunda.shm.words import words_of

SUPERVISOR, ACCEPTOR, PROCESSOR, HANDLER, CONTROLLER, CLEANER, RECORDER, WEB = range(8)
ROLES = ("supervisor", "acceptor", "processor", "handler", "controller", "cleaner", "recorder", "web")

EMPTY, STARTING, RUNNING, DEAD, STOPPED = range(5)
STATES = ("empty", "starting", "running", "dead", "stopped")

#: Longest interval between heartbeats of a process's loop.
BEAT_S = 1.0
#: Shortest interval between heartbeats of a busy loop.
BUSY_BEAT_NS = 100_000_000
#: A process without a heartbeat for this long hangs.
SILENT_NS = 2_000_000_000

_PID = PROCESS_SLOT.word("pid")
_GENERATION = PROCESS_SLOT.word("generation")
_RESTARTS = PROCESS_SLOT.word("restarts")
_STATE = PROCESS_SLOT.word("state")
_EXIT_STATUS = PROCESS_SLOT.word("exit_status")
_READY_GENERATION = PROCESS_SLOT.word("ready_generation")
_HEARTBEAT = PROCESS_SLOT.word("heartbeat_ns")
_STORAGE_ERROR = PROCESS_SLOT.word("storage_error")
_METADATA_VERSION = PROCESS_SLOT.word("metadata_version")
_ARENA_BYTES = PROCESS_SLOT.word("arena_bytes")
_CONFIRMED = PROCESS_SLOT.word("confirmed")
_LAST_ERROR_BYTES = PROCESS_SLOT.word("last_error_bytes")
_LAST_ERROR = PROCESS_SLOT.offset("last_error")
_LAST_ERROR_ROOM = 256


@dataclass(frozen=True, slots=True)
class ProcessStatus:
    """A reading of one slot. `ready`: the running generation serves; `heartbeat_ns` is monotonic."""

    role: str
    index: int
    pid: int
    generation: int
    restarts: int
    state: str
    exit_status: int
    ready: bool
    heartbeat_ns: int
    last_error: str
    storage_error: int


class ProcessSlots:
    """The slots at `base` of `view`, in the order of the roles.

    Roles are the constants of this module. The index is ignored for a role with one process.
    """

    def __init__(self, view: memoryview, base: int, processors: int, handlers: int) -> None:
        self._view = view[base : base + self.bytes_needed(processors, handlers)]
        self._words = words_of(view, base, self._view.nbytes)
        others = 2 + processors + handlers
        self._first = (0, 1, 2, 2 + processors, others, others + 1, others + 2, others + 3)
        self._counts = (1, 1, processors, handlers, 1, 1, 1, 1)

    @staticmethod
    def bytes_needed(processors: int, handlers: int) -> int:
        """Return the bytes of shared memory for all slots."""
        return (6 + processors + handlers) * PROCESS_SLOT.size

    def initialise(self) -> None:
        """Write every slot's role and index; the supervisor does it once."""
        for role, count in enumerate(self._counts):
            for index in range(count):
                start = (self._first[role] + index) * PROCESS_SLOT.size
                PROCESS_SLOT.struct.pack_into(self._view, start, role, index, *([0] * 12), b"")

    def set_generation(self, role: int, index: int, generation: int) -> None:
        """Supervisor: the generation about to be forked; peers see it before the process runs."""
        self._store(role, index, _GENERATION, generation)

    def set_pid(self, role: int, index: int, pid: int) -> None:
        """Supervisor: the slot's new process."""
        self._store(role, index, _PID, pid)

    def set_state(self, role: int, index: int, state: int) -> None:
        """Supervisor: EMPTY, STARTING, RUNNING, DEAD or STOPPED."""
        self._store(role, index, _STATE, state)

    def set_restarts(self, role: int, index: int, restarts: int) -> None:
        """Supervisor: the number of the process's replacements."""
        self._store(role, index, _RESTARTS, restarts)

    def set_exit_status(self, role: int, index: int, exit_status: int) -> None:
        """Supervisor: exit code of the process that ended, or minus the signal that ended it."""
        self._store(role, index, _EXIT_STATUS, exit_status)

    def set_arena_bytes(self, role: int, index: int, size: int) -> None:
        """Supervisor: the size of a processor's part of the arena, from the start of its share."""
        self._store(role, index, _ARENA_BYTES, size)

    def arena_bytes(self, role: int, index: int) -> int:
        """Return the size of a processor's part of the arena."""
        return self._load(role, index, _ARENA_BYTES)

    def confirm(self, role: int, index: int, number: int) -> None:
        """Child: it uses this number of processors (the acceptor), or this hold (a processor), from here on."""
        self._store(role, index, _CONFIRMED, number)

    def confirmed(self, role: int, index: int) -> int:
        """Return the last confirmation of the process, or of its predecessor."""
        return self._load(role, index, _CONFIRMED)

    def processor_has_ended(self, processor: int) -> bool:
        """Return whether a processor has ended for good."""
        return self.state(PROCESSOR, processor) == STOPPED

    def mark_ready(self, role: int, index: int, generation: int) -> None:
        """Child: this generation can handle requests. It has beaten before, so that it does not count as silent."""
        self._store(role, index, _READY_GENERATION, generation)

    def beat(self, role: int, index: int, now_ns: int) -> None:
        """Child: the loop ran at this monotonic time."""
        self._store(role, index, _HEARTBEAT, now_ns)

    def set_storage_error(self, role: int, index: int, error: int) -> None:
        """Child: the error number with which its writes to the data directory fail for lack of space, or 0."""
        self._store(role, index, _STORAGE_ERROR, error)

    def set_metadata_version(self, role: int, index: int, version: int) -> None:
        """Child: every change of the metadata up to this version is applied; 0 before the first."""
        self._store(role, index, _METADATA_VERSION, version)

    def set_last_error(self, role: int, index: int, text: str) -> None:
        """Child: the reason of its death; cut to 256 bytes of UTF-8."""
        encoded = text.encode()[:_LAST_ERROR_ROOM].decode(errors="ignore").encode()
        self._store(role, index, _LAST_ERROR_BYTES, 0)
        start = self._slot(role, index) * PROCESS_SLOT.size + _LAST_ERROR
        self._view[start : start + len(encoded)] = encoded
        # SYNC: the text before its length; pairs with the load in last_error.
        self._store(role, index, _LAST_ERROR_BYTES, len(encoded))

    def metadata_version(self, role: int, index: int) -> int:
        """Return the version up to which the process, or its predecessor, has applied changes of the metadata."""
        return self._load(role, index, _METADATA_VERSION)

    def pid(self, role: int, index: int) -> int:
        """Return the process id; 0 before the first start."""
        return self._load(role, index, _PID)

    def generation(self, role: int, index: int) -> int:
        """Return the generation last forked or about to be; 0 before the first."""
        return self._load(role, index, _GENERATION)

    def ready_generation(self, role: int, index: int) -> int:
        """Return the generation that last became ready; 0 when none did."""
        return self._load(role, index, _READY_GENERATION)

    def ready_words(self, places: Sequence[tuple[int, int]]) -> list[int]:
        """Return the indexes of these (role, index) for `ready_generations`."""
        return [self._slot(*place) * (PROCESS_SLOT.size // 8) + _READY_GENERATION for place in places]

    def ready_generations(self, at: list[int]) -> list[int]:
        """Return the generations that last became ready. HOT: processors call it once per pass."""
        words = self._words
        return [words[each] for each in at]

    def state(self, role: int, index: int) -> int:
        """Return EMPTY, STARTING, RUNNING, DEAD or STOPPED."""
        return self._load(role, index, _STATE)

    def restarts(self, role: int, index: int) -> int:
        """Return the number of the process's replacements."""
        return self._load(role, index, _RESTARTS)

    def heartbeat_ns(self, role: int, index: int) -> int:
        """Return the monotonic time of the process's last heartbeat; 0 before the first."""
        return self._load(role, index, _HEARTBEAT)

    def is_silent(self, role: int, index: int, now_ns: int) -> bool:
        """Return whether the loop of a process that was ready once has not run for SILENT_NS."""
        heartbeat_ns = self.heartbeat_ns(role, index)
        return heartbeat_ns > 0 and now_ns - heartbeat_ns >= SILENT_NS

    def last_error(self, role: int, index: int) -> str:
        """Return the last error of the slot's last dying process, or the empty string."""
        # SYNC: the length before the text; pairs with the stores in set_last_error.
        length = min(self._load(role, index, _LAST_ERROR_BYTES), _LAST_ERROR_ROOM)
        start = self._slot(role, index) * PROCESS_SLOT.size + _LAST_ERROR
        return bytes(self._view[start : start + length]).decode(errors="replace")

    def storage_error(self, role: int, index: int) -> int:
        """Return the error number with which the process's writes fail for lack of space, or 0."""
        return self._load(role, index, _STORAGE_ERROR)

    def statuses(self) -> list[ProcessStatus]:
        """Return a reading of every slot, in slot order."""
        return [self._status(role, index) for role, count in enumerate(self._counts) for index in range(count)]

    def _status(self, role: int, index: int) -> ProcessStatus:
        generation = self.generation(role, index)
        return ProcessStatus(
            role=ROLES[role],
            index=index,
            pid=self.pid(role, index),
            generation=generation,
            restarts=self.restarts(role, index),
            state=STATES[self.state(role, index)],
            exit_status=self._load(role, index, _EXIT_STATUS),
            ready=generation > 0 and self.ready_generation(role, index) == generation,
            heartbeat_ns=self.heartbeat_ns(role, index),
            last_error=self.last_error(role, index),
            storage_error=self.storage_error(role, index),
        )

    def _slot(self, role: int, index: int) -> int:
        count = self._counts[role]
        if count == 1 and role not in (PROCESSOR, HANDLER):
            return self._first[role]
        if not 0 <= index < count:
            raise IndexError(f"{ROLES[role]} {index}: there are {count}")
        return self._first[role] + index

    def _store(self, role: int, index: int, word: int, value: int) -> None:
        self._words[self._slot(role, index) * (PROCESS_SLOT.size // 8) + word] = value

    def _load(self, role: int, index: int, word: int) -> int:
        value: int = self._words[self._slot(role, index) * (PROCESS_SLOT.size // 8) + word]
        return value
