"""The owner's part of log maintenance: it does what an admin asks for, and commits what the cleaner has worked out.

Runs in handler processes. The cleaner reads files and asks; only here segments are removed or replaced, between two
requests, so nothing else of the partition moves meanwhile. Each task is safe to be asked twice: a segment that has
gone is not removed again, and a cleaned one that stands in its place is no longer there to be swapped in. The cleaner
may have worked by settings that are no longer in force: what follows from those is refused, and worked out anew.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from rotunda.broker.errors import ApiError
from rotunda.broker.log.disk_room import NO_ROOM
from rotunda.broker.log.maintenance_tasks import BYTES, DELETE_RECORDS, RETAIN, START_OFFSET, SWAP
from rotunda.broker.log.partition_log import LogWriteFailed
from rotunda.broker.log.segments.segment_swap import SegmentSwap
from rotunda.broker.protocol.error_codes import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rotunda.broker.partitions.owned_partition import OwnedPartition
    from rotunda.broker.scheduling.peer_tasks import TargetTasks, TaskDone

logger = logging.getLogger(__name__)


class LogMaintenance:
    """Does what the cleaner and other handlers ask for the partitions of one handler."""

    def __init__(self, owned: Mapping[int, OwnedPartition], tasks: TargetTasks) -> None:
        self._owned = owned
        tasks.register("delete_records", self._delete_records)
        tasks.register("retain_log", self._retain)
        tasks.register("swap_segments", self._swap)

    def _delete_records(self, payload: bytes, reply: TaskDone) -> None:
        """Let the log begin at an offset, as an admin has asked."""
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
        """Let the log begin at a segment, or at its end, and remove what lies below its start."""
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
            if offset == log.log_end_offset and not _begins_anew(owned):
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
        """Put a compacted segment in the place of those it was made of."""
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


def _begins_anew(owned: OwnedPartition) -> bool:
    """Begin a segment at the end, so that all others can go; False if the last one has to stay.

    That is so while somebody appends to it, and on a full disk until those before it have made room for a new one.
    Raises LogWriteFailed.
    """
    log = owned.log
    try:
        if not log.roll():
            return False
    except LogWriteFailed as failure:
        if failure.errno not in NO_ROOM or log.segment_base <= log.log_start_offset:
            raise
        return False
    # Before the segment goes in which the published end has been until now.
    owned.publish()
    return True


def _publish(owned: OwnedPartition) -> None:
    owned.publish()
    owned.writer.note_removal()
