"""What small Produce requests that are committed together cost their clients: one charge a client and partition.

Runs in handler processes, between a commit and its answers, while quotas are in force. The time that taking and
committing them has needed is shared in equal parts; to charge each of them by itself costs more than that tells.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from broker.ipc.response_writer import ReplyTo
    from broker.partitions.owned_partition import PlainProduce
    from broker.protocol.records import RawHeader
    from broker.quotas.client_sensors import ClientSensors
    from broker.quotas.meters import Book

    Answers = Sequence[tuple[ReplyTo, PlainProduce, RawHeader, int, memoryview]]


class BatchCharge:
    """The charges for the requests of one turn."""

    __slots__ = ("_book", "_left")

    def __init__(self, book: Book, number: int) -> None:
        """Charge for so many requests, partition by partition."""
        self._book = book
        self._left = number

    def of(self, answers: Answers, now_ns: int) -> bool:
        """Charge for the requests of a partition that has been committed; return whether a client is throttled."""
        book, number = self._book, len(answers)
        # This commit has taken the time since the mark.
        spent_ns = (book.spent_ns + now_ns - book.mark_ns) // max(1, self._left)
        book.spent_ns += now_ns - book.mark_ns - spent_ns * number
        book.mark_ns = now_ns
        self._left -= number
        return _charge(answers, spent_ns, now_ns)


def _charge(answers: Answers, spent_ns: int, now_ns: int) -> bool:
    """Charge each client for its requests. Those without an answer are charged as they end (`E13`). HOT."""
    whose = answers[0][0][9]
    sizes = [to[8] for to, remembered, _, _, _ in answers if to[9] is whose and remembered.acks]
    if len(sizes) == len(answers) and whose is not None:
        return whose.answered_together(len(sizes), sum(sizes), spent_ns * len(sizes), now_ns) > 0
    several: dict[ClientSensors, list[int]] = {}
    for to, remembered, _, _, _ in answers:
        if (whose := to[9]) is not None and remembered.acks:
            several.setdefault(whose, []).append(to[8])
    times = [
        whose.answered_together(len(sizes), sum(sizes), spent_ns * len(sizes), now_ns)
        for whose, sizes in several.items()
    ]
    return any(times)
