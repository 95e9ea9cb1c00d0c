"""A topic partition by name and number; a key throughout the client."""

from typing import NamedTuple


class TopicPartition(NamedTuple):
    """A topic partition by name and number."""

    topic: str
    partition: int
