"""The owner's part of log maintenance: runs admin requests, and commits the results of the cleaner.

Runs in handler processes. The cleaner reads files and sends tasks; only this module removes or replaces segments,
between two requests, so that the partition does not change meanwhile. Every task is idempotent: a removed segment is
not removed again, and the sources of a finished swap no longer exist. The cleaner may have used outdated settings: such
a task is rejected, and the cleaner repeats it with the current ones.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from rotunda.broker.errors import ApiError
from rotunda.broker.log.disk_room import NO_ROOM
from rotunda.broker.log.owner_tasks import BYTES, DELETE_RECORDS, RETAIN, START_OFFSET, SWAP
from rotunda.broker.log.partition_log import LogWriteFailed
from rotunda.broker.log.segments.segment_swap import SegmentSwap
from rotunda.broker.protocol.error_codes import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rotunda.broker.partitions.owned_partition import OwnedPartition
    from rotunda.broker.scheduling.peer_tasks import TargetTasks, TaskDone

logger = logging.getLogger(__name__)


class LogMaintenance:
    """Runs the maintenance tasks of the cleaner and of other handlers for the partitions of one handler."""

    def __init__(self, owned: Mapping[int, OwnedPartition], tasks: TargetTasks) -> None:
        self._owned = owned
        tasks.register("delete_records", self._delete_records)
        tasks.register("retain_log", self._retain)
        tasks.register("swap_segments", self._swap)

    def _delete_records(self, payload: bytes, reply: TaskDone) -> None:
        """Raise the log start offset for a DeleteRecords request."""
        row, before = DELETE_RECORDS.unpack(payload)
        owned = self._owned.get(row)
        if owned is None:
            reply(ErrorCode.NOT_LEADER_OR_FOLLOWER, b"")
            return
        try:
            start_offset = owned.log.delete_records_before(before)
        except ApiError as error:
            reply(error.code, b"")
            return
        except (LogWriteFailed, OSError) as error:
            logger.error("delete_records of %s failed: %s", owned.log.directory, error)
            reply(ErrorCode.KAFKA_STORAGE_ERROR, b"")
            return
        _publish(owned)
        reply(ErrorCode.NONE, START_OFFSET.pack(start_offset))

    def _retain(self, payload: bytes, reply: TaskDone) -> None:
        """Raise the log start offset to a segment or to the log end, and remove the segments below it."""
        row, offset, *retention = RETAIN.unpack(payload)
        owned = self._owned.get(row)
        if owned is None:
            reply(ErrorCode.NOT_LEADER_OR_FOLLOWER, b"")
            return
        log = owned.log
        if log.config.retention != tuple(retention):
            reply(ErrorCode.INVALID_CONFIG, b"")
            return
        before_bytes = log.size_bytes
        try:
            if offset == log.log_end_offset and not _is_restart(owned):
                offset = log.segment_base
            if offset > log.log_start_offset:
                log.delete_records_before(offset)
            else:
                log.remove_segments_below_start()
        except (ApiError, LogWriteFailed, OSError) as error:
            logger.error("%s: cannot remove segments below %d: %s", log.directory, offset, error)
            reply(ErrorCode.KAFKA_STORAGE_ERROR, b"")
            return
        finally:
            _publish(owned)
        reply(ErrorCode.NONE, BYTES.pack(before_bytes - log.size_bytes))

    def _swap(self, payload: bytes, reply: TaskDone) -> None:
        """Replace segments by the compacted segment made of them."""
        row, *rules = SWAP.unpack_from(payload)
        swap = SegmentSwap.unpack(payload[SWAP.size :])
        owned = self._owned.get(row)
        if owned is None:
            reply(ErrorCode.NOT_LEADER_OR_FOLLOWER, b"")
            return
        config = owned.log.config
        if not config.compacts or config.compaction != tuple(rules):
            reply(ErrorCode.INVALID_CONFIG, b"")
            return
        try:
            done = owned.log.swap_segments(swap)
        except OSError as error:
            logger.error("%s: cannot swap in the compacted segment: %s", owned.log.directory, error)
            reply(ErrorCode.KAFKA_STORAGE_ERROR, b"")
            return
        finally:
            _publish(owned)
        reply(ErrorCode.NONE if done else ErrorCode.INVALID_REQUEST, b"")


def _is_restart(owned: OwnedPartition) -> bool:
    """Roll to a new segment, so that all older ones can be removed; False if the last segment must stay.

    It stays while it is empty or has staged batches, and on a full disk until the removal of older segments frees space
    for a new one. Raises LogWriteFailed.
    """
    log = owned.log
    try:
        if not log.roll():
            return False
    except LogWriteFailed as failure:
        if failure.errno not in NO_ROOM or log.segment_base <= log.log_start_offset:
            raise
        return False
    # Publish before the segment is removed that contains the published end.
    owned.publish()
    return True


def _publish(owned: OwnedPartition) -> None:
    owned.publish()
    owned.writer.note_removal()
