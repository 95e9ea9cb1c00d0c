"""The writer of the cluster's metadata: topics, partitions and their rows, settings, quotas, in one SQLite file.

The controller process is the only writer; every other process reads the changes since its last read
(`metadata_reader`). Each change has the next number of one counter, which the processes compare to detect whether they
are up to date. Independent of Kafka's rules: the caller has validated them.

A deleted topic stays as a *tombstone* until the owners of its partitions have released their rows in the shared
partition table; the rows of a tombstone stay assigned and are not reused. When tombstones are dropped, ``floor``
becomes the last of them: a reader that has not seen it must read everything again.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from rotunda.broker.errors import ApiError, BootFailed
from rotunda.broker.metadata.store import request_dedup
from rotunda.broker.metadata.store.entity_store import (
    BROKER,
    TOPIC,
    Check,
    EntityKind,
    StoredValue,
    add_staged,
    remove_staged,
    replace_entity,
    stage_names,
    used_bytes,
)
from rotunda.broker.metadata.store.metadata_file import (
    BUSY_TIMEOUT_S,
    FORMAT,
    complete_schema,
    encode_configs,
    make_private,
    state_of,
)
from rotunda.broker.metadata.store.request_dedup import TopicOutcome
from rotunda.broker.protocol.error_codes import ErrorCode
from rotunda.broker.steps import Steps

EXIT_DATA_FROM_NEWER_VERSION = 5


_LAST_SPENT_TOMBSTONE = (
    "SELECT MAX(change) FROM topics WHERE deleted AND topic_id NOT IN (SELECT topic_id FROM partitions)"
)
_DROP_SPENT_TOMBSTONES = "DELETE FROM topics WHERE deleted AND topic_id NOT IN (SELECT topic_id FROM partitions)"


class Transaction:
    """The statements of one change. All of them become visible at once, or none."""

    def __init__(self, connection: sqlite3.Connection, change: int, check: Check) -> None:
        self._connection = connection
        self._check = check
        self.change = change

    def insert_topic(self, topic_id: bytes, name: str, rows: Sequence[int], configs: Mapping[str, str]) -> None:
        """Add a topic; partition i has the row ``rows[i]``."""
        self._check(TOPIC, name, configs)
        self._connection.execute(
            "INSERT INTO topics VALUES (?, ?, 0, ?, ?)", (topic_id, name, self.change, encode_configs(configs))
        )
        self._insert_partitions(topic_id, 0, rows)

    def add_partitions(self, topic_id: bytes, first_partition: int, rows: Sequence[int]) -> None:
        """Add partitions from ``first_partition`` on, each with its row."""
        self._insert_partitions(topic_id, first_partition, rows)
        self._connection.execute("UPDATE topics SET change = ? WHERE topic_id = ?", (self.change, topic_id))

    def set_topic_configs(self, topic_id: bytes, name: str, configs: Mapping[str, str]) -> None:
        """Replace all settings of a topic."""
        self._check(TOPIC, name, configs)
        self._connection.execute(
            "UPDATE topics SET change = ?, configs = ? WHERE topic_id = ?",
            (self.change, encode_configs(configs), topic_id),
        )

    def delete_topic(self, topic_id: bytes) -> None:
        """Change a topic to a tombstone; its rows stay assigned."""
        self._connection.execute(
            "UPDATE topics SET change = ?, deleted = 1 WHERE topic_id = ?", (self.change, topic_id)
        )

    def set_broker_configs(self, broker: str, configs: Mapping[str, str]) -> None:
        """Replace all settings of a broker (its id as text, or "" for the default of all brokers)."""
        self._check(BROKER, broker, configs)
        self._connection.execute("DELETE FROM broker_configs WHERE broker = ?", (broker,))
        rows = [(broker, name, value) for name, value in configs.items()]
        self._connection.executemany("INSERT INTO broker_configs VALUES (?, ?, ?)", rows)

    def set_entity(self, kind: EntityKind, name: str, values: Mapping[str, StoredValue]) -> None:
        """Replace all values of an entity; without values it is deleted."""
        self._check(kind, name, values)
        replace_entity(self._connection, self.change, kind, name, values)

    def add_staged_acls(self) -> None:
        """Add new ACLs: those with the names staged last (`MetadataStore.stage`)."""
        add_staged(self._connection, self.change, EntityKind.ACL)

    def remove_staged_acls(self) -> None:
        """Remove existing ACLs: those with the names staged last."""
        remove_staged(self._connection, self.change, EntityKind.ACL)

    def release_rows(self, rows: Sequence[int]) -> None:
        """Delete the records of tombstones' rows, and every tombstone without rows."""
        if not rows:
            return
        self._connection.executemany("DELETE FROM partitions WHERE table_row = ?", [(row,) for row in rows])
        dropped = self._connection.execute(_LAST_SPENT_TOMBSTONE).fetchone()[0]
        if dropped is not None:
            self._connection.execute(_DROP_SPENT_TOMBSTONES)
            self._connection.execute("UPDATE state SET value = MAX(value, ?) WHERE name = 'floor'", (dropped,))

    def keep_outcomes(self, request: str, outcomes: Sequence[TopicOutcome]) -> None:
        """Record the outcomes of this change's request."""
        request_dedup.keep(self._connection, self.change, request, outcomes)

    def _insert_partitions(self, topic_id: bytes, first_partition: int, rows: Sequence[int]) -> None:
        partitions = [(row, topic_id, first_partition + index) for index, row in enumerate(rows)]
        self._connection.executemany("INSERT INTO partitions VALUES (?, ?, ?)", partitions)


