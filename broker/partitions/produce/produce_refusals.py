"""The refusals of Produce parts before their records are read: unknown topics, invalid acks, logs that are not open.

Runs in handler processes. What stands in a log is not refused: a refusal would make its client send it again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.partitions.produce.append_notes import NOT_APPENDED, note_refusal, noted_place
from broker.protocol.error_codes import ErrorCode

if TYPE_CHECKING:
    from broker.metadata.metadata_cache import TopicInfo
    from broker.partitions.partition_manager import PartitionManager
    from broker.protocol.messages.produce import Part


class PartRefusals:
    """What one handler refuses."""

    def __init__(self, partitions: PartitionManager) -> None:
        self._partitions = partitions
        self._metadata = partitions.metadata

    def topic(self, part: Part) -> TopicInfo | None:
        """Return the topic that a part names, if there is one."""
        metadata = self._metadata
        if part.topic_name is not None:
            return metadata.topic(part.topic_name)
        return metadata.topic_by_id(part.topic_id or b"")

    def unknown(self, part: Part) -> int:
        """Return the error of a part for a partition that there is not, or 0."""
        topic = self.topic(part)
        if topic is not None and 0 <= part.partition < len(topic.partitions):
            return 0
        unknown_id = part.topic_name is None and topic is None
        return int(ErrorCode.UNKNOWN_TOPIC_ID if unknown_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    def of(self, part: Part, acks: int, client_id: str) -> int:
        """Return the error that refuses a part before anything else is looked at, or 0 (``E20``)."""
        if acks not in (-1, 0, 1):
            return int(ErrorCode.INVALID_REQUIRED_ACKS)
        topic = self.topic(part)
        unknown = self.unknown(part)
        if topic is None or unknown:
            return unknown
        if topic.internal and client_id != "__admin_client":
            return int(ErrorCode.INVALID_TOPIC_EXCEPTION)
        if acks == -1 and self._metadata.log_config(topic).min_insync_replicas > 1:
            return int(ErrorCode.NOT_ENOUGH_REPLICAS)
        return 0

    def without_log(self, view: memoryview, place: tuple[int, int], row: int, error: int) -> tuple[int, int]:
        """Return (error, base offset) for a batch of a partition whose log is not open here.

        A predecessor may have appended it: below the published end it stands, whatever has become of the log.
        """
        base_offset = noted_place(view, *place)
        partitions = self._partitions
        is_own = partitions.owner_of(row) == partitions.index
        if is_own and NOT_APPENDED < base_offset < partitions.table.read_end(row):
            return 0, base_offset
        note_refusal(view, *place, error)
        return int(error), -1
