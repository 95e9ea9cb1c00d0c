"""Kafka's small text files: offset checkpoints of a data directory and the leader epochs of a partition.

All have one form: a version line, a line with the number of entries, one entry a line. They are replaced as a
whole (written beside, made durable, renamed), so a reader sees an old or a new one and never half of one. Whatever
else is found is damage, and every way in which a file can be damaged is one CheckpointCorruptError.
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
#: How far each partition has been compacted: one that is not in it has a batch for every offset.
CLEANER_FILE = "cleaner-offset-checkpoint"

_log = logging.getLogger(__name__)


class CheckpointCorruptError(ValueError):
    """A checkpoint file that cannot be read as one."""


def replace_file(path: Path, content: str, *, durable: bool = True) -> None:
    """Give a file new content, all at once; `durable` also survives a power cut. Raises OSError: the old one stays.

    A directory of that name is set aside: it cannot be replaced, and is nothing of ours.
    """
    beside = path.with_name(path.name + ".tmp")
    try:
        _write(beside, content.encode(), durable=durable)
        if path.is_dir():
            set_aside(path)
        beside.replace(path)
    except OSError:
        remove_if_there(beside)
        raise


def _write(path: Path, content: bytes, *, durable: bool) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
    try:
        # A disk that is nearly full takes a part and fails with the next one.
        while content:
            content = content[os.write(fd, content) :]
        if durable:
            os.fsync(fd)
    finally:
        os.close(fd)


def set_aside(path: Path) -> Path:
    """Give what stands in a file's place another name, under which nobody looks for it, and return that."""
    number = 1
    while (aside := path.with_name(f"{path.name}.damaged-{number}")).exists():
        number += 1
    path.rename(aside)
    _log.warning("%s is damaged and now called %s", path, aside.name)
    return aside


def write_lines(path: Path, lines: Sequence[str], *, durable: bool = True) -> None:
    """Replace a checkpoint file by one with these entries. Raises OSError."""
    replace_file(path, text_of(lines), durable=durable)


def text_of(lines: Sequence[str]) -> str:
    """Return the content of a checkpoint file with these entries."""
    return "".join(f"{line}\n" for line in (VERSION, len(lines), *lines))


def read_lines(path: Path) -> list[str]:
    """Return the entries of a checkpoint file; none if there is no file. Raises CheckpointCorruptError."""
    try:
        lines = read_file(path).decode().splitlines()
    except FileNotFoundError:
        return []
    except (OSError, UnicodeDecodeError) as error:
        raise CheckpointCorruptError(f"{path}: {error}") from error
    if len(lines) < 2:
        raise CheckpointCorruptError(f"{path}: {len(lines)} lines, where two are the least")
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
