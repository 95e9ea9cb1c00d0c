"""The shared memory of processors: what one needs of each segment, from the start or when it is added (`A28`).

Runs in the supervisor. Segments are laid out for the most processors that there may be. What those beyond the first
ones need is left out of them and takes no room until `ProcessorMemory.make` allocates it, before anybody is told: a
supervisor that dies in between takes the broker with it, and a failure leaves room that the next call takes up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.config.arena import free_shared_memory_bytes
from broker.ipc.request_channel import ChannelShape, RequestChannel
from shm import client_hosts
from shm.arena import BLOCK_BYTES
from shm.metrics import MetricsSegment
from shm.process_slots import PROCESSOR
from shm.recorder_rings import RecorderRings
from shm.snapshot_buffer import SnapshotSegment

if TYPE_CHECKING:
    from broker.ipc.process_context import ProcessContext

_NOTHING = memoryview(b"")


class ProcessorMemory:
    """The places of processors in segments of a shape, of which the first ``started`` are there from the start."""

    def __init__(self, shape: ChannelShape, started: int) -> None:
        self.shape = shape
        self.started = started
        most, handlers = shape.processors, shape.targets - 1
        rings = RequestChannel(_NOTHING, shape)
        metrics = MetricsSegment(_NOTHING, most, handlers)
        recorder = RecorderRings(_NOTHING, most, shape.targets, started)
        hosts = SnapshotSegment.bytes_needed(most, handlers)
        #: By purpose of a segment, and processor, as (start, bytes).
        self._places = {
            "rings": [rings.places(processor) for processor in range(most)],
            "metrics": [[metrics.place(PROCESSOR, processor)] for processor in range(most)],
            "recorder": [[recorder.place(processor)] for processor in range(most)],
            "snapshots": [
                [SnapshotSegment.place(processor), (hosts + start, size)]
                for processor in range(most)
                for start, size in (client_hosts.place(processor),)
            ],
        }

    def later(self, purpose: str) -> list[tuple[int, int]]:
        """Return what of a segment is not needed at the start, as (start, bytes)."""
        return [place for places in self._places.get(purpose, [])[self.started :] for place in places]

    @property
    def later_bytes(self) -> int:
        """How much that is in all segments."""
        return sum(size for purpose in self._places for _, size in self.later(purpose))

    def make(self, context: ProcessContext) -> None:
        """Make memory ready for one processor more than there ever were. Raises SharedMemoryTooSmall.

        It gets as much of the arena as each of the others, or what half of the room is that is left: a large request
        that does not fit there goes by its spill area.
        """
        processor = context.cluster.processors_made
        segments = {
            "rings": context.rings,
            "metrics": context.metrics,
            "recorder": context.recorder,
            "snapshots": context.snapshots,
        }
        for purpose, places in self._places.items():
            for start, size in places[processor]:
                segments[purpose].allocate(start, size)
        context.channel.initialise_processor(processor)
        context.metrics_pages.initialise_page(PROCESSOR, processor)
        context.recorder_rings.initialise_ring(processor)
        share = context.arena_share
        size = min(share, free_shared_memory_bytes() // 2 // BLOCK_BYTES * BLOCK_BYTES)
        if size:
            context.arena.allocate(processor * share, size)
        context.slots.set_arena_bytes(PROCESSOR, processor, size)
        context.cluster.set_processors_made(processor + 1)
