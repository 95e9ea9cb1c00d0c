"""The targets as a processor follows them: their ready generations, and whether requests may be sent.

Runs in processor processes, once per iteration. During a hold, while partitions and groups move to another number of
handlers (`E04`), no target gets a request, and targets that start or end meanwhile do not matter: at the end of the
hold all unanswered requests are sent to their current owners. A processor that starts meanwhile starts in the hold; a
killed one has nothing to resend.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rotunda.broker.runtime.child_process import Role

if TYPE_CHECKING:
    from rotunda.broker.ipc.process_context import ProcessContext
    from rotunda.broker.network.processor.processor import Processor


class Targets:
    """The target and broker words as one processor has last read them."""

    def __init__(self, context: ProcessContext, index: int, processor: Processor) -> None:
        self._context, self._broker_words, self._slots = context, context.broker_words, context.slots
        self._index = index
        self._processor = processor
        self._hold = 0
        # SYNC: the hold before the number of handlers; pairs with the store in BrokerWords.set_hold.
        self._handlers = context.handlers
        self._targets: list[int] = []
        #: By target: the position of its ready generation, and the generation last followed.
        self._at: list[int] = []
        self._seen: list[int] = []
        self._look_at(self._handlers)

    def follow(self) -> None:
        """Start or end the hold by the supervisor's word; follow the targets outside a hold. HOT."""
        hold = self._broker_words.hold
        if hold != self._hold:
            self._adopt(hold)
        if hold & 1:
            return
        ready, seen = self._slots.ready_generations(self._at), self._seen
        if ready != seen:
            for number, generation in enumerate(ready):
                if generation != seen[number]:
                    seen[number] = generation
                    self._processor.target_ready(self._targets[number], generation)

    def _adopt(self, hold: int) -> None:
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
        """Follow this number of handlers, and the controller; no generation has been followed yet."""
        self._targets = [*range(handlers), self._context.controller]
        places = [*((int(Role.HANDLER), index) for index in range(handlers)), (int(Role.CONTROLLER), 0)]
        self._at = self._slots.ready_words(places)
        self._seen = [0] * len(self._targets)
