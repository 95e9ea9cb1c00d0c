"""The logs that one handler owns: opening, flushing, checkpointing and deleting them.

Runs in handler processes. All handlers share the checkpoint files; `offset_checkpoints` reads and writes their content.
A missing or old checkpoint costs time at the next start, never records. Periodic checkpoints are written by a
background thread: they have a line for every partition. Only the checkpoint of a deletion is waited for.
"""

import logging
import shutil
from collections.abc import Collection, Mapping, Set
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeAlias

from rotunda.broker.clock import Clock
from rotunda.broker.config.topic_config import LogConfig
from rotunda.broker.log.checkpoints import CLEANER_FILE, HIGH_WATERMARK_FILE, LOG_START_OFFSET_FILE, RECOVERY_POINT_FILE
from rotunda.broker.log.disk_room import NO_ROOM
from rotunda.broker.log.flusher import Flusher, FlushJob
from rotunda.broker.log.offset_checkpoints import OffsetCheckpoints
from rotunda.broker.log.partition_log import LogDamaged, LogWriteFailed, PartitionLog, PartitionName
from rotunda.broker.log.partition_metadata import TopicIdMismatch, claim_directory, read_topic_id
from rotunda.broker.log.recovery import Checkpointed, PublishedEnd
from rotunda.broker.log.segments.segment_files import DELETE_SUFFIX, doomed_directories, doomed_name, remove_directory

TopicPartition: TypeAlias = tuple[str, int]

CHECKPOINT_INTERVAL_NS = 60 * 1_000_000_000
EXPIRE_INTERVAL_NS = 600 * 1_000_000_000

#: Time in one tick for expiring producers; the rest is done in the next ticks.
_EXPIRE_NS = 5_000_000

_FILES = (RECOVERY_POINT_FILE, LOG_START_OFFSET_FILE, HIGH_WATERMARK_FILE)

_log = logging.getLogger(__name__)


class _CheckpointJob(NamedTuple):
    """Changes of the checkpoint files: recovery point, log start and log end by partition; removed partitions."""

    checkpoints: OffsetCheckpoints
    offsets: dict[TopicPartition, tuple[int, int, int]]
    removed: Set[TopicPartition]

    def run(self) -> None:
        """Write the changes to the files. Raises OSError."""
        changed = {
            file_name: {key: each[number] for key, each in self.offsets.items()}
            for number, file_name in enumerate(_FILES)
        }
        self.checkpoints.merge(changed, self.removed)


