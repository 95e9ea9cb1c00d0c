"""The settings of named things other than topics, as the metadata file keeps them: groups, quotas, features ...

Part of `store`, which owns the file and its transactions. An entity is a kind, a name and a mapping
of keys to values; what a name and a value mean is the business of the module that declares the kind's keys. Which
entities the last changes were about is on record, so a reader takes over those, and a whole kind at its start alone.
"""

from __future__ import annotations

import enum
import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from broker.errors import ApiError
from broker.protocol.error_codes import ErrorCode

#: A value as stored: text for configs, numbers for quotas and feature levels.
StoredValue = str | int | float

#: By name of the entity: its keys and values.
Entities = Mapping[str, Mapping[str, StoredValue]]

#: Values keep the type that they are stored with: the column has none.
SCHEMA = """
CREATE TABLE IF NOT EXISTS entities (
    kind TEXT NOT NULL, name TEXT NOT NULL, key TEXT NOT NULL, value NOT NULL, PRIMARY KEY (kind, name, key)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS entity_changes (kind TEXT PRIMARY KEY, change INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS entities_changed (
    change INTEGER NOT NULL, kind TEXT NOT NULL, name TEXT NOT NULL, PRIMARY KEY (change, kind, name)
) WITHOUT ROWID;
"""

#: Of so many changes it is on record which entities they were about. A reader that is further behind reads all of them.
RECORDED_CHANGES = 1000

#: All entities together: every process has them in its memory.
MOST_BYTES = 16 * 1024 * 1024

#: Under which name the file's state has what they take, and how that is worked out: texts, and what each value takes.
_USED_BYTES = "entity_bytes"
_SIZE = "SELECT COALESCE(SUM(LENGTH(name) + LENGTH(key) + LENGTH(value) + 200), 0) FROM entities"

#: The same of an entity that has nothing but its name, which is put down as the value 1 of an empty key.
_BYTES_BESIDE_A_NAME = 201


_Name = TypeVar("_Name")
_Value = TypeVar("_Value")


class EntityKind(enum.StrEnum):
    """What the entities of a kind are."""

    GROUP = "group"
    CLIENT_METRICS = "client-metrics"
    CLIENT_QUOTA = "client-quota"
    FEATURE = "feature"
    USER_CREDENTIAL = "user-credential"
    ACL = "acl"


def ensure_schema(connection: sqlite3.Connection) -> None:
    """Add the tables to a file that was made without them. Only the writer, outside a transaction."""
    if has_tables(connection):
        return
    connection.execute("BEGIN IMMEDIATE")
    for statement in SCHEMA.split(";"):
        connection.execute(statement)
    connection.execute("COMMIT")


def has_tables(connection: sqlite3.Connection) -> bool:
    """Return whether the file has what readers need."""
    return has_table(connection, "entity_changes") and has_table(connection, "entities_changed")


def has_table(connection: sqlite3.Connection, name: str) -> bool:
    """Return whether the file has a table of that name."""
    query = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?"
    return connection.execute(query, (name,)).fetchone() is not None


def replace_entity(
    connection: sqlite3.Connection, change: int, kind: EntityKind, name: str, values: Mapping[str, StoredValue]
) -> None:
    """Replace all values of one entity; without any it is gone. ApiError when all entities would take too much."""
    total_bytes = used_bytes(connection)
    (before_bytes,) = connection.execute(f"{_SIZE} WHERE kind = ? AND name = ?", (kind, name)).fetchone()
    connection.execute("DELETE FROM entities WHERE kind = ? AND name = ?", (kind, name))
    rows = [(kind, name, key, value) for key, value in values.items()]
    connection.executemany("INSERT INTO entities VALUES (?, ?, ?, ?)", rows)
    (after_bytes,) = connection.execute(f"{_SIZE} WHERE kind = ? AND name = ?", (kind, name)).fetchone()
    _account(connection, total_bytes, after_bytes - before_bytes)
    _record(connection, change, kind, (name,))


