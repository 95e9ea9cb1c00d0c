"""The shared memory that further processors and handlers would need (`A28`, `E04`).

Called in the controller before it stores new numbers: the supervisor, which allocates the memory, cannot return an
error to a client.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rotunda.broker.config.arena import free_shared_memory_bytes
from rotunda.broker.config.control_plane import control_processors
from rotunda.shm.tables import client_hosts
from rotunda.shm.tables.process_slots import PROCESSOR
from rotunda.shm.tables.snapshot_buffer import SnapshotSegment

if TYPE_CHECKING:
    from rotunda.broker.ipc.process_context import ProcessContext


def missing_bytes(context: ProcessContext, processors: int, handlers: int) -> int:
    """Return how many bytes are missing for these numbers of client processors and handlers; 0 if there is room.

    A further processor's part of the arena is not counted.
    """
    made, handlers_made = context.broker_words.processors_made, context.broker_words.handlers_made
    processors = max(made, processors + control_processors(context.config))
    handlers = max(handlers_made, handlers)
    # Each processor with each handler, and with the controller.
    pairs = processors * (handlers + 1) - made * (handlers_made + 1)
    needed = pairs * sum(size for _, size in context.channel.places(0, 0))
    for processor in range(made, processors):
        places = (
            context.metrics_pages.place(PROCESSOR, processor),
            context.recorder_rings.place(processor),
            SnapshotSegment.place(processor),
            client_hosts.place(processor),
        )
        needed += sum(size for _, size in places)
    return max(0, needed - free_shared_memory_bytes()) if needed else 0
