"""The offset checkpoints of a data directory; every handler writes the entries of its own partitions.

Runs in handler processes. A file lock serialises them; the kernel releases it when a handler is killed. Kafka's files
have no checksum, and one wrong digit can hide records or leave them unchecked; so a separate file holds the checksums.
It is written first and has two for each file, of the old and of the new content: even after a crash at any moment, a
file that matches neither was changed by another program. Such a file is ignored, which costs time at the start, and may
expose records again that DeleteRecords had hidden. Without the file of checksums the checkpoints are trusted, as in a
directory that Kafka wrote.
"""

import fcntl
import logging
import os
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from rotunda.broker.log.checkpoints import (
    CheckpointCorruptError,
    offset_lines,
    read_lines,
    read_offsets,
    replace_file,
    text_of,
    write_lines,
)
from rotunda.broker.log.segments.segment_files import read_file
from rotunda.broker.records.crc import crc32c

TopicPartition = tuple[str, int]

LOCK_FILE: Final = ".checkpoint-lock"
CHECKSUMS_FILE: Final = "checkpoint-checksums"

_log = logging.getLogger(__name__)


class OffsetCheckpoints:
    """The checkpoint files of one data directory. Damage is logged, and repaired by the next `merge`."""

    def __init__(self, data_dir: Path) -> None:
        self._data_dir = data_dir

    def read(self, *names: str) -> list[dict[TopicPartition, int]]:
        """Return the content of each of these files; empty for a missing or damaged file. Raises OSError."""
        with self._locked():
            checksums = self._checksums()
            return [self._read(name, checksums) or {} for name in names]

    def merge(
        self, changed: Mapping[str, Mapping[TopicPartition, int]], removed: Collection[TopicPartition] = ()
    ) -> None:
        """Change lines of these files, by file, and remove the lines of `removed`. Raises OSError."""
        with self._locked():
            checksums = self._checksums()
            contents = {}
            for name, offsets in changed.items():
                if not offsets and self._checksum_of(name) in checksums.get(name, ()):
                    is_damaged, lines = False, self._without(name, removed)
                else:
                    is_damaged, lines = self._merged(name, offsets, removed, checksums)
                if lines is None:
                    continue
                contents[name] = text_of(lines)
                new = crc32c(contents[name].encode())
                # A damaged file must not be trusted if this process dies before it is replaced.
                checksums[name] = (new if is_damaged else self._checksum_of(name), new)
            if not contents:
                return
            lines = [f"{name} {old} {new}" for name, (old, new) in sorted(checksums.items())]
            write_lines(self._data_dir / CHECKSUMS_FILE, lines)
            for name, content in contents.items():
                replace_file(self._data_dir / name, content)

    def _merged(
        self,
        name: str,
        offsets: Mapping[TopicPartition, int],
        removed: Collection[TopicPartition],
        checksums: Mapping[str, tuple[int, int]],
    ) -> tuple[bool, list[str] | None]:
        """Return whether a file is damaged, and its new lines, or None if it needs no change."""
        before = self._read(name, checksums)
        after = {key: offset for key, offset in (before or {}).items() if key not in removed} | dict(offsets)
        return before is None, None if after == before else offset_lines(after)

    def _without(self, name: str, removed: Collection[TopicPartition]) -> list[str] | None:
        """Return the lines of an intact file without those of some partitions; None if it has none of them.

        A deletion waits for this, and there may be 10,000 lines: they are not parsed.
        """
        dropped = {f"{topic} {partition}" for topic, partition in removed}
        lines = read_lines(self._data_dir / name)
        left = [line for line in lines if line.rpartition(" ")[0] not in dropped]
        return None if len(left) == len(lines) else left

    def _read(self, name: str, checksums: Mapping[str, tuple[int, int]]) -> dict[TopicPartition, int] | None:
        """Return the content of a file, empty if it is missing, or None if it is damaged."""
        path = self._data_dir / name
        try:
            offsets = read_offsets(path)
            if name in checksums and path.exists() and self._checksum_of(name) not in checksums[name]:
                raise CheckpointCorruptError(f"{path}: wrong checksum")
        except CheckpointCorruptError as error:
            _log.warning("Ignoring a damaged checkpoint; logs are read instead: %s", error)
            return None
        if name in checksums and not path.exists():
            _log.warning("%s is missing; logs are read instead", path)
        return offsets

    def _checksums(self) -> dict[str, tuple[int, int]]:
        """Return the known checksums, two for each file."""
        path = self._data_dir / CHECKSUMS_FILE
        checksums = {}
        try:
            for line in read_lines(path):
                name, old, new = line.split()
                checksums[name] = (int(old), int(new))
        except ValueError as error:  # also a CheckpointCorruptError
            _log.warning("ignoring %s and keeping the checkpoints: %s", path, error)
            return {}
        return checksums

    def _checksum_of(self, name: str) -> int:
        try:
            return crc32c(read_file(self._data_dir / name))
        except OSError:
            return 0

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold an exclusive lock among the handlers while a few small files are written."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        fd = os.open(self._data_dir / LOCK_FILE, flags, 0o644)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            yield
        finally:
            os.close(fd)
