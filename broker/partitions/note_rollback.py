"""The rollback of notes: before its first request, a replacement resets the notes of uncommitted batches.

Runs once when a handler boots. A note at or above the published end of its partition was written by a predecessor that
died before the commit; the records beyond the end have been truncated. Reset it before any append: otherwise the end
moves past the note, and the batch looks committed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rotunda.broker.errors import InvalidReceive
from rotunda.broker.ipc.peer_channel import PRODUCE_PART
from rotunda.broker.ipc.request import NOTED, MemoryAreas
from rotunda.broker.ipc.request_channel import INLINE, PEER, REQUEST, RequestChannel
from rotunda.broker.partitions.produce.append_notes import NOT_APPENDED, NOTE, write_note
from rotunda.broker.protocol.api_keys import ApiKey
from rotunda.broker.protocol.headers import parse_header
from rotunda.broker.protocol.messages.produce import Part, parse_produce
from rotunda.broker.records.record_batch import BATCH_HEADER_BYTES
from rotunda.shm.rings.ring import RingConsumer
from rotunda.shm.tables.current_request import REQUEST_AT

if TYPE_CHECKING:
    from rotunda.broker.ipc.poison_requests import PoisonRequests
    from rotunda.broker.partitions.partition_manager import PartitionManager

_EVERYTHING = 1 << 30


def clear_uncommitted_notes(
    partitions: PartitionManager, channel: RequestChannel, areas: MemoryAreas, poison: PoisonRequests
) -> int:
    """Reset the notes of uncommitted batches in every unreleased request and peer message; return their number."""
    cleared = 0
    for processor in range(channel.processors):
        ring = channel.request_consumer(processor, partitions.index)
        for view, row, part in _noted_parts(partitions, ring, channel.view, areas, poison):
            cleared += _clear(partitions, view, row, part.records_offset, part.records_size)
    for source in range(channel.shape.targets):
        if source == partitions.index:
            continue
        ring = channel.peer_consumer(source, partitions.index)
        for at, _, _ in ring.read(_EVERYTHING):
            kind, _, _, _, area, address, size, row, *_ = PEER.unpack_from(channel.view, at)
            if kind == PRODUCE_PART:
                cleared += _clear(partitions, areas.view(area), row, address, size)
    return cleared


def _noted_parts(
    partitions: PartitionManager, ring: RingConsumer, rings: memoryview, areas: MemoryAreas, poison: PoisonRequests
) -> list[tuple[memoryview, int, Part]]:
    """Return (memory, row, part) for every part of noted Produce requests owned by this handler."""
    found = []
    for at, _, _ in ring.read(_EVERYTHING):
        connection, sequence, _, key, version, _, size, _, address, _, area, _, noted = REQUEST.unpack_from(rings, at)
        if key != ApiKey.PRODUCE or noted != NOTED or poison.is_condemned((connection, sequence)):
            continue
        poison.current.words[REQUEST_AT] = at
        view = areas.view(area)
        start = at + REQUEST.size if area == INLINE else address
        try:
            header = parse_header(view, start, start + size)
            request = parse_produce(view, version, header.body_offset, start + size)
        except InvalidReceive:
            continue
        for part in request.parts:
            row = partitions.row_of(part.topic_name, part.topic_id, part.partition)
            if partitions.owner_of(row) == partitions.index:
                found.append((view, row, part))
    poison.current.words[REQUEST_AT] = 0
    return found


def _clear(partitions: PartitionManager, view: memoryview, row: int, offset: int, size: int) -> int:
    # Also if the log could not be opened: records beyond the published end are truncated when it is.
    if partitions.owner_of(row) != partitions.index or size < BATCH_HEADER_BYTES:
        return 0
    (note,) = NOTE.unpack_from(view, offset)
    if note < partitions.table.read_end(row):
        return 0
    write_note(view, offset, NOT_APPENDED)
    return 1
