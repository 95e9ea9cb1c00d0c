"""The metadata file: its name, its tables, and the encoding of its state and settings.

Used by the writer (`metadata_store`), by readers (`metadata_reader`) and by the check of the file before the broker
starts. One SQLite file in WAL mode.
"""

from __future__ import annotations

import errno
import json
import os
import sqlite3
import stat
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from rotunda.broker.metadata.features import INITIAL_LEVELS
from rotunda.broker.metadata.store import request_dedup
from rotunda.broker.metadata.store.entity_store import (
    EntityKind,
    add_tables,
    ensure_schema,
    has_table,
    has_tables,
    replace_entity,
)

FORMAT = 1
FILE_NAME = "rotunda-metadata.sqlite3"

#: Settings of all brokers are stored under this name instead of a broker's id.
EVERY_BROKER = ""

#: The dynamic settings of the last reloaded configuration file are stored under this name instead of a broker's id, and
#: the name is also a key there, to distinguish an empty file from one that was not reloaded.
CONFIGURATION_FILE = "configuration file"
#: The levels of loggers are stored in the same way, by the loggers' names.
LOG_LEVELS = "log levels"
#: The number of reloads of the certificate files is stored under this name.
CERTIFICATES = "certificates"
#: Settings under these names apply until the next start.
UNTIL_RESTART = (CONFIGURATION_FILE, LOG_LEVELS, CERTIFICATES)

#: Timeout of a statement while another connection recovers the WAL; nothing else blocks readers.
BUSY_TIMEOUT_S = 2.0

_MODE = 0o600

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

_INITIAL_STATE = (("format", FORMAT), ("change", 0), ("floor", 0), ("next_producer_id", 0))


def metadata_path(data_dir: Path) -> Path:
    """Return the path of a data directory's metadata file."""
    return data_dir / FILE_NAME


def check_no_link(path: Path) -> None:
    """Raise OSError for a symbolic link in place of the file or of one of SQLite's files beside it."""
    for each in _with_additional(path):
        if each.is_symlink():
            raise OSError(errno.ELOOP, "a symbolic link is not followed: put the file in its place", str(each))


def make_private(path: Path) -> None:
    """Restrict the file, which holds credentials, to this user, creating it if missing. Raises OSError.

    SQLite creates its additional files with the same mode.
    """
    check_no_link(path)
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, _MODE))
    for each in _with_additional(path):
        with suppress(FileNotFoundError):
            if stat.S_IMODE(each.stat().st_mode) != _MODE:
                each.chmod(_MODE)


def _with_additional(path: Path) -> tuple[Path, Path, Path]:
    return path, path.with_name(f"{path.name}-wal"), path.with_name(f"{path.name}-shm")


def complete_schema(connection: sqlite3.Connection) -> None:
    """Add the missing tables: all to a new file, the later ones to a file of an earlier version.

    A new file also gets the levels of the features. Only the writer, outside a transaction. Raises sqlite3.Error.
    """
    if not has_table(connection, "state"):
        connection.execute("BEGIN IMMEDIATE")
        for statement in _SCHEMA.split(";"):
            connection.execute(statement)
        connection.executemany("INSERT INTO state VALUES (?, ?)", _INITIAL_STATE)
        add_tables(connection)
        for name, level in INITIAL_LEVELS.items():
            replace_entity(connection, 0, EntityKind.FEATURE, name, level)
        connection.execute("COMMIT")
    ensure_schema(connection)
    request_dedup.ensure_table(connection)


def stored_format(connection: sqlite3.Connection) -> int:
    """Return the format of an open file; 0 if it is empty. Raises sqlite3.Error."""
    return state_of(connection, "format") if has_table(connection, "state") else 0


def has_schema(connection: sqlite3.Connection) -> bool:
    """Return whether all tables that readers need exist."""
    return has_table(connection, "state") and has_tables(connection)


def state_of(connection: sqlite3.Connection, name: str) -> int:
    """Return a number of the state: `format`, `change`, `floor` or `next_producer_id`."""
    return int(connection.execute("SELECT value FROM state WHERE name = ?", (name,)).fetchone()[0])


def encode_configs(configs: Mapping[str, str]) -> str:
    """Encode settings for the file."""
    return json.dumps(dict(configs), separators=(",", ":"))


def decode_configs(configs: str) -> dict[str, str]:
    """Decode stored settings."""
    if configs == "{}":  # as for most topics
        return {}
    decoded: dict[str, str] = json.loads(configs)
    return decoded
