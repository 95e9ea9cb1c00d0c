"""The targets as a processor follows them: which generation of each is ready, and whether requests may go to them.

Runs in processor processes, once a turn. While the supervisor has requests held back, because partitions and groups go
to another number of handlers (`E04`), no target gets anything, and none that comes or goes meanwhile matters: when the
hold ends, everything without an answer goes to who owns it then. A processor that starts meanwhile begins with the
hold; one that is killed has nothing to send again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rotunda.broker.runtime.child_process import Role

if TYPE_CHECKING:
    from rotunda.broker.ipc.process_context import ProcessContext
    from rotunda.broker.network.processor.processor import Processor


class Targets:
    """What one processor has seen of the words of targets and of the broker words."""

    def __init__(self, context: ProcessContext, index: int, processor: Processor) -> None:
        self._context, self._broker_words, self._slots = context, context.broker_words, context.slots
        self._index = index
        self._processor = processor
        self._hold = 0
        # SYNC: the hold before the number of handlers; pairs with the store in BrokerWords.set_hold.
        self._handlers = context.handlers
        self._targets: list[int] = []
        #: Of each of them, where the generation stands that is ready, and the one that has been followed.
        self._at: list[int] = []
        self._seen: list[int] = []
        self._look_at(self._handlers)

    def follow(self) -> None:
        """Hold requests back or send them, as the supervisor says; follow the targets while they may be sent. HOT."""
        hold = self._broker_words.hold
        if hold != self._hold:
            self._take(hold)
        if hold & 1:
            return
        ready, seen = self._slots.ready_generations(self._at), self._seen
        if ready != seen:
            for number, generation in enumerate(ready):
                if generation != seen[number]:
                    seen[number] = generation
                    self._processor.target_ready(self._targets[number], generation)

    def _take(self, hold: int) -> None:
        self._hold = hold
        handlers = self._broker_words.handlers
        if hold & 1:
            self._processor.sender.hold()
        elif handlers == self._handlers:
            self._processor.move(handlers, {})
        else:
            self._handlers = handlers
            self._look_at(handlers)
            self._seen = self._slots.ready_generations(self._at)
            self._processor.move(handlers, dict(zip(self._targets, self._seen, strict=True)))
        self._slots.confirm(Role.PROCESSOR, self._index, hold)

    def _look_at(self, handlers: int) -> None:
        """Follow so many handlers, and the controller; none of them has been followed."""
        self._targets = [*range(handlers), self._context.controller]
        places = [*((int(Role.HANDLER), index) for index in range(handlers)), (int(Role.CONTROLLER), 0)]
        self._at = self._slots.ready_words(places)
        self._seen = [0] * len(self._targets)
