"""The logs that one handler owns: opening, flushing, checkpointing and removing them.

Runs in handler processes. What stands in the checkpoint files, which all handlers share, is the business of
`offset_checkpoints`; a checkpoint that is missing or old costs time at the next start, never records. Those that are
due now and then are written beside the loop: they have a line for each partition there is. Only one that a deletion
needs is waited for.
"""

import logging
import shutil
from collections.abc import Collection, Mapping, Set
from pathlib import Path
from typing import NamedTuple, TypeAlias

from rotunda.broker.clock import Clock
from rotunda.broker.config.topic_config import LogConfig
from rotunda.broker.log.checkpoints import CLEANER_FILE, HIGH_WATERMARK_FILE, LOG_START_OFFSET_FILE, RECOVERY_POINT_FILE
from rotunda.broker.log.flusher import Flusher, FlushJob
from rotunda.broker.log.offset_checkpoints import OffsetCheckpoints
from rotunda.broker.log.partition_log import LogDamaged, LogWriteFailed, PartitionLog, PartitionName
from rotunda.broker.log.partition_metadata import TopicIdMismatch, claim_directory, read_topic_id
from rotunda.broker.log.recovery import Checkpointed, PublishedEnd
from rotunda.broker.log.segments.segment_files import DELETE_SUFFIX, doomed_directories, doomed_name, remove_directory

TopicPartition: TypeAlias = tuple[str, int]

CHECKPOINT_INTERVAL_NS = 60 * 1_000_000_000
EXPIRE_INTERVAL_NS = 600 * 1_000_000_000

#: How much of one tick goes into forgetting producers; the rest is done in the next ones.
_EXPIRE_NS = 5_000_000

_FILES = (RECOVERY_POINT_FILE, LOG_START_OFFSET_FILE, HIGH_WATERMARK_FILE)

_log = logging.getLogger(__name__)


class _CheckpointJob(NamedTuple):
    """Lines of the checkpoint files: by partition its recovery point, log start and log end, and what has gone."""

    checkpoints: OffsetCheckpoints
    offsets: dict[TopicPartition, tuple[int, int, int]]
    removed: Set[TopicPartition]

    def run(self) -> None:
        """Put them into the files. Raises OSError."""
        changed = {
            file_name: {key: each[number] for key, each in self.offsets.items()}
            for number, file_name in enumerate(_FILES)
        }
        self.checkpoints.merge(changed, self.removed)


