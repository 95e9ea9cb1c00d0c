"""The records of `__share_group_state`, and the state of a share partition that they hold.

Pure. A snapshot has the whole state; the updates after it, with its epoch, have the changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from rotunda.broker.coordinator.records import Record, RecordType
from rotunda.broker.partitions.share.delivery import DeliveryCounts, DeliveryState, StateBatch, merge_batches

SHARE_SNAPSHOT: Final = RecordType("ShareSnapshot")
SHARE_UPDATE: Final = RecordType("ShareUpdate")

#: Start offset of a partition that no consumer has read yet: `share.auto.offset.reset` decides.
NOT_RESOLVED: Final = -1

_VERSION: Final = 0

#: The states in records, and a limit of the count of deliveries, which responses have in 16 bits.
_STORED: Final = frozenset(map(int, DeliveryState)) - {int(DeliveryState.ACQUIRED)}
_MOST_COUNTED: Final = 2**15 - 1

_snapshot_batch = SHARE_SNAPSHOT.element_class("state_batches")
_update_batch = SHARE_UPDATE.element_class("state_batches")

#: Memory of a stored state, and of each batch in it.
STATE_BYTES: Final = 600
BATCH_BYTES: Final = 170


class SharePlace(NamedTuple):
    """A partition of a topic, for which a group has state."""

    topic_id: bytes
    partition: int


class StoredState:
    """The stored state of a share partition."""

    __slots__ = (
        "batches",
        "complete_count",
        "counts",
        "created_ms",
        "snapshot_epoch",
        "snapshot_from",
        "start_offset",
        "state_epoch",
        "updates",
        "written_ms",
    )

    def __init__(self, state_epoch: int, start_offset: int, snapshot_epoch: int, created_ms: int) -> None:
        self.state_epoch, self.start_offset = state_epoch, start_offset
        self.snapshot_epoch, self.created_ms = snapshot_epoch, created_ms
        #: Ended records at or after the start offset; -1 if unknown.
        self.complete_count = 0
        self.batches: list[StateBatch] = []
        #: Updates since the snapshot.
        self.updates = 0
        #: An offset of the log at or before the snapshot, and the time of the last record.
        self.snapshot_from, self.written_ms = 0, created_ms
        self.counts = DeliveryCounts()

    @property
    def memory_bytes(self) -> int:
        """Memory of the Python objects."""
        return STATE_BYTES + BATCH_BYTES * len(self.batches)

    def merge(self, start_offset: int, complete_count: int, batches: Iterable[StateBatch]) -> None:
        """Apply an update; the start offset never decreases."""
        self.start_offset = max(self.start_offset, start_offset)
        self.complete_count = complete_count
        self.batches = merge_batches(self.batches, batches, self.start_offset)
        self.updates += 1

    def snapshot(self, group_id: str, place: SharePlace, now_ms: int) -> Record:
        """Return a record with the whole state."""
        value = {
            "snapshot_epoch": self.snapshot_epoch,
            "state_epoch": self.state_epoch,
            "leader_epoch": 0,
            "start_offset": self.start_offset,
            "delivery_complete_count": self.complete_count,
            "create_timestamp": self.created_ms,
            "write_timestamp": now_ms,
            "state_batches": [
                _snapshot_batch(first_offset=first, last_offset=last, delivery_state=state, delivery_count=count)
                for first, last, state, count in self.batches
            ],
        }
        return SHARE_SNAPSHOT.key(**_key(group_id, place)), SHARE_SNAPSHOT.value(_VERSION, value)

    def update(self, group_id: str, place: SharePlace, batches: Sequence[StateBatch]) -> Record:
        """Return a record with changed batches, after they were merged."""
        value = {
            "snapshot_epoch": self.snapshot_epoch,
            "leader_epoch": 0,
            "start_offset": self.start_offset,
            "delivery_complete_count": self.complete_count,
            "state_batches": [
                _update_batch(first_offset=first, last_offset=last, delivery_state=state, delivery_count=count)
                for first, last, state, count in batches
            ],
        }
        return SHARE_UPDATE.key(**_key(group_id, place)), SHARE_UPDATE.value(_VERSION, value)


def tombstone(group_id: str, place: SharePlace) -> Record:
    """Return the record that deletes a share partition's state."""
    return SHARE_SNAPSHOT.key(**_key(group_id, place)), None


def state_of(value: Any) -> StoredState:
    """Return the state in a snapshot. Raises ValueError for an impossible one."""
    if value.start_offset < NOT_RESOLVED:
        raise ValueError(f"start offset {value.start_offset}")
    state = StoredState(value.state_epoch, value.start_offset, value.snapshot_epoch, value.create_timestamp)
    state.complete_count = value.delivery_complete_count
    state.batches = merge_batches((), batches_of(value), value.start_offset)
    return state


def batches_of(value: Any) -> list[StateBatch]:
    """Return the batches in the value of a record. Raises ValueError for an impossible one."""
    batches = [
        StateBatch(each.first_offset, each.last_offset, each.delivery_state, each.delivery_count)
        for each in value.state_batches
    ]
    for each in batches:
        if not (0 <= each.first <= each.last and each.state in _STORED and 0 <= each.delivery_count < _MOST_COUNTED):
            raise ValueError(f"impossible {each}")
    return batches


def _key(group_id: str, place: SharePlace) -> dict[str, Any]:
    return {"group_id": group_id, "topic_id": place.topic_id, "partition": place.partition}
