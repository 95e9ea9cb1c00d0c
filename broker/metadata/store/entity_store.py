"""The stored settings of named entities other than topics: groups, quotas, features ...

Part of `metadata_store`, which owns the file and its transactions. An entity is a kind, a name and a mapping of keys to
values; the module that declares the kind's keys defines the meaning of names and values. The entities of the last
changes are recorded, so a reader reads only those, and a whole kind only at its start.
"""

from __future__ import annotations

import enum
import sqlite3
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TypeVar

from rotunda.broker.errors import ApiError
from rotunda.broker.protocol.error_codes import ErrorCode
from rotunda.broker.steps import ELEMENTS_AT_ONCE, Steps

#: A value as stored: text for configs, numbers for quotas and feature levels.
StoredValue = str | int | float

#: By name of the entity: its keys and values.
Entities = Mapping[str, Mapping[str, StoredValue]]

#: Values keep the type with which they are stored: the column has no type.
SCHEMA = """
CREATE TABLE IF NOT EXISTS entities (
    kind TEXT NOT NULL, name TEXT NOT NULL, key TEXT NOT NULL, value NOT NULL, PRIMARY KEY (kind, name, key)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS entity_changes (kind TEXT PRIMARY KEY, change INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS entities_changed (
    change INTEGER NOT NULL, kind TEXT NOT NULL, name TEXT NOT NULL, PRIMARY KEY (change, kind, name)
) WITHOUT ROWID;
"""

#: Names staged for one change: visible only to the writer's connection, and in order.
_STAGED = "CREATE TEMP TABLE IF NOT EXISTS staged (name TEXT PRIMARY KEY) WITHOUT ROWID"

#: Number of changes with recorded entities. A reader that is further behind reads all entities.
RECORDED_CHANGES = 1000

#: Limit of all entities together: every process has them in its memory.
MOST_BYTES = 16 * 1024 * 1024

#: Name of the total size in the file's state, and its computation: texts, and a constant for each value.
_USED_BYTES = "entity_bytes"
_SIZE = "SELECT COALESCE(SUM(LENGTH(name) + LENGTH(key) + LENGTH(value) + 200), 0) FROM entities"

#: The same for an entity without values, which is stored as the value 1 of an empty key.
_BYTES_BESIDE_A_NAME = 201
_NAME_ALONE: Mapping[str, StoredValue] = MappingProxyType({"": 1})

#: Raises ApiError if values (by key) of an entity, by its kind and name, could not be decoded again.
Check = Callable[[str, str, Mapping[str, StoredValue]], None]


_Name = TypeVar("_Name")
_Value = TypeVar("_Value")


#: Kinds of resources whose settings have tables of their own.
TOPIC = "topic"
BROKER = "broker"


class EntityKind(enum.StrEnum):
    """The kinds of entities, in the order in which processes apply them: ACLs last, and in force at once.

    A file of a newer version may have other kinds, which have no effect.
    """

    GROUP = "group"
    CLIENT_METRICS = "client-metrics"
    CLIENT_QUOTA = "client-quota"
    FEATURE = "feature"
    USER_CREDENTIAL = "user-credential"
    ACL = "acl"


def ensure_schema(connection: sqlite3.Connection) -> None:
    """Add the tables to a file that was created without them. Only the writer, outside a transaction."""
    if has_tables(connection):
        return
    connection.execute("BEGIN IMMEDIATE")
    add_tables(connection)
    connection.execute("COMMIT")


def add_tables(connection: sqlite3.Connection) -> None:
    """Add the missing tables within a transaction."""
    for statement in SCHEMA.split(";"):
        connection.execute(statement)


def has_tables(connection: sqlite3.Connection) -> bool:
    """Return whether the file has the tables that readers need."""
    return has_table(connection, "entity_changes") and has_table(connection, "entities_changed")


def has_table(connection: sqlite3.Connection, name: str) -> bool:
    """Return whether the file has a table of that name."""
    query = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?"
    return connection.execute(query, (name,)).fetchone() is not None


def replace_entity(
    connection: sqlite3.Connection, change: int, kind: EntityKind, name: str, values: Mapping[str, StoredValue]
) -> None:
    """Replace all values of one entity; without values it is deleted. ApiError when all entities are too large."""
    total_bytes = used_bytes(connection)
    (before_bytes,) = connection.execute(f"{_SIZE} WHERE kind = ? AND name = ?", (kind, name)).fetchone()
    connection.execute("DELETE FROM entities WHERE kind = ? AND name = ?", (kind, name))
    rows = [(kind, name, key, value) for key, value in values.items()]
    connection.executemany("INSERT INTO entities VALUES (?, ?, ?, ?)", rows)
    (after_bytes,) = connection.execute(f"{_SIZE} WHERE kind = ? AND name = ?", (kind, name)).fetchone()
    _account(connection, total_bytes, after_bytes - before_bytes)
    _record(connection, change, kind, name)


def stage_names(connection: sqlite3.Connection, names: Sequence[str], check: Check) -> Steps[None]:
    """Stage names of ACLs in steps, for `add_staged` or `remove_staged`; they are in memory, and in no change.

    A change of ten thousand ACLs is then a few statements. Names are distinct; earlier staged names are discarded.
    """
    connection.execute(_STAGED)
    connection.execute("DELETE FROM staged")
    for first in range(0, len(names), ELEMENTS_AT_ONCE):
        some = names[first : first + ELEMENTS_AT_ONCE]
        for name in some:
            check(EntityKind.ACL, name, _NAME_ALONE)
        connection.execute("BEGIN")
        connection.executemany("INSERT INTO staged VALUES (?)", [(name,) for name in some])
        connection.execute("COMMIT")
        yield