class LogManager:
    """The logs of one handler. `logs` are the open ones."""

    __slots__ = (
        "_checkpoint_due_ns",
        "_checkpointer",
        "_checkpoints",
        "_clock",
        "_data_dir",
        "_doomed",
        "_expire_due_ns",
        "_flusher",
        "_found",
        "_producer_id_expiration_ms",
        "_removed",
        "_to_expire",
        "_unflushed",
        "_written",
        "is_clean_start",
        "logs",
        "producer_ids",
    )

    def __init__(self, data_dir: Path, clock: Clock, producer_id_expiration_ms: int) -> None:
        self._data_dir = data_dir
        self._checkpoints = OffsetCheckpoints(data_dir)
        self._clock = clock
        self._producer_id_expiration_ms = producer_id_expiration_ms
        self.logs: dict[TopicPartition, PartitionLog] = {}
        # Content of the checkpoint files when this handler started. An entry is removed when its log is opened.
        self._found: dict[TopicPartition, Checkpointed] | None = None
        self._written: dict[TopicPartition, tuple[int, int, int]] = {}
        # Deleted partitions that may still be in the checkpoint files, because writing these failed.
        self._removed: set[TopicPartition] = set()
        # Directories of interrupted deletions, by the beginning of their names; None: to be listed.
        self._doomed: dict[str, list[Path]] | None = None
        self._flusher: Flusher[PartitionLog, FlushJob] = Flusher()
        # Logs with a due time for their flush, or that had one at the last tick.
        self._unflushed: set[TopicPartition] = set()
        self._checkpointer: Flusher[None, _CheckpointJob] = Flusher()
        # Logs whose idle producers are still to be expired.
        self._to_expire: list[PartitionLog] = []
        now_ns = clock.monotonic_ns()
        self._checkpoint_due_ns = now_ns + CHECKPOINT_INTERVAL_NS
        self._expire_due_ns = now_ns + EXPIRE_INTERVAL_NS
        #: Whether the previous run of the broker has closed the logs cleanly.
        self.is_clean_start = False
        #: Cached producers of all partitions, as of the last checkpoint.
        self.producer_ids = 0

    def open(self, name: PartitionName, config: LogConfig, published: PublishedEnd | None) -> PartitionLog:
        """Open or create a log; `published` is the killed predecessor's end in shared memory, if there was one.

        Raises LogDamaged or OSError; the partition is then offline.
        """
        directory = self._data_dir / name.directory_name
        key = (name.topic, name.partition)
        try:
            is_known = claim_directory(directory, name)
        except TopicIdMismatch as error:
            raise LogDamaged(str(error)) from error
        found = self._checkpointed().pop(key, Checkpointed())
        if self.is_clean_start:
            found = found._replace(is_gapless=found.is_gapless and not config.compacts)
        elif is_known:
            found = found._replace(is_exact=False, is_gapless=False)
        else:
            # The checkpoint of a deleted topic with the same name.
            found = Checkpointed()
        if published is not None:
            published = published._replace(recovery_point=found.recovery_point)
        log = PartitionLog.open(
            directory, name, config, self._clock, published or found, self._producer_id_expiration_ms
        )
        self.logs[key] = log
        log.on_flush_due(partial(self._unflushed.add, key))
        return log

    def forget_checkpoints(self, keys: Collection[TopicPartition]) -> None:
        """Remove deleted partitions from the checkpoints: a later topic of that name must not inherit their entries.

        On a full disk the files are written after the deletion of logs has freed space; until then the topic id
        prevents the use of the old entries.
        """
        # A checkpoint that is being written has these partitions, and must not overwrite the one written here.
        self._finish_checkpoint(wait=True)
        found = self._checkpointed()
        stored = [key for key in keys if key in self._written or key in found]
        for key in stored:
            found.pop(key, None)
            self._written.pop(key, None)
        self._removed.update(stored)
        if self._removed:
            try:
                _CheckpointJob(self._checkpoints, {}, self._removed).run()
            except OSError as error:
                self._log_failed_checkpoint(error)
            else:
                self._removed.clear()

    def delete(self, name: PartitionName) -> None:
        """Delete a partition's log, open or not, and its leftovers; a missing log is no error. Raises OSError.

        A log of the same name with another topic id belongs to a newer topic, and stays. After an error the call may be
        repeated.
        """
        key = (name.topic, name.partition)
        directory = self._data_dir / name.directory_name
        try:
            if directory.exists():
                if read_topic_id(directory) in {name.topic_id, None}:
                    self._remove(key, directory)
                    return
            else:
                self.forget_checkpoints([key])
            if self._doomed is None:
                # Interrupted deletions of a predecessor; later ones are this process's own.
                self._doomed = doomed_directories(self._data_dir)
            for doomed in self._doomed.pop(doomed_name(directory), ()):
                shutil.rmtree(doomed)
        except OSError:
            self._doomed = None
            raise

    def _remove(self, key: TopicPartition, directory: Path) -> None:
        log = self.logs.pop(key, None)
        self.forget_checkpoints([key])
        if log is not None:
            log.delete()
        else:
            remove_directory(directory)

    def expire_producers_after(self, expiration_ms: int) -> None:
        """Set the expiration time of idle producers in every log."""
        if expiration_ms == self._producer_id_expiration_ms:
            return
        self._producer_id_expiration_ms = expiration_ms
        for log in self.logs.values():
            log.producer_id_expiration_ms = expiration_ms

    def tick(self) -> None:
        """Run due tasks: flush logs, write checkpoints, expire idle producers."""
        now_ns = self._clock.monotonic_ns()
        self._finish_flushes()
        if self._unflushed and not self._flusher.is_busy:
            due = self._next_due(now_ns)
            if due:
                self._flusher.start([(log, log.begin_flush()) for log in due])
        self._finish_checkpoint()
        if now_ns >= self._checkpoint_due_ns and not self._checkpointer.is_busy:
            self._checkpoint_due_ns = now_ns + CHECKPOINT_INTERVAL_NS
            self._begin_checkpoint()
        if now_ns >= self._expire_due_ns:
            self._expire_due_ns = now_ns + EXPIRE_INTERVAL_NS
            self._to_expire = list(self.logs.values())
        while self._to_expire and self._clock.monotonic_ns() - now_ns < _EXPIRE_NS:
            self._to_expire.pop().expire_producers()

    def wait_for_flushes(self) -> None:
        """Wait until the flushes and checkpoints that `tick` has begun are durable."""
        self._finish_flushes(wait=True)
        self._finish_checkpoint(wait=True)

    def _next_due(self, now_ns: int) -> list[PartitionLog]:
        """Return the logs whose flush is due, and look again only at those with a later due time."""
        due: list[PartitionLog] = []
        later: set[TopicPartition] = set()
        for key in self._unflushed:
            log = self.logs.get(key)
            due_ns = None if log is None else log.flush_due_ns()
            if log is None or due_ns is None:
                continue
            if due_ns <= now_ns:
                due.append(log)
            else:
                later.add(key)
        self._unflushed.intersection_update(later)
        return due

    def _finish_flushes(self, *, wait: bool = False) -> None:
        for log, job, error in self._flusher.finished(wait=wait):
            log.end_flush(job, error)

    def checkpoint(self) -> None:
        """Write recovery points, log starts and log ends to the checkpoint files, if any of them changed."""
        self._finish_checkpoint(wait=True)
        self._begin_checkpoint()
        self._finish_checkpoint(wait=True)

    def _begin_checkpoint(self) -> None:
        self.producer_ids = sum([log.producer_ids for log in self.logs.values()])
        offsets = {
            key: (log.recovery_point, log.log_start_offset, log.log_end_offset) for key, log in self.logs.items()
        }
        if offsets != self._written or self._removed:
            self._checkpointer.start([(None, _CheckpointJob(self._checkpoints, offsets, frozenset(self._removed)))])

    def _finish_checkpoint(self, *, wait: bool = False) -> None:
        for _, job, error in self._checkpointer.finished(wait=wait):
            if error is None:
                self._written = job.offsets
                self._removed -= job.removed
            else:
                self._log_failed_checkpoint(error)

    def _log_failed_checkpoint(self, error: OSError) -> None:
        """Log a failed checkpoint. The controller logs when the disk is full and when it has space again."""
        level = logging.DEBUG if error.errno in NO_ROOM else logging.WARNING
        _log.log(level, "No checkpoint in %s: %s", self._data_dir, error)

    def close(self, *, clean: bool = True, moves: bool = False) -> None:
        """Close every log; `clean` makes all logs durable and records that in the checkpoints.

        See `CommittedLog.close`.
        """
        self.wait_for_flushes()
        for log in self.logs.values():
            try:
                log.close(clean=clean, moves=moves)
            except (OSError, LogWriteFailed) as error:
                _log.error("%s: not closed cleanly: %s", log.directory, error)
        if clean:
            self.checkpoint()
        self.logs = {}

    # ---- checkpoint files ----------------------------------------------------------------------------------------

    def _checkpointed(self) -> dict[TopicPartition, Checkpointed]:
        if self._found is None:
            recovery_points, starts, ends, compacted = self._checkpoints.read(*_FILES, CLEANER_FILE)
            self._found = {
                key: Checkpointed(
                    recovery_points.get(key, 0),
                    starts.get(key, 0),
                    ends.get(key, 0),
                    # Kafka omits the log start of a log that begins with its first segment.
                    is_exact=key in recovery_points and key in starts,
                    is_gapless=key in recovery_points and key in starts and key not in compacted,
                )
                for key in recovery_points.keys() | starts.keys()
            }
        return self._found


def orphan_directories(data_dir: Path, known: Mapping[str, bytes]) -> list[Path]:
    """Return the partition directories of unknown topics; they are reported and left unchanged.

    `known` maps the name of each partition's directory to its topic id. Errors inside a directory with a known name are
    detected by the owner of the partition.
    """
    orphans = []
    known_ids = set(known.values())
    for entry in sorted(data_dir.iterdir()):
        if entry.is_dir() and not entry.name.endswith(DELETE_SUFFIX) and entry.name not in known:
            topic_id = read_topic_id(entry)
            if topic_id is not None and topic_id not in known_ids:
                orphans.append(entry)
    return orphans
