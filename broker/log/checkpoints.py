"""Kafka's small text files: offset checkpoints of a data directory and the leader epochs of a partition.

All have one form: a version line, a line with the number of entries, one entry a line. A file is replaced as a whole
(written to a temporary file, synced, renamed), so a reader sees the old or the new content and never a mixture. Any
other content is damage, and every kind of damage raises CheckpointCorruptError.
"""

import logging
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from rotunda.broker.log.segments.segment_files import read_file, remove_if_there

VERSION = 0

RECOVERY_POINT_FILE = "recovery-point-offset-checkpoint"
LOG_START_OFFSET_FILE = "log-start-offset-checkpoint"
HIGH_WATERMARK_FILE = "replication-offset-checkpoint"
#: Offset up to which each partition has been compacted. A partition without an entry has a batch for every offset.
CLEANER_FILE = "cleaner-offset-checkpoint"

_log = logging.getLogger(__name__)


class CheckpointCorruptError(ValueError):
    """A checkpoint file cannot be parsed."""


def replace_file(path: Path, content: str, *, durable: bool = True) -> None:
    """Replace the content of a file atomically. Raises OSError: the file is unchanged then.

    `durable`: the new content also survives a power failure. A directory of that name is renamed: it cannot be
    replaced, and this broker did not create it.
    """
    temporary = path.with_name(path.name + ".tmp")
    try:
        _write(temporary, content.encode(), durable=durable)
        if path.is_dir():
            set_aside(path)
        temporary.replace(path)
    except OSError:
        remove_if_there(temporary)
        raise


def _write(path: Path, content: bytes, *, durable: bool) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
    try:
        # A nearly full disk writes a part of the data; the next write fails.
        while content:
            content = content[os.write(fd, content) :]
        if durable:
            os.fsync(fd)
    finally:
        os.close(fd)


def set_aside(path: Path) -> Path:
    """Rename an unusable file to a name that is never read, and return the new path."""
    aside = unused_aside(path)
    path.rename(aside)
    _log.warning("%s is damaged; renamed to %s", path, aside.name)
    return aside


def unused_aside(path: Path) -> Path:
    """Return a name beside a damaged file that is never read, for its content."""
    number = 1
    while (aside := path.with_name(f"{path.name}.damaged-{number}")).exists():
        number += 1
    return aside


def write_lines(path: Path, lines: Sequence[str], *, durable: bool = True) -> None:
    """Replace a checkpoint file with these entries. Raises OSError."""
    replace_file(path, text_of(lines), durable=durable)


def text_of(lines: Sequence[str]) -> str:
    """Return the content of a checkpoint file with these entries."""
    return "".join(f"{line}\n" for line in (VERSION, len(lines), *lines))


def read_lines(path: Path) -> list[str]:
    """Return the entries of a checkpoint file; none if the file is missing. Raises CheckpointCorruptError."""
    try:
        lines = read_file(path).decode().splitlines()
    except FileNotFoundError:
        return []
    except (OSError, UnicodeDecodeError) as error:
        raise CheckpointCorruptError(f"{path}: {error}") from error
    if len(lines) < 2:
        raise CheckpointCorruptError(f"{path}: {len(lines)} lines, expected two or more")
    if lines[0] != str(VERSION):
        raise CheckpointCorruptError(f"{path}: version {lines[0]!r} is not {VERSION}")
    if lines[1] != str(len(lines) - 2):
        raise CheckpointCorruptError(f"{path}: {lines[1]!r} entries announced, {len(lines) - 2} found")
    return lines[2:]


def read_offsets(path: Path) -> dict[tuple[str, int], int]:
    """Return (topic, partition) -> offset. Raises CheckpointCorruptError."""
    offsets = {}
    for line in read_lines(path):
        try:
            topic, partition, offset = line.split()
            index, number = int(partition), int(offset)
        except ValueError as error:
            raise CheckpointCorruptError(f"{path}: malformed line {line!r}") from error
        offsets[topic, index] = number
        if index < 0 or number < 0:
            raise CheckpointCorruptError(f"{path}: a negative number in {line!r}")
    return offsets


def write_offsets(path: Path, offsets: Mapping[tuple[str, int], int]) -> None:
    """Replace an offset checkpoint."""
    write_lines(path, offset_lines(offsets))


def offset_lines(offsets: Mapping[tuple[str, int], int]) -> list[str]:
    """Return the entries of an offset checkpoint."""
    return [f"{topic} {partition} {offset}" for (topic, partition), offset in sorted(offsets.items())]
