"""The notes that owners write into produced batches: the outcome of each batch, for a replacement that reads them.

Runs in handler processes. A note is stored in the base-offset field of the batch, in the memory of its request; it is
valid once the envelope is marked `NOTED`. `produces` describes the protocol.
"""

from __future__ import annotations

from struct import Struct

from rotunda.broker.records.record_batch import BATCH_HEADER_BYTES

#: The note in a batch's base-offset field. -1: its owner has not appended it.
NOTE = Struct(">q")
NOT_APPENDED = -1

#: The note of a rejected batch is this minus the Kafka error code.
REFUSED = -1_000


def write_note(view: memoryview, offset: int, note: int) -> None:
    """Store a note with one write: packing in place could expose a 0, which means "appended at offset 0"."""
    view[offset : offset + NOTE.size] = NOTE.pack(note)


def noted_rejection(view: memoryview, offset: int, size: int) -> int:
    """Return the error with which the batch at ``offset`` was rejected before, or 0."""
    if size < BATCH_HEADER_BYTES:
        return 0
    note: int = NOTE.unpack_from(view, offset)[0]
    return REFUSED - note if note < NOT_APPENDED else 0


def noted_place(view: memoryview, offset: int, size: int) -> int:
    """Return the base offset that an owner assigned to the batch at ``offset``, now or before, or -1."""
    if size < BATCH_HEADER_BYTES:
        return NOT_APPENDED
    note: int = NOTE.unpack_from(view, offset)[0]
    return max(note, NOT_APPENDED)


def note_rejection(view: memoryview, offset: int, size: int, error: int) -> None:
    """Note that a part was rejected, unless it has a note; a part too short for a note is always rejected again."""
    if size >= BATCH_HEADER_BYTES and NOTE.unpack_from(view, offset)[0] == NOT_APPENDED:
        write_note(view, offset, REFUSED - error)
