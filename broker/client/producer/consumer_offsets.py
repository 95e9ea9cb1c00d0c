"""What a transaction commits of a consumer: offsets, and as whom. Plain values; the user makes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from rotunda.broker.client.topic_partition import TopicPartition

_MOST_OF_LONG: Final = (1 << 63) - 1


class OffsetAndMetadata(NamedTuple):
    """The next offset that a group reads of a partition."""

    offset: int
    metadata: str = ""
    leader_epoch: int = -1


class ConsumerGroupMetadata(NamedTuple):
    """The group, and of which member and generation the offsets are (KIP-447): with them, zombies are fenced."""

    group_id: str
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None

    @property
    def is_named(self) -> bool:
        """Whether it says more than the group."""
        return self.generation_id != -1 or bool(self.member_id) or self.group_instance_id is not None


def check_offsets(offsets: Mapping[TopicPartition, OffsetAndMetadata], group: ConsumerGroupMetadata) -> None:
    """Raise TypeError or ValueError for what no request can be made of: on the I/O thread nobody could be told."""
    if not isinstance(group, ConsumerGroupMetadata):
        raise TypeError(f"the group is {group!r:.60}: give a ConsumerGroupMetadata")
    if group.generation_id > 0 and not group.member_id:
        raise ValueError(f"{group} has a generation and no member: give both, or neither")
    for partition, place in offsets.items():
        if not isinstance(place, OffsetAndMetadata):
            raise TypeError(f"what is committed of {partition} is {place!r:.60}: give an OffsetAndMetadata")
        if not 0 <= place.offset <= _MOST_OF_LONG:
            raise ValueError(f"the offset {place.offset} of {partition} is none: give one of 0 or more")
        if not isinstance(place.metadata, str):
            raise TypeError(f"the metadata of {partition} are {place.metadata!r:.60}: give a str")
