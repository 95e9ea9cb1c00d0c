"""The targets as a processor follows them: which generation of each is ready, and whether requests may go to them.

Runs in processor processes, once a turn. While the supervisor has requests held back, because partitions and groups go
to another number of handlers (`E04`), no target gets anything, and none that comes or goes meanwhile matters: when the
hold ends, everything without an answer goes to who owns it then. A processor that starts meanwhile begins with the
hold; one that is killed has nothing to send again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.runtime.child_process import Role

if TYPE_CHECKING:
    from broker.ipc.process_context import ProcessContext
    from broker.network.processor.processor import Processor


class Targets:
    """What one processor has seen of the words of targets and of the broker words."""

    def __init__(self, context: ProcessContext, index: int, processor: Processor) -> None:
        self._context, self._broker_words, self._slots = context, context.broker_words, context.slots
        self._index = index
        self._processor = processor
        self._hold = 0
        # SYNC: the hold before the number of handlers; pairs with the store in BrokerWords.set_hold.
        self._handlers = context.handlers
        self._seen: dict[int, int] = {}
        self._places = self._places_of(self._handlers)

    def follow(self) -> None:
        """Hold requests back or send them, as the supervisor says; follow the targets while they may be sent."""
        hold = self._broker_words.hold
        if hold != self._hold:
            self._take(hold)
        if hold & 1:
            return
        for target, place in self._places.items():
            generation = self._slots.ready_generation(*place)
            if generation != self._seen.get(target, 0):
                self._seen[target] = generation
                self._processor.target_ready(target, generation)

    def _take(self, hold: int) -> None:
        self._hold = hold
        handlers = self._broker_words.handlers
        if hold & 1:
            self._processor.sender.hold()
        elif handlers == self._handlers:
            self._processor.move(handlers, {})
        else:
            self._handlers = handlers
            self._places = self._places_of(handlers)
            self._seen = {target: self._slots.ready_generation(*place) for target, place in self._places.items()}
            self._processor.move(handlers, self._seen)
        self._slots.confirm(Role.PROCESSOR, self._index, hold)

    def _places_of(self, handlers: int) -> dict[int, tuple[int, int]]:
        """Return by target the role and index of its slot."""
        return {
            **{index: (int(Role.HANDLER), index) for index in range(handlers)},
            self._context.controller: (int(Role.CONTROLLER), 0),
        }