def add_staged(connection: sqlite3.Connection, change: int, kind: EntityKind) -> None:
    """Add the staged entities, which are new and have no values. ApiError as in `replace_entity`."""
    _account(connection, used_bytes(connection), _staged_bytes(connection))
    connection.execute("INSERT INTO entities SELECT ?, name, '', 1 FROM staged", (kind,))
    _record_staged(connection, change, kind)


def remove_staged(connection: sqlite3.Connection, change: int, kind: EntityKind) -> None:
    """Remove the staged entities, which `add_staged` has added before."""
    _account(connection, used_bytes(connection), -_staged_bytes(connection))
    connection.execute("DELETE FROM entities WHERE kind = ? AND name IN (SELECT name FROM staged)", (kind,))
    _record_staged(connection, change, kind)


def _staged_bytes(connection: sqlite3.Connection) -> int:
    query = "SELECT COALESCE(SUM(LENGTH(name) + ?), 0) FROM staged"
    staged_bytes: int = connection.execute(query, (_BYTES_BESIDE_A_NAME,)).fetchone()[0]
    return staged_bytes


def _account(connection: sqlite3.Connection, total_bytes: int, more_bytes: int) -> None:
    total_bytes += more_bytes
    if total_bytes > MOST_BYTES and more_bytes > 0:
        raise ApiError(
            ErrorCode.POLICY_VIOLATION,
            "The settings of groups, client metrics subscriptions, quotas, users and ACLs would take "
            f"{total_bytes} bytes, more than {MOST_BYTES}; delete some first.",
        )
    connection.execute("INSERT OR REPLACE INTO state VALUES (?, ?)", (_USED_BYTES, total_bytes))


def _record(connection: sqlite3.Connection, change: int, kind: EntityKind, name: str) -> None:
    """Record the entity of a change."""
    connection.execute("INSERT OR REPLACE INTO entities_changed VALUES (?, ?, ?)", (change, kind, name))
    _record_kind(connection, change, kind)


def _record_staged(connection: sqlite3.Connection, change: int, kind: EntityKind) -> None:
    connection.execute("INSERT OR REPLACE INTO entities_changed SELECT ?, ?, name FROM staged", (change, kind))
    _record_kind(connection, change, kind)


def _record_kind(connection: sqlite3.Connection, change: int, kind: EntityKind) -> None:
    connection.execute("INSERT OR REPLACE INTO entity_changes VALUES (?, ?)", (kind, change))
    connection.execute("DELETE FROM entities_changed WHERE change <= ?", (change - RECORDED_CHANGES,))


def read_entities(connection: sqlite3.Connection, since: int) -> Steps[dict[EntityKind, Entities]]:
    """Return in steps all entities of each kind that has changed after change ``since``."""
    changed = _texts(connection.execute("SELECT kind FROM entity_changes WHERE change > ?", (since,)))
    found: dict[EntityKind, Entities] = {}
    for kind in EntityKind:
        if kind in changed:
            found[kind] = yield from _read_kind(connection, kind)
    return found


def read_changed_entities(connection: sqlite3.Connection, since: int) -> Steps[Mapping[EntityKind, Entities]]:
    """Return in steps each entity that has changed after change ``since``, without values if it was deleted.

    The change must be no more than `RECORDED_CHANGES` before the last one.
    """
    found: defaultdict[str, defaultdict[str, dict[str, StoredValue]]] = defaultdict(lambda: defaultdict(dict))
    query = (
        "SELECT changed.kind, changed.name, key, value FROM entities_changed AS changed "
        "LEFT JOIN entities USING (kind, name) WHERE change > ? ORDER BY change"
    )
    rows = connection.execute(query, (since,))
    while some := rows.fetchmany(ELEMENTS_AT_ONCE):
        for kind, name, key, value in some:
            values = found[kind][name]
            if key is not None:
                values[key] = value
        yield
    return {kind: found[kind] for kind in EntityKind if kind in found}


def used_bytes(connection: sqlite3.Connection) -> int:
    """Return the size of all entities; it is computed for a file of an older version, which does not store it."""
    found = connection.execute("SELECT value FROM state WHERE name = ?", (_USED_BYTES,)).fetchone()
    total_bytes: int = (found or connection.execute(_SIZE).fetchone())[0]
    return total_bytes


def replace_changed(known: dict[_Name, Mapping[str, _Value]], changed: Mapping[_Name, Mapping[str, _Value]]) -> None:
    """Replace the changed entries, and remove those without values."""
    for name, values in changed.items():
        if values:
            known[name] = values
        else:
            known.pop(name, None)


def _texts(rows: Iterable[tuple[str]]) -> list[str]:
    return [text for (text,) in rows]


def _read_kind(connection: sqlite3.Connection, kind: str) -> Steps[Entities]:
    found: dict[str, dict[str, StoredValue]] = {}
    query = "SELECT name, key, value FROM entities WHERE kind = ? ORDER BY name, key"
    rows = connection.execute(query, (kind,))
    while some := rows.fetchmany(ELEMENTS_AT_ONCE):
        for name, key, value in some:
            found.setdefault(name, {})[key] = value
        yield
    return found