class LogManager:
    """One handler's. `logs` are the open ones."""

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
        # What the checkpoint files said when this handler started, until a log is opened with it.
        self._found: dict[TopicPartition, Checkpointed] | None = None
        self._written: dict[TopicPartition, tuple[int, int, int]] = {}
        # Deleted, and perhaps still in the checkpoint files: these could not be written.
        self._removed: set[TopicPartition] = set()
        # By how their names begin, the directories whose removal was cut short; None: to be looked for.
        self._doomed: dict[str, list[Path]] | None = None
        self._flusher: Flusher[PartitionLog, FlushJob] = Flusher()
        self._checkpointer: Flusher[None, _CheckpointJob] = Flusher()
        # Logs whose idle producers are still to be forgotten.
        self._to_expire: list[PartitionLog] = []
        now_ns = clock.monotonic_ns()
        self._checkpoint_due_ns = now_ns + CHECKPOINT_INTERVAL_NS
        self._expire_due_ns = now_ns + EXPIRE_INTERVAL_NS
        #: Whether logs are opened that an earlier run of the broker has closed in order.
        self.is_clean_start = False
        #: Remembered by all partitions, as of the last checkpoint.
        self.producer_ids = 0

    def open(self, name: PartitionName, config: LogConfig, published: PublishedEnd | None) -> PartitionLog:
        """Open or create a log; `published` is what a killed predecessor left in shared memory, if there was one.

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
            # The checkpoint of a removed topic of the same name.
            found = Checkpointed()
        if published is not None:
            published = published._replace(recovery_point=found.recovery_point)
        log = PartitionLog.open(
            directory, name, config, self._clock, published or found, self._producer_id_expiration_ms
        )
        self.logs[key] = log
        return log

    def forget_checkpoints(self, keys: Collection[TopicPartition]) -> None:
        """Take partitions that are deleted out of the checkpoints: a later topic of that name must not inherit them.

        On a full disk that is written when the removal of logs has made room; until then the topic id keeps what
        stands there from being believed.
        """
        # What is being written has them, and must not be there after this.
        self._take_checkpoint(wait=True)
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
                _log.warning("No checkpoint in %s: %s", self._data_dir, error)
            else:
                self._removed.clear()

    def delete(self, name: PartitionName) -> None:
        """Remove a partition's log, open or not, and what is left of it; that there is none is fine. Raises OSError.

        A log of the same name but another topic id belongs to a topic that was created since, and stays. After an
        error it may be tried again.
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
                # What a predecessor was killed over; later ones are this process's own.
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
        """Have every log remember idle producers for this long from now on."""
        if expiration_ms == self._producer_id_expiration_ms:
            return
        self._producer_id_expiration_ms = expiration_ms
        for log in self.logs.values():
            log.producer_id_expiration_ms = expiration_ms

    def tick(self) -> None:
        """Do what is due: flush logs, write checkpoints, forget idle producers."""
        now_ns = self._clock.monotonic_ns()
        self._take_flushed()
        if not self._flusher.is_busy:
            due = [log for log in self.logs.values() if (log.flush_due_ns() or now_ns + 1) <= now_ns]
            if due:
                self._flusher.start([(log, log.begin_flush()) for log in due])
        self._take_checkpoint()
        if now_ns >= self._checkpoint_due_ns and not self._checkpointer.is_busy:
            self._checkpoint_due_ns = now_ns + CHECKPOINT_INTERVAL_NS
            self._begin_checkpoint()
        if now_ns >= self._expire_due_ns:
            self._expire_due_ns = now_ns + EXPIRE_INTERVAL_NS
            self._to_expire = list(self.logs.values())
        while self._to_expire and self._clock.monotonic_ns() - now_ns < _EXPIRE_NS:
            self._to_expire.pop().expire_producers()

    def wait_for_flushes(self) -> None:
        """Wait until what `tick` has begun to flush, or to checkpoint, is durable."""
        self._take_flushed(wait=True)
        self._take_checkpoint(wait=True)

    def _take_flushed(self, *, wait: bool = False) -> None:
        for log, job, error in self._flusher.take(wait=wait):
            log.end_flush(job, error)

    def checkpoint(self) -> None:
        """Put recovery points, log starts and log ends into the checkpoint files, if any of them changed."""
        self._take_checkpoint(wait=True)
        self._begin_checkpoint()
        self._take_checkpoint(wait=True)

    def _begin_checkpoint(self) -> None:
        self.producer_ids = sum([log.producer_ids for log in self.logs.values()])
        offsets = {
            key: (log.recovery_point, log.log_start_offset, log.log_end_offset) for key, log in self.logs.items()
        }
        if offsets != self._written or self._removed:
            self._checkpointer.start([(None, _CheckpointJob(self._checkpoints, offsets, frozenset(self._removed)))])

    def _take_checkpoint(self, *, wait: bool = False) -> None:
        for _, job, error in self._checkpointer.take(wait=wait):
            if error is None:
                self._written = job.offsets
                self._removed -= job.removed
            else:
                _log.warning("No checkpoint in %s: %s", self._data_dir, error)

    def close(self, *, clean: bool = True, moves: bool = False) -> None:
        """Close every log; `clean` makes all of it durable and says so in the checkpoints. See `CommittedLog.close`."""
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
                    # Kafka does not write where a log begins if its first segment begins there.
                    is_exact=key in recovery_points and key in starts,
                    is_gapless=key in recovery_points and key in starts and key not in compacted,
                )
                for key in recovery_points.keys() | starts.keys()
            }
        return self._found


def orphan_directories(data_dir: Path, known: Mapping[str, bytes]) -> list[Path]:
    """Return the partition directories whose topic no one knows; they are reported and left alone.

    `known` maps the name of each partition's directory to the id of its topic. What is wrong inside a directory whose
    name is known is for the owner of the partition to find out.
    """
    orphans = []
    known_ids = set(known.values())
    for entry in sorted(data_dir.iterdir()):
        if entry.is_dir() and not entry.name.endswith(DELETE_SUFFIX) and entry.name not in known:
            topic_id = read_topic_id(entry)
            if topic_id is not None and topic_id not in known_ids:
                orphans.append(entry)
    return orphans
