"""Topics of a stopped broker: creates those that its command line names.

Run by the supervisor before it forks. The data directory is locked, so that no controller writes the file.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing

from rotunda.broker.config.broker_config import BrokerConfig
from rotunda.broker.errors import ApiError
from rotunda.broker.metadata.controller import Controller
from rotunda.broker.metadata.metadata_cache import MetadataCache
from rotunda.broker.metadata.store.metadata_file import metadata_path
from rotunda.broker.metadata.topics.topic_validation import NewTopic
from rotunda.broker.protocol.error_codes import ErrorCode
from rotunda.broker.protocol.routing import INTERNAL_TOPICS
from rotunda.shm.tables.partitions import PartitionTable

_HANDLERS = 1


def store_topics(config: BrokerConfig, topics: Sequence[NewTopic]) -> None:
    """Create those of the topics that do not exist, by a controller's rules. Raises ApiError, BootFailed."""
    internal = next((topic.name for topic in topics if topic.name in INTERNAL_TOPICS), None)
    if internal is not None:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Topic '{internal}' is internal.")
    # Owners are not stored; every start computes them for its handlers.
    memory = memoryview(bytearray(PartitionTable.bytes_needed(config.max_partitions, _HANDLERS + 1)))
    table = PartitionTable(memory, 0, config.max_partitions, _HANDLERS + 1)
    with (
        closing(MetadataCache(metadata_path(config.data_dir), _HANDLERS, config)) as metadata,
        closing(Controller.open(metadata, table, config, lambda: metadata.version)) as controller,
    ):
        for outcome in controller.create_topics([topic for topic in topics if metadata.topic(topic.name) is None]):
            if outcome.error_code:
                raise ApiError(outcome.error_code, f"topic {outcome.name}: {outcome.message}")
