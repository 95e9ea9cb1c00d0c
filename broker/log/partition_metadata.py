"""Which partition a directory holds: its name, and the `partition.metadata` file with the topic id (KIP-516)."""

import base64
from pathlib import Path
from typing import NamedTuple

from broker.errors import RotundaError
from broker.log.checkpoints import replace_file

FILE_NAME = "partition.metadata"
VERSION = 0


class PartitionName(NamedTuple):
    """Which partition, and of which topic: an id that no later topic of the same name has."""

    topic: str
    partition: int
    topic_id: bytes

    @property
    def directory_name(self) -> str:
        """Name of its directory in the data directory."""
        return f"{self.topic}-{self.partition}"


class TopicIdMismatch(RotundaError):  # noqa: N818  # said as it is
    """A directory belongs to another topic than the one it is named after."""


def claim_directory(directory: Path, name: PartitionName) -> None:
    """Make `directory` the partition's, and exist, if it is nobody's. Raises TopicIdMismatch, OSError."""
    directory.mkdir(parents=True, exist_ok=True)
    topic_id = read_topic_id(directory)
    if topic_id is None:
        write_topic_id(directory, name.topic_id)
    elif topic_id != name.topic_id:
        raise TopicIdMismatch(f"{directory} belongs to topic id {topic_id.hex()}, not {name.topic_id.hex()}")


def read_topic_id(directory: Path) -> bytes | None:
    """Return the topic id (16 bytes) that the directory belongs to; None if it does not say, or not legibly."""
    try:
        lines = (directory / FILE_NAME).read_text().splitlines()
    except FileNotFoundError:
        return None
    fields = dict(line.split(": ", 1) for line in lines if ": " in line)
    try:
        topic_id = base64.urlsafe_b64decode(fields.get("topic_id", "") + "==")
    except ValueError:
        return None
    return topic_id if len(topic_id) == 16 else None


def write_topic_id(directory: Path, topic_id: bytes) -> None:
    """Say which topic the directory belongs to."""
    text = base64.urlsafe_b64encode(topic_id).decode().rstrip("=")
    replace_file(directory / FILE_NAME, f"version: {VERSION}\ntopic_id: {text}", durable=False)
