"""Changes the number of handlers while the broker runs: all partitions and groups move at once (`E04`).

Runs in the supervisor's loop; the controller publishes the wanted number. Ownership follows from the
number, so no request is answered during the move. Connections stay open, except those with an unanswered request that
could not be copied (`kept_requests`):

1. *Hold*: processors stop sending to targets and confirm that; targets continue until no request is left in a ring:
   every Produce has its response, and every parked request is known to its processor. A process that dies is
   replaced, with the old number. If that takes too long, the hold ends, and the move is retried later.
2. *Stop*: handlers, controller and cleaner end; logs are closed, with a snapshot of their producers and without waiting
   for the disk. One that is killed instead leaves the state of any dead handler: the next owner truncates its
   partitions to the published end.
3. *Start*: the number changes and the rings between peers are emptied, since no process has an end of them. Then all of
   them start, and one that dies is replaced, with the new number.
4. *Continue*: processors read the remaining responses, and resend unanswered requests to their new owners.

A processor killed meanwhile loses its connections, as always; its replacement starts in the hold. The state of the move
exists in this process alone; if it dies, so does the broker.
"""

from __future__ import annotations

import enum
import logging
from typing import TYPE_CHECKING, Final

from rotunda.broker.runtime.child_process import Role
from rotunda.broker.text_table import counted
from rotunda.shm.segment import SharedMemoryTooSmall
from rotunda.shm.tables import process_slots

if TYPE_CHECKING:
    from collections.abc import Callable

    from rotunda.broker.clock import Clock
    from rotunda.broker.ipc.process_context import ProcessContext
    from rotunda.broker.supervisor.child import Child
    from rotunda.broker.supervisor.process_memory import ProcessMemory

_log = logging.getLogger(__name__)

#: The roles that exchange peer requests: all of them must have ended when the number changes.
_PEERS: Final = frozenset({Role.HANDLER, Role.CONTROLLER, Role.CLEANER})

#: The longest hold to wait for responses; after it requests continue until the next attempt.
_HOLD_NS: Final = 5_000_000_000
_RETRY_NS: Final = 20_000_000_000

#: The supervisor's poll interval during a move.
LOOK_MS: Final = 2.0


class _Step(enum.Enum):
    NONE, HOLD, STOP, START = range(4)


class HandlerCount:
    """Changes the handlers among ``children`` to the wanted number, one step per call."""

    def __init__(
        self,
        context: ProcessContext,
        children: list[Child],
        memory: ProcessMemory,
        start: Callable[[Child], None],
        add: Callable[[Role, int], Child],
        clock: Clock,
    ) -> None:
        """``add`` adds a handler of that index to the children; ``start`` starts it."""
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
        """Whether a move is in progress."""
        return self._step is not _Step.NONE

    def run_once(self) -> None:
        """Run the next step, if it is due. Processors neither join nor leave meanwhile."""
        if self._step is _Step.NONE:
            self._begin()
        elif self._step is _Step.HOLD:
            self._hold()
        elif self._step is _Step.STOP:
            self._change()
        elif all(child.is_alive and child.ready for child in self._peers()):
            self._finish()
            _log.info("partitions and groups have moved: %s", counted(self._context.handlers, "handler"))

    def is_leaving(self, child: Child) -> bool:
        """Return whether an ended process is not to be replaced now: all start again after all have ended."""
        return self._step is _Step.STOP and child.role in _PEERS

    def is_joining(self, child: Child) -> bool:
        """Return whether a process is starting with the new number."""
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
        _log.info("num.io.threads is %d, was %d: partitions and groups move", wanted, broker_words.handlers)
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
            self._finish()
            _log.warning("requests were not completed within %d s: the handlers move later", _HOLD_NS // 1_000_000_000)

    def _change(self) -> None:
        if any(child.is_alive for child in self._children if child.role in _PEERS):
            return
        context = self._context
        handlers = context.broker_words.wanted_handlers
        if handlers > context.broker_words.handlers_made:
            # The wanted number has changed meanwhile: that one is next.
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

    def _finish(self) -> None:
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
