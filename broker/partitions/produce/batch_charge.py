"""What small Produce requests that are committed together cost their clients: one charge a client and turn.

Runs in handler processes, between the first commit of a turn and its answers, while quotas are in force. The time that
taking and committing them has needed is shared in equal parts; to charge each of them by itself costs more than that
tells. Those without an answer are charged as they end (`E13`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from broker.ipc.request import Request
    from broker.partitions.owned_partition import PlainProduce
    from broker.protocol.records import RawHeader
    from broker.quotas.client_sensors import ClientSensors

    Answers = Sequence[tuple[Request, PlainProduce, RawHeader, int, memoryview]]


def charge_staged(first: ClientSensors, batches: Sequence[Answers], now_ns: int) -> bool:
    """Charge for what `ClientSensors.staged` has of the requests of a turn; return whether a client is throttled. HOT.

    ``first``: the client of one of them. There is seldom another, and to look for others is most of the work.
    """
    number = sum([len(answers) for answers in batches])
    clients: Sequence[ClientSensors] = (first,)
    if len(first.staged) < number:
        clients = list({request.quotas for answers in batches for request, *_ in answers if request.quotas is not None})
        number = sum([len(whose.staged) for whose in clients])
    book, throttled = first.book, False
    each_ns, book.spent_ns = divmod(book.spent_ns + now_ns - book.mark_ns, max(1, number))
    book.mark_ns = now_ns
    for whose in clients:
        sizes = whose.staged
        if sizes and whose.answered_together(len(sizes), sum(sizes), each_ns * len(sizes), now_ns):
            throttled = True
        sizes.clear()
    return throttled
