"""Consumer offsets to commit in a transaction, and the consumer's identity. Plain values, created by the user."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from rotunda.broker.client.topic_partition import TopicPartition

_MOST_OF_LONG: Final = (1 << 63) - 1


class OffsetAndMetadata(NamedTuple):
    """The next offset of a partition to be read by a group."""

    offset: int
    metadata: str = ""
    leader_epoch: int = -1


class ConsumerGroupMetadata(NamedTuple):
    """The group, with the consumer's member id and generation; with these, zombies are fenced (KIP-447)."""

    group_id: str
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None

    @property
    def is_named(self) -> bool:
        """Whether any field besides the group is set."""
        return self.generation_id != -1 or bool(self.member_id) or self.group_instance_id is not None


def check_offsets(offsets: Mapping[TopicPartition, OffsetAndMetadata], group: ConsumerGroupMetadata) -> None:
    """Raise TypeError or ValueError for invalid offsets; on the I/O thread no caller could receive the error."""
    if not isinstance(group, ConsumerGroupMetadata):
        raise TypeError(f"the group is {group!r:.60}: give a ConsumerGroupMetadata")
    if group.generation_id > 0 and not group.member_id:
        raise ValueError(f"{group} has a generation and no member: give both, or neither")
    for partition, place in offsets.items():
        if not isinstance(place, OffsetAndMetadata):
            raise TypeError(f"invalid offset of {partition}: {place!r:.60}, expected an OffsetAndMetadata")
        if not 0 <= place.offset <= _MOST_OF_LONG:
            raise ValueError(f"invalid offset {place.offset} of {partition}: expected 0 or more")
        if not isinstance(place.metadata, str):
            raise TypeError(f"the metadata of {partition} are {place.metadata!r:.60}: give a str")
