"""The notes that owners write into produced batches: what became of them, for whoever reads the request again.

Runs in handler processes. A note stands in the base-offset field of the batch, in the memory of its request; it means
something once the envelope says `NOTED`. `produce` has the whole of it.
"""

from __future__ import annotations

from struct import Struct

from rotunda.broker.protocol.records import BATCH_HEADER_BYTES

#: The note in a batch's base-offset field. -1: its owner has not appended it.
NOTE = Struct(">q")
NOT_APPENDED = -1

#: A note of a refusal is this less the Kafka error code.
REFUSED = -1_000


def write_note(view: memoryview, offset: int, note: int) -> None:
    """Store a note whole: packing it in place would show a 0 in between, which reads "appended at offset 0"."""
    view[offset : offset + NOTE.size] = NOTE.pack(note)


def noted_refusal(view: memoryview, offset: int, size: int) -> int:
    """Return the error with which the batch at ``offset`` has been refused before, or 0."""
    if size < BATCH_HEADER_BYTES:
        return 0
    note: int = NOTE.unpack_from(view, offset)[0]
    return REFUSED - note if note < NOT_APPENDED else 0


def noted_place(view: memoryview, offset: int, size: int) -> int:
    """Return the base offset that the batch at ``offset`` was given, by its owner or by one before, or -1."""
    if size < BATCH_HEADER_BYTES:
        return NOT_APPENDED
    note: int = NOTE.unpack_from(view, offset)[0]
    return max(note, NOT_APPENDED)


def note_refusal(view: memoryview, offset: int, size: int, error: int) -> None:
    """Note that a part was refused, unless it has a note already; what is too short for one is refused for ever."""
    if size >= BATCH_HEADER_BYTES and NOTE.unpack_from(view, offset)[0] == NOT_APPENDED:
        write_note(view, offset, REFUSED - error)
