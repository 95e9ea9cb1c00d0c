"""Answers to commits of offsets that took the fast path, once what they bring is written. HOT.

Runs in handler processes, in the request loop.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from broker.ipc.request import Request
from broker.ipc.request_facts import NO_RECORDS
from broker.ipc.response_writer import AnswerFacts, ResponseWriter
from broker.protocol.messages import offset_commit

if TYPE_CHECKING:
    from broker.coordinator.offsets.commit_memo import RememberedCommit

logger = logging.getLogger(__name__)


class CommitAnswers:
    """Sends them; a fault with one closes its connection."""

    def __init__(self, responses: ResponseWriter, now_ns: Callable[[], int]) -> None:
        self._responses = responses
        self._now_ns = now_ns

    def answer_repeated(self, committers: list[tuple[Request, RememberedCommit]], error: int) -> None:
        """Answer commits that were like others before them. HOT."""
        responses, now_ns = self._responses, self._now_ns()
        view, try_begin = responses.view, responses.try_begin
        for request, remembered in committers:
            try:
                about, end = remembered.facts
                if error:
                    refused = offset_commit.refused(remembered.topics, error)
                    self.answer(request, refused, error, remembered.facts)
                    continue
                at = try_begin(request, now_ns, remembered.answer_bytes, NO_RECORDS, end)
                if at >= 0:
                    remembered.answer_into(view, at, request.correlation_id)
                else:
                    responses.send(
                        request, now_ns, now_ns, remembered.answer(request.correlation_id), AnswerFacts(about=about)
                    )
            except Exception:
                self._fault(request)

    def answer(
        self,
        request: Request,
        response: offset_commit.OffsetCommitResponse,
        error: int,
        facts: tuple[bytes, bytes],
    ) -> None:
        """Answer a commit; ``facts``: the subject, and the tail of the envelope that has it."""
        payload = offset_commit.encode_offset_commit_response(request.api_version, request.correlation_id, response)
        now_ns = self._now_ns()
        self._responses.send(request, now_ns, now_ns, payload, AnswerFacts(error, about=facts[0]))

    def send_short(self, request: Request, payload: bytes, facts: tuple[bytes, bytes]) -> None:
        """Send a short answer without an error; ``facts``: the subject, and the tail of the envelope that has it."""
        now_ns = self._now_ns()
        responses = self._responses
        size = len(payload)
        at = responses.try_begin(request, now_ns, size, NO_RECORDS, facts[1])
        if at >= 0:
            responses.view[at : at + size] = payload
        else:
            responses.send(request, now_ns, now_ns, payload, AnswerFacts(about=facts[0]))

    def contained(self, request: Request, done: Callable[[int], None]) -> Callable[[int], None]:
        """Return ``done`` such that its faults close the connection."""

        def done_or_close(error: int) -> None:
            try:
                done(error)
            except Exception:
                self._fault(request)

        return done_or_close

    def _fault(self, request: Request) -> None:
        """Close a connection whose commit cannot be answered; the others of its batch are."""
        logger.exception("cannot answer a commit of offsets; closing its connection")
        self._responses.close_connection(request, self._now_ns())
