"""The outcomes of the last requests that changed topics, stored in the metadata file for repeated requests.

Part of `metadata_store`, which owns the file and its transactions. A controller may be killed after a change is
committed and before its client has the response; its replacement receives the request again. The change of a request
includes the outcomes, so they are recorded if and only if the change is: the replacement returns them and changes
nothing. A request is identified by a text that is unique until the broker restarts; the restart deletes all outcomes.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence
from typing import NamedTuple

#: Number of recorded requests. Requests without a response are the last ones: a turn handles at most 32 from each
#: processor.
MOST_REQUESTS = 1024

_TABLE = (
    "CREATE TABLE IF NOT EXISTS kept_outcomes "
    "(change INTEGER PRIMARY KEY, request TEXT NOT NULL UNIQUE, outcomes TEXT NOT NULL)"
)
_DROP_OLDEST = (
    "DELETE FROM kept_outcomes WHERE change <= (SELECT change FROM kept_outcomes ORDER BY change DESC LIMIT 1 OFFSET ?)"
)


class TopicOutcome(NamedTuple):
    """The outcome of one topic of a request. ``topic_id`` is all zero if there is none.

    ``partitions`` and ``configs`` are those of a topic that was, or would be, created.
    """

    name: str
    error_code: int = 0
    message: str | None = None
    topic_id: bytes = bytes(16)
    partitions: int = -1
    configs: Mapping[str, str] = {}


def ensure_table(connection: sqlite3.Connection) -> None:
    """Add the table to a file that was created without it. Only the writer, outside a transaction."""
    connection.execute(_TABLE)


def keep(connection: sqlite3.Connection, change: int, request: str, outcomes: Sequence[TopicOutcome]) -> None:
    """Record the outcomes of a request with its change; those of the oldest request are deleted."""
    values = [
        (name, error_code, message, topic_id.hex(), partitions, dict(configs))
        for name, error_code, message, topic_id, partitions, configs in outcomes
    ]
    text = json.dumps(values, separators=(",", ":"))
    connection.execute("INSERT INTO kept_outcomes VALUES (?, ?, ?)", (change, request, text))
    connection.execute(_DROP_OLDEST, (MOST_REQUESTS,))


def read(connection: sqlite3.Connection, request: str) -> list[TopicOutcome] | None:
    """Return the outcomes of a request, or None when it has changed nothing."""
    found = connection.execute("SELECT outcomes FROM kept_outcomes WHERE request = ?", (request,)).fetchone()
    if found is None:
        return None
    return [
        TopicOutcome(name, error_code, message, bytes.fromhex(topic_id), partitions, configs)
        for name, error_code, message, topic_id, partitions, configs in json.loads(found[0])
    ]


def forget_all(connection: sqlite3.Connection) -> None:
    """Delete the outcomes of all requests."""
    connection.execute("DELETE FROM kept_outcomes")
