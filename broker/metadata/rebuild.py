"""Checks the metadata file against the partition directories, and rebuilds it from them on request.

Runs in the supervisor, before the file is opened for regular use. With a lost or damaged file a broker must not become
ready without topics, while its directories are full of records: the start fails instead, with instructions. Names, ids
and partitions of topics are in the directories too; settings, quotas and features are not. So a rebuilt topic keeps its
records forever until a user changes its settings, and producer ids start beyond all earlier ones.
"""

from __future__ import annotations

import logging
import os
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from rotunda.broker.errors import ApiError, BootFailed
from rotunda.broker.log.checkpoints import set_aside
from rotunda.broker.log.partition_metadata import read_topic_id
from rotunda.broker.log.segments.segment_files import LOG_SUFFIX, offsets_in
from rotunda.broker.metadata.configs.stored_values import check_readable
from rotunda.broker.metadata.store.metadata_file import (
    FORMAT,
    check_no_link,
    complete_schema,
    has_schema,
    metadata_path,
    stored_format,
)
from rotunda.broker.metadata.store.metadata_reader import MetadataReader
from rotunda.broker.metadata.store.metadata_store import MetadataStore, nothing_to_do
from rotunda.broker.metadata.topics.topic_validation import (
    CLUSTER_METADATA_TOPIC,
    check_topic_name,
    internal_topic_configs,
)
from rotunda.broker.protocol.routing import INTERNAL_TOPICS, topic_id_for
from rotunda.broker.text_table import counted

if TYPE_CHECKING:
    from rotunda.broker.config.broker_config import BrokerConfig

logger = logging.getLogger(__name__)

OPTION: Final = "metadata.rebuild"

#: Settings that keep all records, whatever the broker's settings are: the topic's own are unknown.
_KEEP_FOREVER: Final[Mapping[str, str]] = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}

#: Errors that do not mean a damaged file: a full disk, missing permissions, a lock of another process.
_NO_DAMAGE: Final = frozenset(
    {
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_PERM,
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_NOMEM,
    }
)

_TOPIC_ID_ENTROPY_BYTES: Final = 16

#: Ids are assigned one by one from 0 on: these begin beyond all assigned ones, and later rebuilds begin later.
_PRODUCER_IDS_A_MS: Final = 1024


class FoundLog(NamedTuple):
    """A partition directory with a log in it; `topic_id` is None if it cannot be read."""

    path: Path
    topic: str
    partition: int
    topic_id: bytes | None


def check_or_rebuild(config: BrokerConfig, wall_ms: int, before_change: Callable[[], None] = nothing_to_do) -> None:
    """Check that the metadata file has all partition directories' topics; rebuild it if necessary and allowed.

    A file that lacks some topics is an older copy: they are added, or listed in a warning. ``before_change`` is called
    before each change of it. Raises BootFailed when the file is lost or damaged and ``metadata.rebuild`` is not set, or
    when it cannot be read now, or is a symbolic link.
    """
    path = metadata_path(config.data_dir)
    try:
        check_no_link(path)
    except OSError as error:
        raise BootFailed(f"cannot open the metadata file {path}: {error}") from error
    found = list(_partition_directories(config.data_dir))
    try:
        topics = _topics_in(path, before_change) if _is_there(path) else {}
    except (sqlite3.Error, OSError, ValueError, TypeError, LookupError, ApiError) as error:
        if path.is_file() and getattr(error, "sqlite_errorcode", 0) & 0xFF in _NO_DAMAGE:
            raise BootFailed(f"cannot read the metadata file {path}: {error}") from error
        complaint = f"the metadata file {path} is damaged: {error}"
    else:
        if topics is None:
            return
        complaint = _complaint(path, topics, found)
        unknown = _unknown(topics, found)
    if complaint:
        unknown = found
        _reject_or_set_aside(path, complaint, found, is_allowed=config.metadata_rebuild)
    elif unknown and not config.metadata_rebuild:
        logger.warning(
            "the metadata file %s does not know the topics of %s (%s): they are not served. "
            "If it is an old copy, start once with --set %s=true: they are then topics again. Remove them otherwise",
            path,
            counted(len(unknown), "partition directory"),
            _examples(unknown),
            OPTION,
        )
        return
    if unknown:
        try:
            _rebuild(path, unknown, config, wall_ms, before_change)
        except ApiError as error:
            raise BootFailed(f"cannot rebuild the metadata file: {error.message}") from error


def _reject_or_set_aside(path: Path, complaint: str, found: list[FoundLog], *, is_allowed: bool) -> None:
    directories = counted(len(found), "partition directory")
    if not is_allowed:
        raise BootFailed(
            f"{complaint}. There is data in {directories} ({_examples(found)}). Restore a copy of the file; or "
            f"start once with --set {OPTION}=true, which rebuilds it from the directories, without the "
            "settings of topics, brokers, groups and quotas, and keeps the damaged file"
        )
    logger.warning(
        "%s; rebuilding it from %s. The settings of topics, brokers and groups, the quotas and "
        "the features are lost: set them again. The damaged file is kept",
        complaint,
        directories,
    )
    for suffix in ("", "-wal", "-shm"):
        old = path.with_name(path.name + suffix)
        if old.exists():
            set_aside(old)


