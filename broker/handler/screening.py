"""The screening of requests by a replacement: filters the requests that a killed target has left.

Runs in handler processes and the controller. It wraps the handling of requests (`RequestHandler.wrap`) from the start
of a replacement until no request to its predecessors can arrive any more, and while one like a dropped request may
arrive (`poison_requests`). A target without a predecessor handles its requests without it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rotunda.broker.ipc.poison_requests import DROPPED
from rotunda.broker.protocol.api_keys import ApiKey

if TYPE_CHECKING:
    from rotunda.broker.handler.request_handler import Handle, RequestHandler
    from rotunda.broker.ipc.poison_requests import PoisonRequests
    from rotunda.broker.ipc.process_context import ProcessContext
    from rotunda.broker.ipc.request import Request
    from rotunda.broker.ipc.response_writer import ResponseWriter

_PRODUCE: Final = int(ApiKey.PRODUCE)


class Screening:
    """The screening of one target's requests."""

    def __init__(
        self,
        handler: RequestHandler,
        poison: PoisonRequests,
        responses: ResponseWriter,
        context: ProcessContext,
        target: int,
    ) -> None:
        """Start screening immediately for a later generation, or at the first dropped request for generation 1."""
        self._handler, self._poison, self._responses = handler, poison, responses
        self._context, self._target, generation = context, target, poison.generation
        self._is_installed = False
        #: Requests sent to an earlier generation are sent again by their processor, except Produce. Generation 1
        #: handles everything: a processor may send to it before it sees that it is ready.
        self._oldest_generation = generation if generation > 1 else 0
        #: A predecessor may have died committing a request received before this time: each is committed on its own.
        self._alone_until_ns = handler.now_ns() if generation > 1 else -1
        #: Processors that may still send requests addressed to the predecessor, or send them again.
        self._awaited = set(range(context.channel.processors)) if generation > 1 else set()
        poison.on_dropped = self.install
        if generation > 1:
            self.install()

    def install(self) -> None:
        """Screen from the next batch of requests on."""
        if not self._is_installed:
            self._handler.wrap(self.handle)
            self._is_installed = True

    def handle(self, request: Request, handle: Handle) -> None:
        """Handle a request unless it is poison, or its processor sends it again."""
        if request.generation < self._oldest_generation and request.api_key != _PRODUCE:
            return
        now_ns = self._handler.now_ns()
        if self._poison.is_dropped(request, now_ns):
            self._responses.close_connection(request, now_ns, DROPPED)
            return
        handle(request)
        if request.received_ns <= self._alone_until_ns:
            self._handler.commit()
        else:
            self._awaited = {each for each in self._awaited if not self._has_followed(each)}
            if self._is_installed and not self._awaited and not self._poison.may_arrive:
                self._handler.unwrap(self.handle)
                self._is_installed = False

    def _has_followed(self, processor: int) -> bool:
        has_ended, oldest = self._context.slots.processor_has_ended(processor), self._oldest_generation
        return self._context.channel.has_followed(processor, self._target, oldest, has_ended=has_ended)
