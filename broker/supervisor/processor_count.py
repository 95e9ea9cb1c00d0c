"""Changes the number of processors while the broker runs: starts one more, or stops the last ones (`A28`, `A29`).

Runs in the supervisor's loop; the controller publishes the wanted number. Steps run one after the
other, each only after the end of the previous one:

- One more: its memory is allocated and announced, it starts, and when it is ready the acceptor may send it
  connections. One that is killed while it boots is replaced; one that cannot boot leaves the number unchanged.
- Fewer: the number is lowered first. When the acceptor, or its replacement, has confirmed that, the last processors get
  the stop signal. Each stops reading requests, closes each connection after its responses, and ends. One that is killed
  meanwhile is not replaced: its connections end with it. Connections that the acceptor had sent and it had not received
  are closed here.

The state of the change exists in this process alone; if it dies, so does the broker.
"""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING, Final

from rotunda.broker.network.fd_passing import try_receive
from rotunda.broker.runtime.child_process import Role
from rotunda.broker.text_table import counted
from rotunda.shm.segment import SharedMemoryTooSmall
from rotunda.shm.tables import process_slots

if TYPE_CHECKING:
    from collections.abc import Callable

    from rotunda.broker.ipc.process_context import ProcessContext
    from rotunda.broker.supervisor.child import Child
    from rotunda.broker.supervisor.process_memory import ProcessMemory

_log = logging.getLogger(__name__)

#: Larger than any message of the hand-off.
_MESSAGE_BYTES: Final = 256


class ProcessorCount:
    """Changes the processors among ``children`` to the wanted number, one step per call."""

    def __init__(
        self,
        context: ProcessContext,
        children: list[Child],
        memory: ProcessMemory,
        start: Callable[[Child], None],
        add: Callable[[Role, int], Child],
    ) -> None:
        """``add`` adds a processor of that index to the children; ``start`` starts it."""
        self._context = context
        self._children = children
        self._add = add
        self._start = start
        self._memory = memory
        self._joining: Child | None = None
        self._asked: set[Child] = set()
        #: A number that could not be reached; it is retried after another number has been wanted.
        self._given_up = 0

    def run_once(self) -> None:
        """Run the next step, if it is due."""
        broker_words = self._context.broker_words
        wanted = broker_words.wanted_processors or broker_words.processors
        if wanted != self._given_up:
            self._given_up = 0
        if self._joining is not None:
            self._admit(self._joining)
        elif any(child.is_alive for child in self._beyond()):
            self._ask_to_leave()
        elif wanted > broker_words.processors and not self._given_up:
            self._grow(broker_words.processors, wanted)
        elif wanted < broker_words.processors:
            self._shrink(wanted)

    @property
    def is_settled(self) -> bool:
        """Whether no processor joins or leaves."""
        return self._joining is None and not any(child.is_alive for child in self._beyond())

    def is_leaving(self, child: Child) -> bool:
        """Return whether an ended processor is not to be replaced."""
        return child is not self._joining and child in self._beyond()

    def has_left(self, child: Child) -> None:
        """Close the connections that a permanently ended processor had not received (`A29`)."""
        self._asked.discard(child)
        pair_end = self._context.handoff[child.index][1]
        while (received := try_receive(pair_end, _MESSAGE_BYTES)) is not None and received.payload:
            if received.fd >= 0:
                os.close(received.fd)
        _log.info("%s has left: %s", child.label, counted(self._context.broker_words.processors, "processor"))

    def cannot_boot(self, child: Child, reason: str) -> bool:
        """Cancel the resize if the failed child is the processor being added; otherwise return False."""
        if child is not self._joining:
            return False
        self._joining = None
        self._give_up(reason)
        return True

    def _beyond(self) -> list[Child]:
        """Return the processors that get no connections."""
        in_use = self._context.broker_words.processors
        return [each for each in self._children if each.role is Role.PROCESSOR and each.index >= in_use]

    def _admit(self, child: Child) -> None:
        if child.ready:
            self._joining = None
            self._context.broker_words.set_processors(child.index + 1)
            self._context.ring_everyone()
            # The next step follows at once.
            self._context.supervisor_bell.ring()
            _log.info("%s has joined: %s", child.label, counted(child.index + 1, "processor"))

    def _grow(self, index: int, wanted: int) -> None:
        broker_words = self._context.broker_words
        try:
            if index == broker_words.processors_made:
                self._memory.make_processor(self._context)
        except SharedMemoryTooSmall as error:
            self._give_up(str(error))
            return
        known = [child for child in self._children if child.role is Role.PROCESSOR and child.index == index]
        self._joining = known[0] if known else self._add(Role.PROCESSOR, index)
        _log.info("num.network.threads is %d: %s joins", wanted, self._joining.label)
        # Before it starts, so that no process finds requests of an unknown processor.
        self._context.ring_everyone()
        self._start(self._joining)

    def _shrink(self, wanted: int) -> None:
        broker_words = self._context.broker_words
        _log.info("num.network.threads is %d: the last of %d processors leave", wanted, broker_words.processors)
        broker_words.set_processors(wanted)
        for child in self._beyond():
            # A pending restart is cancelled.
            child.restart_due_ns = 0
            if not child.is_alive:
                self._context.slots.set_state(Role.PROCESSOR, child.index, process_slots.STOPPED)

    def _ask_to_leave(self) -> None:
        if self._context.slots.confirmed(Role.ACCEPTOR, 0) != self._context.broker_words.processors:
            return
        for child in self._beyond():
            if child.is_alive and child not in self._asked:
                self._asked.add(child)
                child.ask_to_stop()

    def _give_up(self, reason: str) -> None:
        broker_words = self._context.broker_words
        self._given_up = broker_words.wanted_processors
        _log.error("the number of processors stays %d, not %d: %s", broker_words.processors, self._given_up, reason)