def _examples(found: list[FoundLog]) -> str:
    names = [each.path.name for each in found]
    return ", ".join(names[:3]) + (" ..." if len(names) > 3 else "") or "none"


def _is_there(path: Path) -> bool:
    return path.exists() and not (path.is_file() and path.stat().st_size == 0)


def _complaint(path: Path, topics: Mapping[bytes, str], found: list[FoundLog]) -> str:
    """Return the defect of a file with these topics, as the beginning of a sentence; empty if it has none."""
    if not found:
        return ""
    if not _is_there(path):
        return f"the metadata file {path} is missing or empty"
    if not topics:
        return f"the metadata file {path} has no topics"
    for each in found:
        known = topics.get(each.topic_id or b"", each.topic)
        if known != each.topic:
            return f"the metadata file {path} is damaged: it calls the topic of {each.path.name} {known!r}"
    return ""


def _unknown(topics: Mapping[bytes, str], found: list[FoundLog]) -> list[FoundLog]:
    """Return the directories of topics that are missing from the file, by id and by name."""
    names = set(topics.values())
    return [each for each in found if each.topic_id not in topics and each.topic not in names]


def _topics_in(path: Path, before_change: Callable[[], None]) -> dict[bytes, str] | None:
    """Return the names of all topics by id, deleted ones included; None if a newer version wrote the file.

    A file of an earlier version is completed first: readers treat a file that lacks a table as not yet created. Raises
    the errors of damaged files.
    """
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        [(verdict, *_), *_] = connection.execute("PRAGMA quick_check(1)").fetchall()
        if verdict != "ok":
            raise ValueError(verdict)
        stored = stored_format(connection)
        if stored > FORMAT:
            return None
        if stored and not has_schema(connection):
            before_change()
            complete_schema(connection)
    with closing(MetadataReader(path)) as reader:
        delta = reader.read(0)
    topics = {} if delta is None else {each.topic_id: each.name for each in delta.topics}
    for name in topics.values():
        check_topic_name(name)
    return topics


def _partition_directories(data_dir: Path) -> Iterator[FoundLog]:
    """Yield the directories that hold a partition's log, by name and number.

    Kafka's controllers have a log of their own, credentials included, in a directory of the same form; it is skipped.
    Directories that Kafka removes, moves or has no replica for end with `-delete`, `-future` or `-stray`, not with a
    number.
    """
    with os.scandir(data_dir) as entries:
        directories = sorted(each.name for each in entries if each.is_dir())
    for name in directories:
        topic, _, number = name.rpartition("-")
        if topic in {"", CLUSTER_METADATA_TOPIC} or not number.isdecimal():
            continue
        path = data_dir / name
        if offsets_in(os.listdir(path), LOG_SUFFIX):
            yield FoundLog(path, topic, int(number), read_topic_id(path))


def _rebuild(
    path: Path, found: list[FoundLog], config: BrokerConfig, wall_ms: int, before_change: Callable[[], None]
) -> None:
    """Add the topics of these directories, in rows after all others. Raises ApiError, BootFailed."""
    by_topic: dict[str, list[FoundLog]] = {}
    for each in found:
        try:
            check_topic_name(each.topic)
        except ApiError as error:
            logger.warning("%s is ignored: %s", each.path, error.message)
        else:
            by_topic.setdefault(each.topic, []).append(each)
    store = MetadataStore.open(path, ephemeral=config.ephemeral, before_change=before_change, check=check_readable)
    with closing(store):
        row = max((assigned for assigned, _ in store.assigned_rows()), default=-1) + 1
        with store.transaction() as transaction:
            for topic, partitions in by_topic.items():
                count = max(each.partition for each in partitions) + 1
                configs = internal_topic_configs(topic, config) if _is_internal(topic) else dict(_KEEP_FOREVER)
                transaction.insert_topic(_id_of(topic, partitions), topic, range(row, row + count), configs)
                row += count
                logger.warning("restored topic %s with %s, settings %s", topic, counted(count, "partition"), configs)
        store.reserve_producer_ids(wall_ms * _PRODUCER_IDS_A_MS)


def _id_of(topic: str, partitions: list[FoundLog]) -> bytes:
    """Return the id in most directories of a topic, or a new one if none has an id."""
    ids = Counter(each.topic_id for each in partitions if each.topic_id is not None)
    if ids:
        return ids.most_common(1)[0][0]
    return topic_id_for(topic.encode(), os.urandom(_TOPIC_ID_ENTROPY_BYTES))


def _is_internal(topic: str) -> bool:
    return topic in INTERNAL_TOPICS
