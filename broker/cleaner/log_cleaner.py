"""The cleaner's round: removes expired segments, compacts the dirtiest partition, removes files marked as deleted.

Runs in the cleaner process. Partitions are independent: an error in one is logged and does not delay the others. A
partition with inseparable batches is skipped until the process restarts, as in Kafka; single unreadable batches are
kept unchanged, and logged once. A partition is postponed after a disk error or a rejection by its owner, until no other
partition is due.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from rotunda.broker.cleaner.clean_offsets import CleanOffsets
from rotunda.broker.cleaner.cleanable import Cleanable, cleanable
from rotunda.broker.cleaner.compaction import Compaction, CompactionStats, Limits, SettingsChanged
from rotunda.broker.cleaner.deleted_files import remove_doomed
from rotunda.broker.cleaner.retention import retained_from
from rotunda.broker.cleaner.segments import Published, SegmentedLog, look_at
from rotunda.broker.errors import ApiError
from rotunda.broker.log.owner_tasks import BYTES, RETAIN, SWAP
from rotunda.broker.log.segments.segment_swap import SegmentSwap
from rotunda.broker.protocol.error_codes import ErrorCode
from rotunda.broker.text_table import counted
from rotunda.shm.tables.partitions import STATE_OPEN

if TYPE_CHECKING:
    from pathlib import Path

    from rotunda.broker.clock import Clock
    from rotunda.broker.config.topic_config import LogConfig
    from rotunda.broker.metadata.metadata_cache import MetadataCache
    from rotunda.shm.tables.partitions import PartitionTable

logger = logging.getLogger(__name__)

#: Sends a task to the owner of a partition: (owner, task, payload) to (error code, response).
Ask = Callable[[int, str, bytes], tuple[int, bytes]]


class Counters:
    """Totals since the start, by metric name."""

    def __init__(self) -> None:
        self.values = dict.fromkeys(
            ("segments_deleted", "bytes_deleted", "compactions", "compaction_ns", "bytes_read", "bytes_written",
             "records_removed"), 0
        )  # fmt: skip
        self.max_dirty_percent = 0
        self.last_look_ms = 0

    def add(self, stats: CompactionStats) -> None:
        """Add the statistics of a compaction round."""
        self.values["bytes_read"] += stats.bytes_read
        self.values["bytes_written"] += stats.bytes_written
        self.values["records_removed"] += stats.records_removed


class Place(NamedTuple):
    """One open partition."""

    topic: str
    topic_id: bytes
    partition: int
    row: int
    owner: int
    directory: Path
    config: LogConfig

    @property
    def key(self) -> tuple[str, int]:
        """Topic and partition, as in checkpoints."""
        return self.topic, self.partition


class LogCleaner:
    """The partitions of one broker. `refresh` updates `metadata`."""

    def __init__(
        self, metadata: MetadataCache, partitions: PartitionTable, clock: Clock, ask: Ask, pause: Callable[[int], None]
    ) -> None:
        self._metadata = metadata
        self._partitions = partitions
        self._clock = clock
        self._ask = ask
        self._pause = pause
        self._data_dir = metadata.broker_config.data_dir
        self._clean_offsets = CleanOffsets(self._data_dir)
        self.uncleanable: set[tuple[str, int]] = set()
        self._postponed: set[tuple[str, int]] = set()
        #: The last batch that was logged as unreadable, by partition.
        self._named: dict[tuple[str, int], int] = {}
        self.counters = Counters()

    def refresh(self) -> None:
        """Apply the controller's metadata changes."""
        deleted = {(topic.name, partition.index) for topic, partition in self._metadata.refresh().deleted}
        self.uncleanable -= deleted
        for key in deleted:
            self._named.pop(key, None)
        self._clean_offsets.forget(deleted)

    # ---- retention -------------------------------------------------------------------------------------------------

    def apply_retention(self) -> None:
        """Send every owner a task to remove its expired segments and those below the log start."""
        for place in self._places():
            try:
                self._retain(place)
            except FileNotFoundError:
                continue  # deleted meanwhile, or about to be
            except OSError as error:
                logger.error("%s: cannot check retention: %s", place.directory.name, error)
            self._pause(0)

    def _retain(self, place: Place) -> None:
        log = self._look_at(place)
        offset = retained_from(log, place.config, self._clock.wall_ms())
        segments = (*log.rolled, log.active)
        if offset <= segments[0].base_offset:
            return
        task = RETAIN.pack(place.row, offset, *place.config.retention)
        error, reply = self._ask(place.owner, "retain_log", task)
        if error:
            return
        (removed_bytes,) = BYTES.unpack(reply)
        if removed_bytes:
            self.counters.values["segments_deleted"] += sum(each.end_offset <= offset for each in segments)
            self.counters.values["bytes_deleted"] += removed_bytes
            logger.info("%s: removed %d bytes below offset %d", place.directory.name, removed_bytes, offset)

    # ---- compaction ------------------------------------------------------------------------------------------------

    def compact_dirtiest(self) -> bool:
        """Compact the dirtiest partition; False if none is due, or the round failed."""
        now_ms = self._clock.wall_ms()
        self.counters.last_look_ms = now_ms
        best: tuple[float, Place, SegmentedLog, Cleanable] | None = None
        largest_ratio = 0.0
        for place in self._places():
            if not place.config.compacts or place.key in self.uncleanable or place.key in self._postponed:
                continue
            try:
                log = self._look_at(place)
                found = cleanable(log, self._clean_offsets.of(place.key, place.topic_id), place.config, now_ms)
            except OSError:
                continue  # deleted meanwhile, or its files are being renamed
            largest_ratio = max(largest_ratio, found.dirty_ratio)
            if found.is_due(place.config) and (best is None or found.dirty_ratio > best[0]):
                best = (found.dirty_ratio, place, log, found)
        self.counters.max_dirty_percent = round(100 * largest_ratio)
        if best is None:
            self._postponed.clear()
            return False
        return self._compact(*best[1:])

    def _compact(self, place: Place, log: SegmentedLog, found: Cleanable) -> bool:
        begin_ns = self._clock.monotonic_ns()
        broker_config = self._metadata.broker_config
        limits = Limits(broker_config.log_cleaner_dedupe_buffer_size, broker_config.producer_id_expiration_ms)
        rules = place.config.compaction

        def pause(size_bytes: int) -> None:
            self._pause(size_bytes)
            self._check_rules(place)

        def swap(segment_swap: SegmentSwap) -> bool:
            task = SWAP.pack(place.row, *rules) + segment_swap.pack()
            error, _ = self._ask(place.owner, "swap_segments", task)
            if error == ErrorCode.INVALID_CONFIG:
                raise SettingsChanged(place.directory.name)
            return not error

        round_ = Compaction(log, found, place.config, limits, self._clock.wall_ms(), pause)

        try:
            self._clean_offsets.begin(place.key, place.topic_id, found.first_dirty_offset)
            end_offset = round_.run(swap)
        except FileNotFoundError:
            return False  # deleted meanwhile
        except SettingsChanged:
            logger.info("%s: restarting its compaction with changed settings", place.directory.name)
            return True
        except ApiError as error:
            logger.error("%s: cannot be compacted: %s", place.directory.name, error)
            self.uncleanable.add(place.key)
            return False
        except OSError as error:
            # The disk may be full.
            logger.error("%s: compaction failed, retrying later: %s", place.directory.name, error)
            self._postponed.add(place.key)
            return False
        finally:
            self._name_unreadable(place, round_.stats.unreadable)
            self.counters.add(round_.stats)
            self.counters.values["compaction_ns"] += self._clock.monotonic_ns() - begin_ns
        if end_offset is None:
            self._postponed.add(place.key)
            return False
        self.counters.values["compactions"] += 1
        self._clean_offsets.put(place.key, place.topic_id, end_offset)
        logger.info(
            "%s: compacted up to offset %d, %s removed",
            place.directory.name,
            end_offset,
            counted(round_.stats.records_removed, "record"),
        )
        return True

    def _check_rules(self, place: Place) -> None:
        """Raise SettingsChanged if the settings of a running round no longer apply."""
        topic = self._metadata.topic_by_id(place.topic_id)
        if (
            topic is None
            or not self._metadata.broker_config.log_cleaner_enable
            or self._metadata.log_config(topic).compaction != place.config.compaction
        ):
            raise SettingsChanged(place.directory.name)

    def _name_unreadable(self, place: Place, unreadable: Mapping[int, str]) -> None:
        """Log the batches that compaction could not read, unless they were logged before."""
        last_named = self._named.get(place.key, -1)
        offsets = sorted(offset for offset in unreadable if offset > last_named)
        if not offsets:
            return
        self._named[place.key] = offsets[-1]
        logger.warning(
            "%s: compaction left out %s that cannot be read, the first at offset %d: %s",
            place.directory.name,
            counted(len(offsets), "batch"),
            offsets[0],
            unreadable[offsets[0]],
        )

    # ---- files marked as deleted -------------------------------------------------------------------------------------

    def remove_doomed_files(self) -> int | None:
        """Remove files that were marked as deleted long enough ago; return the ms until the next one is due."""
        now_ms = self._clock.wall_ms()
        waits_ms = []
        for place in self._places():
            try:
                wait_ms = remove_doomed(place.directory, place.config.file_delete_delay_ms, now_ms)
            except OSError as error:
                logger.error("%s: cannot remove files: %s", place.directory.name, error)
                continue
            if wait_ms is not None:
                waits_ms.append(wait_ms)
        return min(waits_ms, default=None)

    # ---- partitions ------------------------------------------------------------------------------------------------

    def _places(self) -> Iterator[Place]:
        for topic in self._metadata.topics():
            config = self._metadata.log_config(topic)
            for partition in topic.partitions:
                if self._partitions.state(partition.row) == STATE_OPEN:
                    directory = self._data_dir / f"{topic.name}-{partition.index}"
                    place = (topic.name, topic.topic_id, partition.index, partition.row, partition.owner)
                    yield Place(*place, directory, config)

    def _look_at(self, place: Place) -> SegmentedLog:
        table, row = self._partitions, place.row
        start_offset, stable_offset = table.read_start(row), table.read_stable(row)
        end_offset, segment_base, position = table.read_position(row)
        return look_at(place.directory, Published(start_offset, end_offset, stable_offset, segment_base, position))
