"""The coordinator locator: computes the owner of a group or transactional id, and the error of any other target.

Runs in handler processes and the controller. Processors route requests to the owner by the same hash
(`protocol.routing`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING

from rotunda.broker.errors import ApiError
from rotunda.broker.protocol.error_codes import ErrorCode
from rotunda.broker.protocol.routing import CoordinatorPartitions, coordinator_partition, owner_of_coordinator

if TYPE_CHECKING:
    from rotunda.broker.metadata.metadata_cache import MetadataCache


class CoordinatorLocator:
    """The coordinator locator of one target."""

    def __init__(
        self,
        index: int,
        handlers: int,
        controller: int,
        counts: CoordinatorPartitions,
        metadata: MetadataCache,
        create_topics: Callable[[Sequence[str]], None],
        loading: Collection[tuple[str, int]],
    ) -> None:
        """Use ``loading``, a live collection, for the partitions being loaded."""
        self.index = index
        self.handlers = handlers
        self.controller = controller
        self.counts = counts
        self._metadata = metadata
        self._create_topics = create_topics
        self._loading = loading

    def is_loading(self, topic: str) -> bool:
        """Return whether any partition of an internal topic is being loaded here."""
        return any(place[0] == topic for place in self._loading)

    def owner_of(self, topic: str, name: str) -> int:
        """Return the handler that coordinates an id of an internal topic."""
        return owner_of_coordinator(topic, self._partition_of(topic, name), self.handlers)

    def absent(self, topic: str, name: str) -> ApiError:
        """Return the error for a group or id not coordinated here; create the topic if it does not exist."""
        if self._metadata.topic(topic) is None:
            self._create_topics([topic])
        elif self.owner_of(topic, name) != self.index:
            return ApiError(ErrorCode.NOT_COORDINATOR)
        elif (topic, self._partition_of(topic, name)) in self._loading:
            return ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE)

    def _partition_of(self, topic: str, name: str) -> int:
        return coordinator_partition(name, self.counts.of(topic))
