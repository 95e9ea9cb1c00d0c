"""Answers to commits of offsets that took the fast path, once what they bring is written. HOT.

Runs in handler processes, in the request loop.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from broker.ipc.request_facts import NO_RECORDS
from broker.ipc.response_writer import AnswerFacts, ReplyTo, ResponseWriter
from broker.protocol.messages import offset_commit

if TYPE_CHECKING:
    from broker.coordinator.offsets.commit_memo import RememberedCommit

logger = logging.getLogger(__name__)


class CommitAnswers:
    """Sends them; a fault with one closes its connection."""

    def __init__(self, responses: ResponseWriter, now_ns: Callable[[], int]) -> None:
        self._responses = responses
        self._now_ns = now_ns

    def answer_repeated(self, committers: list[tuple[ReplyTo, RememberedCommit]], error: int) -> None:
        """Answer commits that were like others before them. HOT."""
        responses, now_ns = self._responses, self._now_ns()
        view, try_begin = responses.view, responses.try_begin
        for to, remembered in committers:
            try:
                about, end = remembered.facts
                if error:
                    refused = offset_commit.refused(remembered.topics, error)
                    self.answer(to, remembered.committer.api_version, refused, error, remembered.facts)
                    continue
                at = try_begin(to, now_ns, remembered.answer_bytes, NO_RECORDS, end)
                if at >= 0:
                    remembered.answer_into(view, at, to[7])
                else:
                    responses.send(to, now_ns, now_ns, remembered.answer(to[7]), AnswerFacts(about=about))
            except Exception:
                self._fault(to)

    def answer(
        self,
        to: ReplyTo,
        version: int,
        response: offset_commit.OffsetCommitResponse,
        error: int,
        facts: tuple[bytes, bytes],
    ) -> None:
        """Answer a commit of that version; ``facts``: the subject, and the tail of the envelope that has it."""
        payload = offset_commit.encode_offset_commit_response(version, to[7], response)
        now_ns = self._now_ns()
        self._responses.send(to, now_ns, now_ns, payload, AnswerFacts(error, about=facts[0]))

    def send_short(self, to: ReplyTo, payload: bytes, facts: tuple[bytes, bytes]) -> None:
        """Send a short answer without an error; ``facts``: the subject, and the tail of the envelope that has it."""
        now_ns = self._now_ns()
        responses = self._responses
        size = len(payload)
        at = responses.try_begin(to, now_ns, size, NO_RECORDS, facts[1])
        if at >= 0:
            responses.view[at : at + size] = payload
        else:
            responses.send(to, now_ns, now_ns, payload, AnswerFacts(about=facts[0]))

    def contained(self, to: ReplyTo, done: Callable[[int], None]) -> Callable[[int], None]:
        """Return ``done`` such that its faults close the connection."""

        def done_or_close(error: int) -> None:
            try:
                done(error)
            except Exception:
                self._fault(to)

        return done_or_close

    def _fault(self, to: ReplyTo) -> None:
        """Close a connection whose commit cannot be answered; the others of its batch are."""
        logger.exception("cannot answer a commit of offsets; closing its connection")
        self._responses.close_connection(to, self._now_ns())
