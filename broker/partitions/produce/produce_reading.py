"""How a Produce is read on the general path: it is parsed, its batches get room for notes, what they claim is added up.

Runs in handler processes, in steps: a request may have ten thousand parts. Nothing is appended before it is read to its
end, so a death on the way leaves a request that is read again.
"""

from __future__ import annotations

from broker.ipc.request import NOTED, STATE_OFFSET, Request
from broker.ipc.request_facts import Records, RecordsCount, RowOf, subject
from broker.ipc.response_writer import AnswerFacts
from broker.partitions.produce.append_notes import NOT_APPENDED, write_note
from broker.protocol.messages.produce import ProduceRequest, produce_in_steps
from broker.protocol.records import BATCH_HEADER_BYTES, unpack_header
from broker.protocol.steps import ELEMENTS_AT_ONCE, Steps


def read_in_steps(request: Request, body_offset: int, words: memoryview) -> Steps[tuple[ProduceRequest, Records]]:
    """Return a request and the facts of its records; from then on its base offsets are notes.

    ``words`` are those of the rings. Raises InvalidReceive when it is malformed.
    """
    view = request.view
    body = yield from produce_in_steps(view, request.api_version, body_offset, request.end)
    count = RecordsCount()
    for number, part in enumerate(body.parts, 1):
        offset, size = part.records_offset, part.records_size
        count.add(unpack_header(view, offset) if size >= BATCH_HEADER_BYTES else None, size)
        if size >= BATCH_HEADER_BYTES and not request.is_noted:
            write_note(view, offset, NOT_APPENDED)
        if not number % ELEMENTS_AT_ONCE:
            yield
    words[(request.envelope_at + STATE_OFFSET) >> 3] = NOTED
    return body, count.records


def facts_of(body: ProduceRequest, records: Records, row_of: RowOf) -> AnswerFacts:
    """Return the facts of a request for the request log; of its records, what the batches claim."""
    first = body.parts[0] if body.parts else None
    row = -1 if first is None else row_of(first.topic_name, first.topic_id, first.partition)
    return AnswerFacts(records=records, about=subject(row, len(body.parts), acks=body.acks))
