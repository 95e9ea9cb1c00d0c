"""Writes the records that a share group gives up to its dead letter topic (KIP-1191).

Runs in the handler that owns the group's state; the owners of the topic's partitions append. A record stays ARCHIVING
until it is written, or cannot be: after a crash it is written again. Records are encoded in steps, since there may be
thousands; the original is read only if the group copies records.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

from rotunda.broker.coordinator.share_state.acquisition import ShareLog, ShareReader
from rotunda.broker.coordinator.share_state.records import SharePlace
from rotunda.broker.errors import ApiError
from rotunda.broker.partitions.share.share_window import DeadLetter
from rotunda.broker.protocol.error_codes import ErrorCode
from rotunda.broker.protocol.primitives import INT32, read_string, string_bytes
from rotunda.broker.records.record_batch import batch_headers
from rotunda.broker.records.record_reader import iterate_records
from rotunda.broker.records.record_writer import BatchBuilder, Headers
from rotunda.broker.server_log.log_setup import RepeatedWarnings
from rotunda.broker.steps import Steps

if TYPE_CHECKING:
    from rotunda.broker.coordinator.group_coordinator import OpenNow
    from rotunda.broker.coordinator.share_state.shard import ShareGroup
    from rotunda.broker.metadata.metadata_cache import TopicInfo
    from rotunda.broker.partitions.partition_manager import PartitionManager
    from rotunda.broker.partitions.produce.partition_appender import PartitionAppender
    from rotunda.broker.scheduling.peer_tasks import TargetTasks, TaskDone
    from rotunda.broker.scheduling.timers import Timers

logger = logging.getLogger(__name__)

#: Attempts to write a batch, and the waits between them, which double.
ATTEMPTS: Final = 5
FIRST_WAIT_MS: Final = 1_000
MOST_WAIT_MS: Final = 30_000

#: Bytes of original records read at a time, and records encoded between two steps.
_READ_BYTES: Final = 1024 * 1024
_RECORDS_AT_ONCE: Final = 100

#: More than any record's key, value and headers need for their lengths.
_SPARE_BYTES: Final = 512

_ENABLED: Final = "errors.deadletterqueue.group.enable"

#: Settings of a topic that is created for dead letters.
DEAD_LETTER_TOPIC_CONFIGS: Final[Mapping[str, str]] = MappingProxyType(
    {_ENABLED: "true", "message.timestamp.type": "CreateTime"}
)

_REJECTED: Final = "Offset rejected by client."
_TOO_OFTEN: Final = "Offset delivery count exceeded the threshold."

#: Key and value of an original record.
_Original = tuple[bytes | None, bytes | None]


class Delivery(NamedTuple):
    """Dead letters of a share partition, and the remaining attempts to write them."""

    group: ShareGroup
    place: SharePlace
    letters: Sequence[DeadLetter]
    attempts: int = ATTEMPTS
    wait_ms: int = FIRST_WAIT_MS

    def again(self) -> Delivery:
        """Return the next attempt, which has to wait longer if it fails."""
        return self._replace(attempts=self.attempts - 1, wait_ms=min(2 * self.wait_ms, MOST_WAIT_MS))


class DeadLetters:
    """The dead letters of one handler's share groups."""

    def __init__(
        self,
        partitions: PartitionManager,
        tasks: TargetTasks,
        timers: Timers,
        controller: int,
    ) -> None:
        self._partitions, self._metadata = partitions, partitions.metadata
        self._tasks, self._timers, self._controller = tasks, timers, controller
        self._wall_ms = partitions.clock.wall_ms
        self._reader = ShareReader(partitions)
        self._warnings = RepeatedWarnings(logger, timers.now_ns)
        #: Records given up, and batches that could not be written.
        self.records = self.failures = 0

    def send(self, group: ShareGroup, place: SharePlace, letters: Sequence[DeadLetter]) -> None:
        """Write records that are stored as ARCHIVING, then archive them."""
        self.records += sum(each.size for each in letters)
        self._timers.in_steps(self._send(Delivery(group, place, letters)))

    def _send(self, delivery: Delivery) -> Steps[None]:
        group, place, letters = delivery[:3]
        config = self._metadata.share_group_config(group.group_id)
        source = self._metadata.topic_by_id(place.topic_id)
        name = config.errors_deadletterqueue_topic_name
        target = self._metadata.topic(name)
        complaint = self._complaint(name, target)
        if source is None or complaint:
            self._warnings.warning(
                group.group_id, "dead letters of share group %s are dropped: %s", group.group_id, complaint
            )
            self._archive(delivery, 0)
        elif target is None:
            # Tried again until the controller has created it.
            self._tasks.ask(self._controller, "create_dead_letter_topic", name.encode(), lambda _error, _payload: None)
            self._again(delivery, int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
        else:
            partition = target.partitions[place.partition % len(target.partitions)]
            log = ShareLog(source.partitions[place.partition].row, source.name, place.partition)
            originals = dict[int, _Original]()
            if config.errors_deadletterqueue_copy_record_enable:
                originals = yield from self._originals(log, letters)
            most_bytes = self._metadata.log_config(target).max_message_bytes
            encoded = _encoded(group.group_id, log, letters, originals, most_bytes - _SPARE_BYTES)
            for batch, written in encoded:
                payload = string_bytes(name) + INT32.pack(partition.index) + batch.build(self._wall_ms())
                done = partial(self._written, delivery._replace(letters=written))
                self._tasks.ask(partition.owner, "append_dead_letters", payload, done)
                yield

    def _complaint(self, name: str, target: TopicInfo | None) -> str:
        """Return why a topic cannot have dead letters; empty if it can, also if it is to be created."""
        config = self._metadata.broker_config
        if not name:
            return "the group has no dead letter topic any more"
        if not name.startswith(config.errors_deadletterqueue_topic_name_prefix):
            prefix = config.errors_deadletterqueue_topic_name_prefix
            return f"topic {name} does not begin with {prefix} (errors.deadletterqueue.topic.name.prefix)"
        if target is None:
            is_made = config.errors_deadletterqueue_auto_create_topics_enable
            return "" if is_made else f"topic {name} does not exist; create it with {_ENABLED}=true"
        is_enabled = self._metadata.log_config(target).errors_deadletterqueue_group_enable
        return "" if is_enabled else f"topic {name} needs the setting {_ENABLED}=true"

    def _written(self, delivery: Delivery, error: int, _: bytes) -> None:
        if error:
            self._again(delivery, error)
        else:
            self._archive(delivery, 0)

    def _again(self, delivery: Delivery, error: int) -> None:
        """Try again after a wait, or give up."""
        if delivery.attempts > 1:
            self._timers.after_ms(delivery.wait_ms, lambda: self._timers.in_steps(self._send(delivery.again())))
        else:
            self._archive(delivery, error)

    def _archive(self, delivery: Delivery, error: int) -> None:
        """Archive records that were written, or could not be."""
        group, place, letters = delivery[:3]
        if error:
            self.failures += 1
            self._warnings.warning(
                group.group_id, "dead letters of share group %s cannot be written: error %d", group.group_id, error
            )
        if group.shard.is_open:
            group.shard.archive(group.group_id, place, letters)

    def _originals(self, log: ShareLog, letters: Sequence[DeadLetter]) -> Steps[dict[int, _Original]]:
        """Return the originals of dead letters by offset; those that cannot be read are missing."""
        found: dict[int, _Original] = {}
        for letter in letters:
            offset = letter.first
            while offset <= letter.last:
                try:
                    data, offset = self._reader.read_from(log, offset, _READ_BYTES)
                    for position, header in batch_headers(memoryview(data)):
                        batch = memoryview(data)[position : position + header.size_bytes]
                        if not header.is_control:
                            for record in iterate_records(batch):
                                if letter.first <= record.offset <= letter.last:
                                    found[record.offset] = record.key, record.value
                        yield
                except (ApiError, OSError) as error:
                    logger.warning("dead letters of %s-%d lack their originals: %s", log.topic, log.partition, error)
                    break
        return found


def _encoded(
    group_id: str,
    log: ShareLog,
    letters: Sequence[DeadLetter],
    originals: Mapping[int, _Original],
    most_bytes: int,
) -> Iterator[tuple[BatchBuilder, list[DeadLetter]]]:
    """Yield batches of at most ``most_bytes``, each with its letters."""
    batch, written = BatchBuilder(), list[DeadLetter]()
    for letter in letters:
        first = letter.first
        for offset in range(letter.first, letter.last + 1):
            key, value = originals.get(offset, (None, None))
            size = len(key or b"") + len(value or b"")
            if size > most_bytes:
                key, value, size = None, None, 0
            if batch.count and (batch.size_bytes + size > most_bytes or batch.count >= _RECORDS_AT_ONCE):
                if first < offset:
                    written.append(letter._replace(first=first, last=offset - 1))
                yield batch, written
                batch, written, first = BatchBuilder(), [], offset
            batch.add(key, value, _headers(group_id, log, letter, offset))
        written.append(letter._replace(first=first))
    if batch.count:
        yield batch, written


def _headers(group_id: str, log: ShareLog, letter: DeadLetter, offset: int) -> Headers:
    values = {
        "topic": log.topic,
        "partition": str(log.partition),
        "offset": str(offset),
        "group": group_id,
        "delivery.count": str(letter.delivery_count),
        "message": _REJECTED if letter.is_rejected else _TOO_OFTEN,
    }
    return [(f"__dlq.errors.{name}", text.encode()) for name, text in values.items()]


class DeadLetterTasks:
    """Appends the dead letters that other handlers send to the owner of a partition."""

    def __init__(self, tasks: TargetTasks, open_now: OpenNow, appends: PartitionAppender) -> None:
        self._open_now, self._appends = open_now, appends
        tasks.register("append_dead_letters", self._append)

    def _append(self, payload: bytes, reply: TaskDone) -> None:
        topic, at = read_string(payload, 0, len(payload))
        (partition,) = INT32.unpack_from(payload, at)
        owned = self._open_now(topic, partition)
        if owned is None:
            reply(int(ErrorCode.NOT_LEADER_OR_FOLLOWER), b"")
            return
        batch = memoryview(bytearray(payload[at + INT32.size :]))
        self._appends.append_own(owned, batch, lambda error, _offset, _time: reply(error, b""))
