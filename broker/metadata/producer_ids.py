"""The producer ids that the controller assigns: each once, also across restarts. Runs in the controller."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rotunda.broker.metadata.store.metadata_store import MetadataStore

#: Producer ids are assigned from blocks of this size; a restart skips the rest of a block.
PRODUCER_ID_BLOCK = 1000


class ProducerIds:
    """The rest of the last reserved block."""

    def __init__(self, store: MetadataStore) -> None:
        self._store = store
        self._next = self._end = 0

    def next(self) -> int:
        """Return an unused id. Raises ApiError when none can be reserved."""
        if self._next == self._end:
            self._next = self._store.reserve_producer_ids(PRODUCER_ID_BLOCK)
            self._end = self._next + PRODUCER_ID_BLOCK
        self._next += 1
        return self._next - 1
