"""The number of handlers while the broker runs: all partitions and groups go to their new owners at once (`E04`).

Runs in the supervisor, whose loop calls `turn`; the controller publishes the number that is wanted. Who owns what
follows from the number, so nothing is answered for a moment, and nobody is closed:

1. *Hold*: processors send nothing more to targets and confirm that; targets go on until no request is left in a ring:
   every Produce has its answer, and whatever waits for longer is known to its processor. A process that dies is
   replaced, with the old number. If that takes too long, requests go on as before, and it is tried again later.
2. *Stop*: handlers, controller and cleaner end; logs are closed, with a snapshot of their producers and without waiting
   for the disk. One that is killed instead leaves what any dead handler leaves: who opens its partitions cuts them back
   to what was published.
3. *Start*: the number changes and the rings between peers are emptied, since nobody lives who has an end of them. Then
   all of them start, and one that dies is replaced, with the new number.
4. *Go on*: processors take what answers there are, and send what has none to who owns it now.

A processor that is killed meanwhile takes its connections with it, as always; its replacement begins with the hold. The
steps live in this process alone; if it dies, so does the broker.
"""

from __future__ import annotations

import enum
import logging
from typing import TYPE_CHECKING, Final

from rotunda.broker.runtime.child_process import Role
from rotunda.shm.segment import SharedMemoryTooSmall
from rotunda.shm.tables import process_slots

if TYPE_CHECKING:
    from collections.abc import Callable

    from rotunda.broker.clock import Clock
    from rotunda.broker.ipc.process_context import ProcessContext
    from rotunda.broker.supervisor.child import Child
    from rotunda.broker.supervisor.process_memory import ProcessMemory

_log = logging.getLogger(__name__)

#: Who asks each other: none of them may live when the number changes.
_PEERS: Final = frozenset({Role.HANDLER, Role.CONTROLLER, Role.CLEANER})

#: Requests are held back for so long at most until all of them are answered; then they go on until it is tried again.
_HOLD_NS: Final = 5_000_000_000
_RETRY_NS: Final = 20_000_000_000

#: While it moves, the supervisor looks this often.
LOOK_MS: Final = 2.0


class _Step(enum.Enum):
    NONE, HOLD, STOP, START = range(4)


class HandlerCount:
    """Brings the handlers among ``children`` to the number that is wanted, a step in each turn."""

    def __init__(
        self,
        context: ProcessContext,
        children: list[Child],
        memory: ProcessMemory,
        start: Callable[[Child], None],
        add: Callable[[Role, int], Child],
        clock: Clock,
    ) -> None:
        """``add`` puts a handler of that index among the children, which ``start`` starts."""
        self._context = context
        self._children = children
        self._memory = memory
        self._start = start
        self._add = add
        self._clock = clock
        self._step = _Step.NONE
        self._until_ns = self._retry_ns = 0
        self._given_up = 0

    @property
    def is_moving(self) -> bool:
        """Whether a change is under way."""
        return self._step is not _Step.NONE

    def turn(self) -> None:
        """Take the next step, if there is one to take. Processors neither join nor leave meanwhile."""
        if self._step is _Step.NONE:
            self._begin()
        elif self._step is _Step.HOLD:
            self._hold()
        elif self._step is _Step.STOP:
            self._change()
        elif all(child.is_alive and child.ready for child in self._peers()):
            self._let_go()
            _log.info("partitions and groups have moved: %d handlers", self._context.handlers)

    def is_leaving(self, child: Child) -> bool:
        """Return whether a process that has ended is not to be replaced: it is started when all have ended."""
        return self._step is _Step.STOP and child.role in _PEERS

    def is_joining(self, child: Child) -> bool:
        """Return whether a process is of those that start with another number."""
        return self._step is _Step.START and child.role in _PEERS

    def _begin(self) -> None:
        broker_words = self._context.broker_words
        wanted = broker_words.wanted_handlers or broker_words.handlers
        if wanted == broker_words.handlers or wanted == self._given_up or self._clock.monotonic_ns() < self._retry_ns:
            return
        if not all(child.is_alive and child.ready for child in self._peers()):
            return
        try:
            self._memory.make_handlers(self._context, wanted)
        except SharedMemoryTooSmall as error:
            self._given_up = wanted
            _log.error("num.io.threads stays %d, not %d: %s", broker_words.handlers, wanted, error)
            return
        _log.info("num.io.threads is %d: partitions and groups of %d handlers move", wanted, broker_words.handlers)
        self._given_up = 0
        self._step = _Step.HOLD
        self._until_ns = self._clock.monotonic_ns() + _HOLD_NS
        self._set_hold()

    def _hold(self) -> None:
        broker_words, slots = self._context.broker_words, self._context.slots
        processors = [child for child in self._children if child.role is Role.PROCESSOR and not child.has_left]
        started = [child for child in processors if child.generation]
        is_held = all(
            child.is_alive and child.ready and slots.confirmed(Role.PROCESSOR, child.index) == broker_words.hold
            for child in started
        )
        if is_held and all(child.ready for child in self._peers()) and self._context.channel.requests_are_released():
            self._step = _Step.STOP
            for child in self._peers():
                child.ask_to_stop()
        elif self._clock.monotonic_ns() >= self._until_ns:
            self._retry_ns = self._clock.monotonic_ns() + _RETRY_NS
            self._let_go()
            _log.warning("requests were not answered within %d s: the handlers move later", _HOLD_NS // 1_000_000_000)

    def _change(self) -> None:
        if any(child.is_alive for child in self._children if child.role in _PEERS):
            return
        context = self._context
        handlers = context.broker_words.wanted_handlers
        if handlers > context.broker_words.handlers_made:
            # Another number has been set meanwhile: that one is next.
            handlers = context.broker_words.handlers_made
        context.channel.initialise_peers()
        for child in self._children:
            if child.role is Role.HANDLER and child.index >= handlers:
                child.has_left = True
                context.slots.set_state(Role.HANDLER, child.index, process_slots.STOPPED)
        context.broker_words.set_handlers(handlers)
        known = {child.index for child in self._children if child.role is Role.HANDLER}
        for index in range(handlers):
            if index not in known:
                self._add(Role.HANDLER, index)
        self._step = _Step.START
        for child in self._peers():
            child.restart_due_ns = 0
            self._start(child)

    def _let_go(self) -> None:
        self._step = _Step.NONE
        self._set_hold()

    def _set_hold(self) -> None:
        self._context.broker_words.set_hold(self._context.broker_words.hold + 1)
        self._context.ring_everyone()

    def _peers(self) -> list[Child]:
        """Return the handlers in use, the controller and the cleaner."""
        handlers = self._context.handlers
        found = [child for child in self._children if child.role in _PEERS]
        return [child for child in found if child.role is not Role.HANDLER or child.index < handlers]
