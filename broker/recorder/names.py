"""The names that rows refer to by number: clients, and topics with their partitions.

Runs in the recorder. What a client's number means comes with every frame that uses it. A row of the partition table
may belong to another partition later, so it becomes a *subject*, a number that is never used again, as soon as the rows
arrive.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from broker.network import connection_id

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from broker.server.metadata_cache import MetadataCache

#: So many clients may be remembered from files before the present one.
MOST_REMEMBERED = 20_000

UNKNOWN_SUBJECT = -1

#: Up to this span the distinct ones of many numbers are found by counting.
WIDEST_SPAN = 1_000_000


class ClientNames(NamedTuple):
    """What is known of a client, in the words of the columns; None is not known."""

    connection: str
    client_id: str | None = None
    software_name: str | None = None
    software_version: str | None = None
    address: str | None = None
    listener: str | None = None
    security_protocol: str | None = None
    principal: str | None = None
    processor: int = 0


class Clients:
    """Names by number of client."""

    def __init__(self) -> None:
        self._present: dict[int, ClientNames] = {}
        self._former: dict[int, ClientNames] = {}

    def learn(self, number: int, text: bytes) -> None:
        """Take in what a frame says of a client; HOT where it is known already."""
        if number in self._present:
            return
        connection, client_id, name, version, address, listener, protocol, principal = json.loads(text)
        self._present[number] = ClientNames(
            connection_id.text(connection), client_id or None, name or None, version or None, address or None,
            listener, protocol, principal, connection_id.processor_of(connection),
        )  # fmt: skip

    def get(self, number: int) -> ClientNames:
        """Return what is known; of an unknown client its number, which is that of its connection."""
        found = self._present.get(number)
        if found is None:
            found = self._former.get(number)
            if found is None:
                return ClientNames(connection_id.text(number), processor=connection_id.processor_of(number))
            self._present[number] = found
        return found

    def rotate(self) -> None:
        """Forget whoever was not heard of since the last time this was called with many clients known."""
        if len(self._present) > MOST_REMEMBERED:
            self._former = self._present
            self._present = {}


class Subjects:
    """Numbers of (topic, partition), by row of the partition table as it is used now."""

    def __init__(self, metadata: MetadataCache) -> None:
        self._metadata = metadata
        self._known: dict[tuple[str, int], int] = {}
        self._names: list[tuple[str, int]] = []
        #: By row of the partition table plus 1; the first and the last stand for whatever is outside of it.
        self._by_row = np.full(1024, UNKNOWN_SUBJECT, np.int32)

    def name(self, subject: int) -> tuple[str | None, int]:
        """Return (topic, partition) of a subject."""
        return self._names[subject] if subject >= 0 else (None, -1)

    def refresh(self) -> None:
        """Take over the topics as they are now."""
        self._metadata.refresh()
        for topic in self._metadata.topics():
            for partition in topic.partitions:
                key = topic.name, partition.index
                subject = self._known.get(key)
                if subject is None:
                    subject = self._known[key] = len(self._names)
                    self._names.append(key)
                place = partition.row + 1
                if place >= len(self._by_row) - 1:
                    grown = np.full(2 * place, UNKNOWN_SUBJECT, np.int32)
                    grown[: len(self._by_row)] = self._by_row
                    self._by_row = grown
                self._by_row[place] = subject

    def of_rows(self, table_rows: NDArray[np.int32]) -> NDArray[np.int32]:
        """Return the subjects of rows of the partition table; -1 stays -1."""
        found = self._look_up(table_rows)
        if bool(((found == UNKNOWN_SUBJECT) & (table_rows >= 0)).any()):
            self.refresh()
            found = self._look_up(table_rows)
        return found

    def _look_up(self, table_rows: NDArray[np.int32]) -> NDArray[np.int32]:
        found: NDArray[np.int32] = self._by_row.take(table_rows + 1, mode="clip")
        return found


def distinct(numbers: NDArray[np.int64]) -> tuple[list[int], NDArray[np.int64]]:
    """Return the distinct numbers and, for each of `numbers`, which of them it is."""
    lowest = int(numbers.min())
    span = int(numbers.max()) - lowest
    if span >= WIDEST_SPAN:
        values, codes = np.unique(numbers, return_inverse=True)
        return values.tolist(), codes
    # Counting is several times as fast as sorting.
    places = numbers.astype(np.int64) - lowest
    there = np.flatnonzero(np.bincount(places, minlength=span + 1))
    code_of = np.zeros(span + 1, np.int64)
    code_of[there] = np.arange(len(there))
    return (there + lowest).tolist(), code_of[places]


def names_of(clients: Clients, numbers: Iterable[int]) -> list[ClientNames]:
    """Return the names of several clients."""
    return [clients.get(number) for number in numbers]
