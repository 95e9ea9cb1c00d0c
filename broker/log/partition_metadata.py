"""The partition metadata: a directory's name, and the `partition.metadata` file with the topic id (KIP-516).

The id prevents a topic from inheriting the records of an earlier topic with its name. It is in the metadata file too,
so an unreadable file is rewritten; a file with another topic's id keeps the partition offline.
"""

import base64
import logging
from pathlib import Path
from typing import NamedTuple

from rotunda.broker.errors import RotundaError
from rotunda.broker.log.checkpoints import replace_file
from rotunda.broker.log.segments.segment_files import LOG_SUFFIX, offsets_of, read_file

FILE_NAME = "partition.metadata"
VERSION = 0

_log = logging.getLogger(__name__)


class PartitionName(NamedTuple):
    """A partition and its topic, by an id that no later topic of the same name has."""

    topic: str
    partition: int
    topic_id: bytes

    @property
    def directory_name(self) -> str:
        """Name of its directory in the data directory."""
        return f"{self.topic}-{self.partition}"


class TopicIdMismatch(RotundaError):  # noqa: N818  # said as it is
    """A directory belongs to another topic than its name suggests."""


def claim_directory(directory: Path, name: PartitionName) -> bool:
    """Create or reuse `directory` for the partition; return whether it already belonged to it.

    Raises TopicIdMismatch when it belongs to another topic, OSError.
    """
    path = directory / FILE_NAME
    found = _read(directory)
    if found is None:
        directory.mkdir(exist_ok=True)
    topic_id = _topic_id_in(found)
    if topic_id == name.topic_id:
        return True
    # Ids are random: one that differs in a single character is this one, damaged.
    if topic_id is not None and _differences(_encoded(topic_id), _encoded(name.topic_id)) > 1:
        raise TopicIdMismatch(
            f"{path} has another topic id, {_encoded(topic_id)}, but topic {name.topic} has id "
            f"{_encoded(name.topic_id)}. If the records are that topic's, remove the file and start the broker again; "
            "if not, move the directory away"
        )
    has_records = bool(offsets_of(directory, LOG_SUFFIX))
    if has_records:
        problem = "is missing" if found is None else f"cannot be read as it is ({found[:80]!r})"
        _log.warning("%s %s; rewriting it for topic id %s", path, problem, _encoded(name.topic_id))
    write_topic_id(directory, name.topic_id)
    return has_records


def read_topic_id(directory: Path) -> bytes | None:
    """Return the topic id (16 bytes) of the directory; None if it is missing or unreadable."""
    return _topic_id_in(_read(directory))


def write_topic_id(directory: Path, topic_id: bytes) -> None:
    """Write the directory's topic id. Raises OSError."""
    replace_file(directory / FILE_NAME, f"version: {VERSION}\ntopic_id: {_encoded(topic_id)}", durable=False)


def _read(directory: Path) -> str | None:
    """Return the content of the file, even if unreadable as UTF-8; None if it is missing."""
    path = directory / FILE_NAME
    try:
        return read_file(path).decode(errors="backslashreplace")
    except FileNotFoundError:
        return None
    except OSError as error:
        return f"<{error.strerror}>"


def _topic_id_in(text: str | None) -> bytes | None:
    fields = dict(line.split(": ", 1) for line in (text or "").splitlines() if ": " in line)
    try:
        topic_id = base64.urlsafe_b64decode(fields.get("topic_id", "") + "==")
    except ValueError:
        return None
    return topic_id if len(topic_id) == 16 else None


def _encoded(topic_id: bytes) -> str:
    return base64.urlsafe_b64encode(topic_id).decode().rstrip("=")


def _differences(one: str, other: str) -> int:
    return sum(a != b for a, b in zip(one, other, strict=True))
