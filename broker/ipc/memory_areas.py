"""The memory areas in which requests lie, as a target sees them: the rings, the arena, a processor's spill area.

Runs in handler processes and the controller. A published request's memory belongs to its target until the target
releases the frame: until then it may be read, and a Produce batch may be patched in place.
"""

from __future__ import annotations

import mmap
from typing import TYPE_CHECKING

from broker.ipc.request_channel import ARENA, INLINE, SPILL

if TYPE_CHECKING:
    from broker.ipc.process_context import ProcessContext


class MemoryAreas:
    """Byte views by area number, as REQUEST_ENVELOPE and PEER_ENVELOPE carry it."""

    def __init__(self, context: ProcessContext) -> None:
        self._views: dict[int, memoryview] = {INLINE: context.rings.view, ARENA: context.arena.view}
        self._spill_fds = context.spill_fds

    def view(self, area: int) -> memoryview:
        """Return the whole area; addresses of requests are offsets in it."""
        view = self._views.get(area)
        if view is None:
            # Spill areas are mapped when the first oversize request of their processor comes.
            view = memoryview(mmap.mmap(self._spill_fds[area - SPILL], 0))
            self._views[area] = view
        return view
