"""The reader of the cluster's metadata: reads the changes of the file since a process's last read.

Runs in every process except in the controller's writer (`metadata_store`), which it never blocks: in WAL mode a reader
sees whole changes only. Independent of Kafka's rules.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from rotunda.broker.metadata.store.entity_store import (
    RECORDED_CHANGES,
    Entities,
    EntityKind,
    read_changed_entities,
    read_entities,
)
from rotunda.broker.metadata.store.metadata_file import BUSY_TIMEOUT_S, decode_configs, has_schema, state_of
from rotunda.broker.steps import ELEMENTS_AT_ONCE, Steps, finished

_ROWS_AT_ONCE = ELEMENTS_AT_ONCE


class TopicRecord(NamedTuple):
    """A topic as stored. ``rows`` holds (partition, row in the partition table), in order of partitions."""

    topic_id: bytes
    name: str
    deleted: bool
    configs: Mapping[str, str]
    rows: tuple[tuple[int, int], ...]


class MetadataDelta(NamedTuple):
    """The result of a read. ``complete``: these are all topics, not only the changed ones.

    ``broker_configs`` maps a broker id as text ("" for the default of all brokers) to that broker's settings.
    ``entities`` has all entities of a kind, ``changed_entities`` the changed ones: without values if they were deleted.
    """

    version: int
    complete: bool
    topics: list[TopicRecord]
    broker_configs: dict[str, dict[str, str]]
    entities: Mapping[EntityKind, Entities] = {}
    changed_entities: Mapping[EntityKind, Entities] = {}


class MetadataReader:
    """A reading connection, opened at its first use. The file may not exist yet."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._connection: sqlite3.Connection | None = None
        #: A second connection for look-ups: the first may be in the middle of a read, and sees the state at its
        #: beginning.
        self._asking: sqlite3.Connection | None = None

    def read(self, since: int, *, with_topics: bool = True) -> MetadataDelta | None:
        """Return the changes after change ``since``, tombstones included, or None if there are none."""
        return finished(self.read_in_steps(since, with_topics=with_topics))

    def read_in_steps(self, since: int, *, with_topics: bool = True) -> Steps[MetadataDelta | None]:
        """Run `read` in steps, with the state at the first step; no other read may run before the last."""
        connection = self._connection = self._connection or self._connect()
        if connection is None:
            return None
        connection.execute("BEGIN")
        try:
            version = state_of(connection, "change")
            if version <= since:
                return None
            complete = since == 0 or since < state_of(connection, "floor")
            topics = (yield from _read_topics(connection, 0 if complete else since)) if with_topics else []
            configs = _read_broker_configs(connection)
            if since == 0 or since < version - RECORDED_CHANGES:
                # A new file has entities at change 0.
                entities = yield from read_entities(connection, since or -1)
                return MetadataDelta(version, complete, topics, configs, entities=entities)
            changed = yield from read_changed_entities(connection, since)
            return MetadataDelta(version, complete, topics, configs, changed_entities=changed)
        finally:
            connection.execute("COMMIT")

    def is_assigned_to(self, row: int, topic_id: bytes) -> bool:
        """Return whether a row of the partition table is recorded for a partition of this topic."""
        connection = self._asking = self._asking or self._connect()
        query = "SELECT 1 FROM partitions WHERE table_row = ? AND topic_id = ?"
        return connection is not None and connection.execute(query, (row, topic_id)).fetchone() is not None

    def close(self) -> None:
        """Close the open connections."""
        for connection in filter(None, (self._connection, self._asking)):
            connection.close()
        self._connection = self._asking = None

    def _connect(self) -> sqlite3.Connection | None:
        if self._path.exists():
            connection = sqlite3.connect(
                f"{self._path.absolute().as_uri()}?mode=ro",
                uri=True,
                timeout=BUSY_TIMEOUT_S,
                isolation_level=None,
            )
            try:
                is_made = has_schema(connection)
            except sqlite3.OperationalError:
                if self._path.exists():
                    raise
                is_made = False
            if is_made:
                return connection
            connection.close()
        return None


def partition_counts(path: Path, topics: Sequence[str]) -> dict[str, int]:
    """Return the number of partitions of each of these topics that exists."""
    reader = MetadataReader(path)
    delta = reader.read(0)
    reader.close()
    found = delta.topics if delta is not None else []
    return {topic.name: len(topic.rows) for topic in found if not topic.deleted and topic.name in topics}


def _read_topics(connection: sqlite3.Connection, since: int) -> Steps[list[TopicRecord]]:
    rows: dict[bytes, list[tuple[int, int]]] = {}
    query = (
        "SELECT topic_id, partition, table_row FROM topics CROSS JOIN partitions USING (topic_id) "
        "WHERE change > ? ORDER BY topic_id, partition"
    )
    read = connection.execute(query, (since,))
    while some := read.fetchmany(_ROWS_AT_ONCE):
        for topic_id, partition, row in some:
            rows.setdefault(topic_id, []).append((partition, row))
        yield
    found = connection.execute(
        "SELECT topic_id, name, deleted, configs FROM topics WHERE change > ? ORDER BY change, name", (since,)
    )
    topics: list[TopicRecord] = []
    while some := found.fetchmany(_ROWS_AT_ONCE):
        topics += [
            TopicRecord(topic_id, name, bool(deleted), decode_configs(configs), tuple(rows.get(topic_id, ())))
            for topic_id, name, deleted, configs in some
        ]
        yield
    return topics


def _read_broker_configs(connection: sqlite3.Connection) -> dict[str, dict[str, str]]:
    configs: dict[str, dict[str, str]] = {}
    for broker, name, value in connection.execute("SELECT broker, name, value FROM broker_configs ORDER BY name"):
        configs.setdefault(broker, {})[name] = value
    return configs