def add_names(connection: sqlite3.Connection, change: int, kind: EntityKind, names: Sequence[str]) -> None:
    """Add entities that are not there, and have nothing but their names. ApiError as in `replace_entity`."""
    _account(connection, used_bytes(connection), _bytes_of(names))
    connection.executemany("INSERT INTO entities VALUES (?, ?, '', 1)", [(kind, name) for name in names])
    _record(connection, change, kind, names)


def remove_names(connection: sqlite3.Connection, change: int, kind: EntityKind, names: Sequence[str]) -> None:
    """Remove entities that `add_names` has added."""
    _account(connection, used_bytes(connection), -_bytes_of(names))
    connection.executemany("DELETE FROM entities WHERE kind = ? AND name = ?", [(kind, name) for name in names])
    _record(connection, change, kind, names)


def _bytes_of(names: Sequence[str]) -> int:
    return sum(map(len, names)) + _BYTES_BESIDE_A_NAME * len(names)


def _account(connection: sqlite3.Connection, total_bytes: int, more_bytes: int) -> None:
    total_bytes += more_bytes
    if total_bytes > MOST_BYTES and more_bytes > 0:
        raise ApiError(
            ErrorCode.POLICY_VIOLATION,
            "The settings of groups, client metrics subscriptions, quotas, users and ACLs would take "
            f"{total_bytes} bytes, more than {MOST_BYTES}; delete some first.",
        )
    connection.execute("INSERT OR REPLACE INTO state VALUES (?, ?)", (_USED_BYTES, total_bytes))


def _record(connection: sqlite3.Connection, change: int, kind: EntityKind, names: Sequence[str]) -> None:
    """Put on record which entities a change is about."""
    connection.execute("INSERT OR REPLACE INTO entity_changes VALUES (?, ?)", (kind, change))
    changed = [(change, kind, name) for name in names]
    connection.executemany("INSERT OR REPLACE INTO entities_changed VALUES (?, ?, ?)", changed)
    connection.execute("DELETE FROM entities_changed WHERE change <= ?", (change - RECORDED_CHANGES,))


def read_entities(connection: sqlite3.Connection, since: int) -> dict[EntityKind, Entities]:
    """Return all entities of each kind that has changed after change ``since``."""
    changed = connection.execute("SELECT kind FROM entity_changes WHERE change > ?", (since,))
    return {EntityKind(kind): _read_kind(connection, kind) for kind in _texts(changed)}


def read_changed_entities(connection: sqlite3.Connection, since: int) -> Mapping[EntityKind, Entities]:
    """Return each entity that has changed after change ``since``, without values if it has gone.

    The change must be no more than `RECORDED_CHANGES` before the last one.
    """
    found: defaultdict[str, defaultdict[str, dict[str, StoredValue]]] = defaultdict(lambda: defaultdict(dict))
    query = (
        "SELECT changed.kind, changed.name, key, value FROM entities_changed AS changed "
        "LEFT JOIN entities USING (kind, name) WHERE change > ? ORDER BY change"
    )
    for kind, name, key, value in connection.execute(query, (since,)):
        values = found[kind][name]
        if key is not None:
            values[key] = value
    return {EntityKind(kind): entities for kind, entities in found.items()}


def used_bytes(connection: sqlite3.Connection) -> int:
    """Return what all entities take; a file of an older version does not have it, so it is added up once."""
    found = connection.execute("SELECT value FROM state WHERE name = ?", (_USED_BYTES,)).fetchone()
    total_bytes: int = (found or connection.execute(_SIZE).fetchone())[0]
    return total_bytes


def replace_changed(known: dict[_Name, Mapping[str, _Value]], changed: Mapping[_Name, Mapping[str, _Value]]) -> None:
    """Put what has changed in its place; what has no values any more is gone."""
    for name, values in changed.items():
        if values:
            known[name] = values
        else:
            known.pop(name, None)


def _texts(rows: Iterable[tuple[str]]) -> list[str]:
    return [text for (text,) in rows]


def _read_kind(connection: sqlite3.Connection, kind: str) -> Entities:
    found: dict[str, dict[str, StoredValue]] = {}
    query = "SELECT name, key, value FROM entities WHERE kind = ? ORDER BY name, key"
    for name, key, value in connection.execute(query, (kind,)):
        found.setdefault(name, {})[key] = value
    return found