def nothing_to_do() -> None:
    """Do nothing before a change."""


def accept_all(_kind: str, _name: str, _values: Mapping[str, StoredValue]) -> None:
    """Accept all values."""


class MetadataStore:
    """The writing connection. One process has it at a time: the controller."""

    def __init__(self, connection: sqlite3.Connection, before_change: Callable[[], None], check: Check) -> None:
        self._connection = connection
        self._before_change = before_change
        self._check = check
        #: While several transactions share one change: the stack that ends it, and the change once it has begun.
        self._together: ExitStack | None = None
        self._shared: Transaction | None = None

    @classmethod
    def open(
        cls,
        path: Path,
        *,
        ephemeral: bool = False,
        before_change: Callable[[], None] = nothing_to_do,
        check: Check = accept_all,
    ) -> MetadataStore:
        """Open the file, creating it if missing. ``ephemeral`` data is not forced to disk.

        ``before_change`` is called before each change: it makes room on a full disk, or raises an ApiError. ``check``
        is called with the values to be stored. Raises BootFailed when the file is from a newer version, damaged or
        cannot be written.
        """
        try:
            make_private(path)
            connection = sqlite3.connect(path, timeout=BUSY_TIMEOUT_S, isolation_level=None)
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute(f"PRAGMA synchronous = {'OFF' if ephemeral else 'FULL'}")
            connection.execute("PRAGMA temp_store = MEMORY")
            complete_schema(connection)
            stored = state_of(connection, "format")
        except (sqlite3.Error, OSError) as error:
            raise BootFailed(f"cannot open the metadata file {path}: {error}") from error
        if stored > FORMAT:
            connection.close()
            raise BootFailed(
                f"{path} was written by a newer version (format {stored}, this version reads up to {FORMAT})",
                EXIT_DATA_FROM_NEWER_VERSION,
            )
        return cls(connection, before_change, check)

    def stage(self, names: Sequence[str]) -> Steps[None]:
        """Stage the names for the next change in steps: so it can be one with very many names."""
        return stage_names(self._connection, names, self._check)

    @property
    def entity_bytes(self) -> int:
        """Size of all entities."""
        return used_bytes(self._connection)

    @property
    def change(self) -> int:
        """Number of the last committed change; 0 in a new file."""
        return state_of(self._connection, "change")

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        """Yield the transaction of the next change and commit it at the end; any exception rolls back all of it.

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
            change = state_of(self._connection, "change") + 1
            yield Transaction(self._connection, change, self._check)
            self._connection.execute("UPDATE state SET value = ? WHERE name = 'change'", (change,))

    @property
    def is_together(self) -> bool:
        """Whether transactions currently share one change."""
        return self._together is not None

    @contextmanager
    def together(self) -> Iterator[None]:
        """Combine the following transactions, if any, into one change. An ApiError rolls back its own transaction only.

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
        """Reserve ``count`` unused producer ids and return the first."""
        with self._committing():
            first = state_of(self._connection, "next_producer_id")
            self._connection.execute("UPDATE state SET value = ? WHERE name = 'next_producer_id'", (first + count,))
        return first

    def outcomes_of(self, request: str) -> list[TopicOutcome] | None:
        """Return the outcomes of a request whose change is committed, or None."""
        return request_dedup.read(self._connection, request)

    def forget_outcomes(self) -> None:
        """Delete the outcomes of all requests. Only when the broker starts: no request is older than that."""
        with self._committing():
            request_dedup.forget_all(self._connection)

    def forget_broker_configs(self, broker: str) -> None:
        """Delete the settings stored under a name. Only when the broker starts."""
        with self._committing():
            self._connection.execute("DELETE FROM broker_configs WHERE broker = ?", (broker,))

    def assigned_rows(self) -> list[tuple[int, bool]]:
        """Return every assigned row, and whether its topic is a tombstone, in order of rows."""
        query = "SELECT table_row, deleted FROM partitions JOIN topics USING (topic_id) ORDER BY table_row"
        return [(row, bool(deleted)) for row, deleted in self._connection.execute(query)]

    def renumber_rows(self) -> None:
        """Assign the partitions the rows 0, 1, ... Only while no other process runs: they use the old rows."""
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
