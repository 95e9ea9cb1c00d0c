"""The cluster's metadata on disk: topics, partitions and their rows, settings, quotas, in one SQLite file.

The controller process is the only writer (``MetadataStore``); every other process reads what changed since it
last looked (``MetadataReader``). WAL mode lets both go on at once: a reader sees whole changes only, and
never holds the writer up. Each change carries the next number of one counter, which is what the processes
compare to know whether they are up to date. Knows nothing of Kafka's rules: whoever calls has checked them.

A deleted topic stays as a *tombstone* until the owners of its partitions have let go of their rows in the
shared partition table; the rows of a tombstone are taken, so that nobody else is given them. When tombstones
are dropped, ``floor`` moves up to the last one: a reader that had not seen it must read everything afresh.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from broker import kept_outcomes
from broker.errors import ApiError, BootFailed
from broker.kept_outcomes import TopicOutcome
from broker.protocol.error_codes import ErrorCode
from broker.stored_entities import (
    Entities,
    EntityKind,
    StoredValue,
    ensure_schema,
    has_table,
    read_entities,
    replace_entity,
    used_bytes,
)

FORMAT = 1
FILE_NAME = "rotunda-metadata.sqlite3"

EXIT_DATA_FROM_NEWER_VERSION = 5

#: How long a statement waits for another connection's recovery of the WAL; nothing else locks a reader out.
BUSY_TIMEOUT_S = 2.0

_SCHEMA = """
CREATE TABLE state (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE topics (
    topic_id BLOB PRIMARY KEY, name TEXT NOT NULL, deleted INTEGER NOT NULL, change INTEGER NOT NULL,
    configs TEXT NOT NULL
) WITHOUT ROWID;
CREATE INDEX topics_by_change ON topics (change);
CREATE UNIQUE INDEX live_topics_by_name ON topics (name) WHERE NOT deleted;
CREATE TABLE partitions (table_row INTEGER PRIMARY KEY, topic_id BLOB NOT NULL, partition INTEGER NOT NULL);
CREATE UNIQUE INDEX partitions_by_topic ON partitions (topic_id, partition);
CREATE TABLE broker_configs (
    broker TEXT NOT NULL, name TEXT NOT NULL, value TEXT NOT NULL, PRIMARY KEY (broker, name)
) WITHOUT ROWID;
"""

_LAST_SPENT_TOMBSTONE = (
    "SELECT MAX(change) FROM topics WHERE deleted AND topic_id NOT IN (SELECT topic_id FROM partitions)"
)
_DROP_SPENT_TOMBSTONES = "DELETE FROM topics WHERE deleted AND topic_id NOT IN (SELECT topic_id FROM partitions)"

_INITIAL_STATE = (("format", FORMAT), ("change", 0), ("floor", 0), ("next_producer_id", 0))


class TopicRecord(NamedTuple):
    """A topic as stored. ``rows`` holds (partition, row in the partition table), in order of partitions."""

    topic_id: bytes
    name: str
    deleted: bool
    configs: dict[str, str]
    rows: tuple[tuple[int, int], ...]


class MetadataDelta(NamedTuple):
    """What a reader is told. ``complete``: these are all topics there are, not only the changed ones.

    ``broker_configs`` maps a broker id as text ("" for the default of all brokers) to that broker's settings.
    ``entities`` has all entities of each kind of which one has changed.
    """

    version: int
    complete: bool
    topics: list[TopicRecord]
    broker_configs: dict[str, dict[str, str]]
    entities: Mapping[EntityKind, Entities] = {}


class Transaction:
    """The statements of one change. Everything done through it becomes visible at once, or not at all."""

    def __init__(self, connection: sqlite3.Connection, change: int) -> None:
        self._connection = connection
        self.change = change

    def insert_topic(self, topic_id: bytes, name: str, rows: Sequence[int], configs: Mapping[str, str]) -> None:
        """Add a topic whose partition i takes ``rows[i]``."""
        self._connection.execute(
            "INSERT INTO topics VALUES (?, ?, 0, ?, ?)", (topic_id, name, self.change, _encode(configs))
        )
        self._insert_partitions(topic_id, 0, rows)

    def add_partitions(self, topic_id: bytes, first_partition: int, rows: Sequence[int]) -> None:
        """Add partitions from ``first_partition`` on, each with its row."""
        self._insert_partitions(topic_id, first_partition, rows)
        self._connection.execute("UPDATE topics SET change = ? WHERE topic_id = ?", (self.change, topic_id))

    def set_topic_configs(self, topic_id: bytes, configs: Mapping[str, str]) -> None:
        """Replace all settings of a topic."""
        self._connection.execute(
            "UPDATE topics SET change = ?, configs = ? WHERE topic_id = ?",
            (self.change, _encode(configs), topic_id),
        )

    def delete_topic(self, topic_id: bytes) -> None:
        """Turn a topic into a tombstone; its rows stay taken."""
        self._connection.execute(
            "UPDATE topics SET change = ?, deleted = 1 WHERE topic_id = ?", (self.change, topic_id)
        )

    def set_broker_configs(self, broker: str, configs: Mapping[str, str]) -> None:
        """Replace all settings of a broker (its id as text, or "" for the default of all brokers)."""
        self._connection.execute("DELETE FROM broker_configs WHERE broker = ?", (broker,))
        rows = [(broker, name, value) for name, value in configs.items()]
        self._connection.executemany("INSERT INTO broker_configs VALUES (?, ?, ?)", rows)

    def set_entity(self, kind: EntityKind, name: str, values: Mapping[str, StoredValue]) -> None:
        """Replace all values of a group, of a client's quota or of a feature; without any it is gone."""
        replace_entity(self._connection, self.change, kind, name, values)

    def release_rows(self, rows: Sequence[int]) -> None:
        """Forget rows of tombstones, and every tombstone that holds none any more."""
        if not rows:
            return
        self._connection.executemany("DELETE FROM partitions WHERE table_row = ?", [(row,) for row in rows])
        dropped = self._connection.execute(_LAST_SPENT_TOMBSTONE).fetchone()[0]
        if dropped is not None:
            self._connection.execute(_DROP_SPENT_TOMBSTONES)
            self._connection.execute("UPDATE state SET value = MAX(value, ?) WHERE name = 'floor'", (dropped,))

    def keep_outcomes(self, request: str, outcomes: Sequence[TopicOutcome]) -> None:
        """Put on record what this change answers to a request."""
        kept_outcomes.keep(self._connection, self.change, request, outcomes)

    def _insert_partitions(self, topic_id: bytes, first_partition: int, rows: Sequence[int]) -> None:
        partitions = [(row, topic_id, first_partition + index) for index, row in enumerate(rows)]
        self._connection.executemany("INSERT INTO partitions VALUES (?, ?, ?)", partitions)


def nothing_to_do() -> None:
    """Precede a change of which nothing is in the way."""


class MetadataStore:
    """The writing connection. One process has it at a time: the controller."""

    def __init__(self, connection: sqlite3.Connection, before_change: Callable[[], None]) -> None:
        self._connection = connection
        self._before_change = before_change
        #: While several transactions are made with one change: what ends it, and the change once it has begun.
        self._together: ExitStack | None = None
        self._shared: Transaction | None = None

    @classmethod
    def open(
        cls, path: Path, *, ephemeral: bool = False, before_change: Callable[[], None] = nothing_to_do
    ) -> MetadataStore:
        """Open the file, making it if it is not there. ``ephemeral`` data is not forced to disk.

        ``before_change`` is called before each change: it makes room on a full disk, or raises an ApiError.

        Raises BootFailed when the file is from a newer version, damaged or cannot be written.
        """
        try:
            connection = sqlite3.connect(path, timeout=BUSY_TIMEOUT_S, isolation_level=None)
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute(f"PRAGMA synchronous = {'OFF' if ephemeral else 'FULL'}")
            _ensure_schema(connection)
            ensure_schema(connection)
            kept_outcomes.ensure_table(connection)
            stored = _state(connection, "format")
        except sqlite3.Error as error:
            raise BootFailed(f"cannot open the metadata file {path}: {error}") from error
        if stored > FORMAT:
            connection.close()
            raise BootFailed(
                f"{path} was written by a newer version (format {stored}, this version reads up to {FORMAT})",
                EXIT_DATA_FROM_NEWER_VERSION,
            )
        return cls(connection, before_change)

    @property
    def entity_bytes(self) -> int:
        """What all entities take."""
        return used_bytes(self._connection)

    @property
    def change(self) -> int:
        """Number of the last committed change; 0 in a new file."""
        return _state(self._connection, "change")

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        """Yield the transaction of the next change and commit it at the end; any exception undoes all of it.

        Raises ApiError(KAFKA_STORAGE_ERROR) when the file cannot be written.
        """
        if self._together is None:
            with self._change() as transaction:
                yield transaction
            return
        if self._shared is None:
            self._shared = self._together.enter_context(self._change())
        with self._undone_alone():
            yield self._shared

    @contextmanager
    def _change(self) -> Iterator[Transaction]:
        with self._committing():
            change = _state(self._connection, "change") + 1
            yield Transaction(self._connection, change)
            self._connection.execute("UPDATE state SET value = ? WHERE name = 'change'", (change,))

    @property
    def is_together(self) -> bool:
        """Whether transactions are made with one change at present."""
        return self._together is not None

    @contextmanager
    def together(self) -> Iterator[None]:
        """Make the transactions that follow, if any, with one change. An ApiError in one of them undoes that one alone.

        Raises ApiError(KAFKA_STORAGE_ERROR) when the file cannot be written: none of them is made then.
        """
        with ExitStack() as together:
            self._together, self._shared = together, None
            try:
                yield
            finally:
                self._together = self._shared = None

    @contextmanager
    def _undone_alone(self) -> Iterator[None]:
        self._connection.execute("SAVEPOINT one")
        try:
            yield
        except BaseException:
            self._connection.execute("ROLLBACK TO one")
            raise
        finally:
            self._connection.execute("RELEASE one")

    def reserve_producer_ids(self, count: int) -> int:
        """Return the first of ``count`` producer ids that were never handed out and are now reserved."""
        with self._committing():
            first = _state(self._connection, "next_producer_id")
            self._connection.execute("UPDATE state SET value = ? WHERE name = 'next_producer_id'", (first + count,))
        return first

    def outcomes_of(self, request: str) -> list[TopicOutcome] | None:
        """Return the outcomes of a request whose change is committed, or None."""
        return kept_outcomes.read(self._connection, request)

    def forget_outcomes(self) -> None:
        """Forget the outcomes of all requests. Only when the broker starts: no request is older than that."""
        with self._committing():
            kept_outcomes.forget_all(self._connection)

    def forget_broker_configs(self, broker: str) -> None:
        """Forget the settings stored under a name. Only when the broker starts."""
        with self._committing():
            self._connection.execute("DELETE FROM broker_configs WHERE broker = ?", (broker,))

    def taken_rows(self) -> list[tuple[int, bool]]:
        """Return every row that is taken, with whether its topic is a tombstone, in order of rows."""
        query = "SELECT table_row, deleted FROM partitions JOIN topics USING (topic_id) ORDER BY table_row"
        return [(row, bool(deleted)) for row, deleted in self._connection.execute(query)]

    def renumber_rows(self) -> None:
        """Give the partitions the rows 0, 1, ... Only while no other process runs: they know the old rows."""
        with self._committing():
            rows = [row for (row,) in self._connection.execute("SELECT table_row FROM partitions ORDER BY table_row")]
            moves = [(new, old) for new, old in enumerate(rows) if new != old]
            self._connection.executemany("UPDATE partitions SET table_row = ? WHERE table_row = ?", moves)

    def close(self) -> None:
        """Close the connection; the last one to close folds the WAL into the file."""
        self._connection.close()

    @contextmanager
    def _committing(self) -> Iterator[None]:
        self._before_change()
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            yield
            self._connection.execute("COMMIT")
        except BaseException as error:
            if self._connection.in_transaction:
                with suppress(sqlite3.Error):
                    self._connection.execute("ROLLBACK")
            if isinstance(error, sqlite3.OperationalError):
                raise ApiError(
                    ErrorCode.KAFKA_STORAGE_ERROR, f"The metadata file cannot be written: {error}"
                ) from error
            raise


class MetadataReader:
    """A reading connection, opened at the first use. Its file may not be there yet."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._connection: sqlite3.Connection | None = None

    def read(self, since: int) -> MetadataDelta | None:
        """Return what changed after change ``since``, tombstones included, or None if nothing did."""
        connection = self._connect()
        if connection is None:
            return None
        connection.execute("BEGIN")
        try:
            version = _state(connection, "change")
            if version <= since:
                return None
            complete = since == 0 or since < _state(connection, "floor")
            topics = _read_topics(connection, 0 if complete else since)
            entities = read_entities(connection, since)
            return MetadataDelta(version, complete, topics, _read_broker_configs(connection), entities)
        finally:
            connection.execute("COMMIT")

    def is_taken_by(self, row: int, topic_id: bytes) -> bool:
        """Return whether a row of the partition table is, on record, that of a partition of this topic."""
        connection = self._connect()
        query = "SELECT 1 FROM partitions WHERE table_row = ? AND topic_id = ?"
        return connection is not None and connection.execute(query, (row, topic_id)).fetchone() is not None

    def close(self) -> None:
        """Close the connection if it is open."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _connect(self) -> sqlite3.Connection | None:
        if self._connection is None and self._path.exists():
            connection = sqlite3.connect(
                f"{self._path.absolute().as_uri()}?mode=ro",
                uri=True,
                timeout=BUSY_TIMEOUT_S,
                isolation_level=None,
            )
            try:
                has_schema = _has_schema(connection)
            except sqlite3.OperationalError:
                if self._path.exists():
                    raise
                has_schema = False
            if not has_schema:
                connection.close()
                return None
            self._connection = connection
        return self._connection


def metadata_path(data_dir: Path) -> Path:
    """Return where the metadata of a data directory is kept."""
    return data_dir / FILE_NAME


def partition_counts(path: Path, topics: Sequence[str]) -> dict[str, int]:
    """Return how many partitions each of these topics has, for those that exist."""
    reader = MetadataReader(path)
    delta = reader.read(0)
    reader.close()
    found = delta.topics if delta is not None else []
    return {topic.name: len(topic.rows) for topic in found if not topic.deleted and topic.name in topics}


#: What the configuration file said when it was last read again is stored under this name instead of a broker's id, and
#: there once more, so that a file that says nothing is told from one that was not read again.
CONFIGURATION_FILE = "configuration file"


def _ensure_schema(connection: sqlite3.Connection) -> None:
    if has_table(connection, "state"):
        return
    connection.execute("BEGIN IMMEDIATE")
    for statement in _SCHEMA.split(";"):
        connection.execute(statement)
    connection.executemany("INSERT INTO state VALUES (?, ?)", _INITIAL_STATE)
    connection.execute("COMMIT")


def stored_format(connection: sqlite3.Connection) -> int:
    """Return the format of an open file; 0 if nothing is in it. Raises sqlite3.Error."""
    return _state(connection, "format") if has_table(connection, "state") else 0


def _has_schema(connection: sqlite3.Connection) -> bool:
    return has_table(connection, "state") and has_table(connection, "entity_changes")


def _state(connection: sqlite3.Connection, name: str) -> int:
    return int(connection.execute("SELECT value FROM state WHERE name = ?", (name,)).fetchone()[0])


def _read_topics(connection: sqlite3.Connection, since: int) -> list[TopicRecord]:
    rows: dict[bytes, list[tuple[int, int]]] = {}
    query = (
        "SELECT topic_id, partition, table_row FROM topics CROSS JOIN partitions USING (topic_id) "
        "WHERE change > ? ORDER BY topic_id, partition"
    )
    for topic_id, partition, row in connection.execute(query, (since,)):
        rows.setdefault(topic_id, []).append((partition, row))
    found = connection.execute(
        "SELECT topic_id, name, deleted, configs FROM topics WHERE change > ? ORDER BY change, name", (since,)
    )
    return [
        TopicRecord(topic_id, name, bool(deleted), _decode(configs), tuple(rows.get(topic_id, ())))
        for topic_id, name, deleted, configs in found
    ]


def _read_broker_configs(connection: sqlite3.Connection) -> dict[str, dict[str, str]]:
    configs: dict[str, dict[str, str]] = {}
    for broker, name, value in connection.execute("SELECT broker, name, value FROM broker_configs ORDER BY name"):
        configs.setdefault(broker, {})[name] = value
    return configs


def _encode(configs: Mapping[str, str]) -> str:
    return json.dumps(dict(configs), separators=(",", ":"))


def _decode(configs: str) -> dict[str, str]:
    if configs == "{}":  # as it is for most topics
        return {}
    decoded: dict[str, str] = json.loads(configs)
    return decoded
