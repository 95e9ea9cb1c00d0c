"""Kafka's small text files: offset checkpoints of a data directory and the leader epochs of a partition.

All have one form: a version line, a line with the number of entries, one entry a line. They are replaced as a
whole (written beside, made durable, renamed), so a reader sees an old or a new one and never half of one.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

VERSION = 0

RECOVERY_POINT_FILE = "recovery-point-offset-checkpoint"
LOG_START_OFFSET_FILE = "log-start-offset-checkpoint"
HIGH_WATERMARK_FILE = "replication-offset-checkpoint"


class CheckpointCorruptError(ValueError):
    """A checkpoint file that cannot be read as one."""


def replace_file(path: Path, content: str, *, durable: bool = True) -> None:
    """Give a file new content, all at once; `durable` also survives a power cut."""
    beside = path.with_name(path.name + ".tmp")
    fd = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
    try:
        os.write(fd, content.encode())
        if durable:
            os.fsync(fd)
    finally:
        os.close(fd)
    beside.replace(path)


def write_lines(path: Path, lines: Sequence[str], *, durable: bool = True) -> None:
    """Replace a checkpoint file by one with these entries."""
    replace_file(path, "".join(f"{line}\n" for line in (VERSION, len(lines), *lines)), durable=durable)


def read_lines(path: Path) -> list[str]:
    """Return the entries of a checkpoint file; none if there is no file. Raises CheckpointCorruptError."""
    try:
        lines = path.read_text().splitlines()
    except FileNotFoundError:
        return []
    if len(lines) < 2:
        return []
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
            offsets[topic, int(partition)] = int(offset)
        except ValueError as error:
            raise CheckpointCorruptError(f"{path}: malformed line {line!r}") from error
    return offsets


def write_offsets(path: Path, offsets: Mapping[tuple[str, int], int]) -> None:
    """Replace an offset checkpoint."""
    write_lines(path, [f"{topic} {partition} {offset}" for (topic, partition), offset in sorted(offsets.items())])
