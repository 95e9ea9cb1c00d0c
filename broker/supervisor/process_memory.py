"""The shared memory of each processor and handler, allocated at the start or when it is added (`A28`, `E04`).

Runs in the supervisor. Segments are laid out for the maximum number of processes. Large parts for processes beyond the
started ones are holes, which use no memory until `ProcessMemory` allocates them, before any process learns of them: if
the supervisor dies in between, so does the broker, and memory allocated before a failure is reused by the next call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rotunda.broker.config.arena import free_shared_memory_bytes
from rotunda.broker.ipc.request_channel import ChannelShape, RequestChannel
from rotunda.shm.metrics.process_metrics import MetricsSegment
from rotunda.shm.rings.arena import BLOCK_BYTES
from rotunda.shm.rings.recorder_rings import RecorderRings
from rotunda.shm.tables import client_hosts
from rotunda.shm.tables.process_slots import PROCESSOR
from rotunda.shm.tables.snapshot_buffer import SnapshotSegment

if TYPE_CHECKING:
    from rotunda.broker.ipc.process_context import ProcessContext

_NOTHING = memoryview(b"")


class ProcessMemory:
    """The places of processes in segments of a shape; ``started`` (processors, handlers) are allocated at once."""

    def __init__(self, shape: ChannelShape, started: tuple[int, int]) -> None:
        self.shape = shape
        self.started = started
        most, handlers = shape.processors, shape.targets - 1
        self._channel = RequestChannel(_NOTHING, shape)
        metrics = MetricsSegment(_NOTHING, most, handlers)
        recorder = RecorderRings(_NOTHING, most, shape.targets, started[0])
        hosts = SnapshotSegment.bytes_needed(most, handlers)
        #: By purpose of a segment, and processor, as (start, bytes).
        self._places = {
            "metrics": [[metrics.place(PROCESSOR, processor)] for processor in range(most)],
            "recorder": [[recorder.place(processor)] for processor in range(most)],
            "snapshots": [
                [SnapshotSegment.place(processor), (hosts + start, size)]
                for processor in range(most)
                for start, size in (client_hosts.place(processor),)
            ],
        }

    def later(self, purpose: str) -> list[tuple[int, int]]:
        """Return the parts of a segment that are not needed at the start, as (start, bytes)."""
        if purpose == "rings":
            processors, handlers = self.started
            at_once = {*range(handlers), self.shape.targets - 1}
            pairs = ((p, t) for p in range(self.shape.processors) for t in range(self.shape.targets))
            later = [(p, t) for p, t in pairs if p >= processors or t not in at_once]
            return [place for p, t in later for place in self._channel.places(p, t)]
        return [place for places in self._places.get(purpose, [])[self.started[0] :] for place in places]

    @property
    def later_bytes(self) -> int:
        """The bytes of these parts in all segments."""
        return sum(size for purpose in ("rings", *self._places) for _, size in self.later(purpose))

    def make_processor(self, context: ProcessContext) -> None:
        """Allocate memory for one processor more than ever before. Raises SharedMemoryTooSmall.

        It gets as much of the arena as each of the others, or half of the free shared memory: a large request that does
        not fit there uses its spill area.
        """
        processor = context.broker_words.processors_made
        segments = {"metrics": context.metrics, "recorder": context.recorder, "snapshots": context.snapshots}
        for purpose, places in self._places.items():
            for start, size in places[processor]:
                segments[purpose].allocate(start, size)
        for target in context.channel.targets:
            self._make_pair(context, processor, target)
        context.metrics_pages.initialise_page(PROCESSOR, processor)
        context.recorder_rings.initialise_ring(processor)
        share = context.arena_share
        size = min(share, free_shared_memory_bytes() // 2 // BLOCK_BYTES * BLOCK_BYTES)
        if size:
            context.arena.allocate(processor * share, size)
        context.slots.set_arena_bytes(PROCESSOR, processor, size)
        context.broker_words.set_processors_made(processor + 1)

    def make_handlers(self, context: ProcessContext, handlers: int) -> None:
        """Allocate missing rings for this number of handlers. Raises SharedMemoryTooSmall."""
        for handler in range(context.broker_words.handlers_made, handlers):
            for processor in range(context.broker_words.processors_made):
                self._make_pair(context, processor, handler)
            context.broker_words.set_handlers_made(handler + 1)

    def _make_pair(self, context: ProcessContext, processor: int, target: int) -> None:
        for start, size in context.channel.places(processor, target):
            context.rings.allocate(start, size)
        context.channel.initialise_pair(processor, target)
