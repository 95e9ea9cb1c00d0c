"""A partition by the names that people use. Any part of a client has it as a key."""

from typing import NamedTuple


class TopicPartition(NamedTuple):
    """A partition by the names that people use."""

    topic: str
    partition: int
