"""The state of one producer in a partition: its epoch, its last batches, its open transaction.

Only the owner of the partition has it, and the cleaner when it reads a snapshot. The batches stay packed, in the format
of a snapshot: most are never read again.
"""

import struct
from typing import NamedTuple

#: Number of cached batches of a producer; more cannot be in flight (`G24`).
BATCHES_TO_RETAIN = 5

NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1
NO_TRANSACTION = -1

#: Sequence numbers run from 0 to 2^31 - 1 and then start again at 0.
SEQUENCE_MASK = 2**31 - 1

#: A batch in a snapshot: the fields of `CachedBatch`.
PACKED_BATCH = struct.Struct(
    ">i"  # last sequence
    "q"  # last offset
    "i"  # offset delta
    "q"  # timestamp
)
_unpack_last_sequence = struct.Struct(">i").unpack_from
_unpack_last_offset = struct.Struct(">4xq").unpack_from

#: Largest size of a producer's older batches.
OLDER_BYTES = (BATCHES_TO_RETAIN - 1) * PACKED_BATCH.size


class CachedBatch(NamedTuple):
    """A batch of a producer."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp_ms: int

    @property
    def first_sequence(self) -> int:
        """Sequence number of the first record."""
        return (self.last_sequence - self.offset_delta) & SEQUENCE_MASK

    @property
    def first_offset(self) -> int:
        """Offset of the first record."""
        return self.last_offset - self.offset_delta


class ProducerEntry:
    """One producer id. `last` is its last batch as `PACKED_BATCH`, or empty, `older` those before it, oldest first."""

    __slots__ = (
        "coordinator_epoch",
        "current_txn_first_offset",
        "epoch",
        "last",
        "last_timestamp_ms",
        "next_sequence",
        "older",
        "producer_id",
    )

    def __init__(self, producer_id: int) -> None:
        self.producer_id = producer_id
        self.epoch = NO_PRODUCER_EPOCH
        self.coordinator_epoch = -1
        self.last_timestamp_ms = -1
        self.current_txn_first_offset = NO_TRANSACTION
        self.last = b""
        self.older = b""
        self.next_sequence = 0

    @property
    def batches(self) -> tuple[CachedBatch, ...]:
        """The cached batches of this epoch, oldest first."""
        return tuple([CachedBatch._make(batch) for batch in PACKED_BATCH.iter_unpack(self.older + self.last)])

    @property
    def last_sequence(self) -> int:
        """Sequence number of the last record written in this epoch, or -1."""
        sequence: int = _unpack_last_sequence(self.last)[0] if self.last else NO_SEQUENCE
        return sequence

    @property
    def last_offset(self) -> int:
        """Offset of the last record written in this epoch, or -1."""
        offset: int = _unpack_last_offset(self.last)[0] if self.last else -1
        return offset

    def forget_batches(self) -> None:
        """Remove the cached batches: the next batch starts a new sequence."""
        self.last = self.older = b""
        self.next_sequence = 0

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ProducerEntry):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self.__slots__)

    __hash__ = None  # type: ignore[assignment]  # mutable

    def __repr__(self) -> str:
        return f"ProducerEntry({', '.join(f'{name}={getattr(self, name)}' for name in self.__slots__)})"
