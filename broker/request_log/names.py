"""The names that rows refer to by number: clients, and topics with their partitions.

Runs in the recorder. Every frame contains the texts of its client numbers. A row of the partition table may be reused
for another partition, so on arrival it is converted to a *subject*: a number whose meaning is stable as long as
buffered rows contain it. Clients choose their names and create topics, so both caches are bounded: when one is full,
rows are written and names without rows are deleted.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rotunda.broker.ipc import connection_id

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from numpy.typing import NDArray

    from rotunda.broker.metadata.metadata_cache import MetadataCache

#: Most bytes of cached client names, and the overhead of each besides its text.
MOST_NAMES_BYTES = 16 * 1024 * 1024
_ENTRY_BYTES = 200

#: Most cached denials.
MOST_DENIALS = 10_000

#: Most subjects of deleted topics.
MOST_ENDED_SUBJECTS = 10_000

UNKNOWN_SUBJECT = -1

#: Widest span of numbers whose distinct values are found by counting.
WIDEST_SPAN = 1_000_000


class ClientNames(NamedTuple):
    """The known facts of a client, in the columns' terms; None is unknown."""

    connection: str
    client_id: str | None = None
    software_name: str | None = None
    software_version: str | None = None
    address: str | None = None
    listener: str | None = None
    security_protocol: str | None = None
    principal: str | None = None
    processor: int = 0


class Denial(NamedTuple):
    """A denied operation, in the columns' terms."""

    operation: str | None = None
    resource_type: str | None = None
    resource: str | None = None


class Clients:
    """Names by number of client, undecoded: most are needed once, when their rows are written."""

    def __init__(self) -> None:
        self._texts: dict[int, bytes] = {}
        #: Texts of denials by number, the latest last. They may arrive long before their rows.
        self._denials: OrderedDict[int, bytes] = OrderedDict()
        self._size_bytes = 0
        #: Size after the last `forget`.
        self._kept_bytes = 0

    def learn(self, number: int, text: bytes) -> None:
        """Cache the texts of a client in a frame; HOT where it is known already."""
        if number not in self._texts:
            self._texts[number] = text
            self._size_bytes += len(text) + _ENTRY_BYTES

    def learn_denial(self, number: int, text: bytes) -> None:
        """Cache the text of a denial number."""
        self._denials[number] = text
        self._denials.move_to_end(number)
        if len(self._denials) > MOST_DENIALS:
            self._denials.popitem(last=False)

    def denial(self, number: int) -> Denial:
        """Return the denial of a row, with None for unknown fields."""
        text = self._denials.get(number)
        return Denial() if text is None else Denial(*json.loads(text))

    def get(self, number: int) -> ClientNames:
        """Return the known facts of a client; of an unknown one its number, which is that of its connection."""
        text = self._texts.get(number)
        if text is None:
            return ClientNames(connection_id.text(number), processor=connection_id.processor_of(number))
        connection, client_id, name, version, address, listener, protocol, principal = json.loads(text)
        return ClientNames(
            connection_id.text(connection), client_id or None, name or None, version or None, address or None,
            listener, protocol, principal, connection_id.processor_of(connection),
        )  # fmt: skip

    @property
    def is_full(self) -> bool:
        """Whether the cache is so large that `forget` is due."""
        return self._size_bytes - self._kept_bytes >= MOST_NAMES_BYTES

    def forget(self, kept: Iterable[int]) -> None:
        """Delete all clients but `kept`. Rows that refer to others must have been written."""
        self._texts = {number: self._texts[number] for number in kept if number in self._texts}
        self._kept_bytes = sum(map(len, self._texts.values())) + _ENTRY_BYTES * len(self._texts)
        self._size_bytes = self._kept_bytes


class Subjects:
    """Numbers of (topic, partition), by present row of the partition table."""

    def __init__(self, metadata: MetadataCache) -> None:
        self._metadata = metadata
        self._known: dict[tuple[str, int], int] = {}
        self._names: list[tuple[str | None, int]] = []
        self._free: list[int] = []
        #: Subjects of deleted topics after the last `forget`.
        self._kept = 0
        #: Subjects of existing topics.
        self._present: set[int] = set()
        #: By row of the partition table plus 1; the first and the last are for rows outside of it.
        self._by_row = np.full(1024, UNKNOWN_SUBJECT, np.int32)

    def name(self, subject: int) -> tuple[str | None, int]:
        """Return (topic, partition) of a subject."""
        return self._names[subject] if subject >= 0 else (None, -1)

    def refresh(self) -> None:
        """Update the subjects from the present topics."""
        self._metadata.refresh()
        self._present.clear()
        for topic in self._metadata.topics():
            for partition in topic.partitions:
                subject = self._subject_of((topic.name, partition.index))
                self._present.add(subject)
                place = partition.row + 1
                if place >= len(self._by_row) - 1:
                    grown = np.full(2 * place, UNKNOWN_SUBJECT, np.int32)
                    grown[: len(self._by_row)] = self._by_row
                    self._by_row = grown
                self._by_row[place] = subject

    @property
    def is_full(self) -> bool:
        """Whether there are so many subjects of deleted topics that `forget` is due."""
        return len(self._known) - len(self._present) - self._kept > MOST_ENDED_SUBJECTS

    def forget(self, kept: Collection[int]) -> None:
        """Delete subjects of deleted topics, except `kept`. Rows that contain others must have been written."""
        stay = self._present.union(kept)
        for key, subject in list(self._known.items()):
            if subject not in stay:
                del self._known[key]
                self._names[subject] = (None, -1)
                self._free.append(subject)
        self._kept = len(self._known) - len(self._present)
        # Rows of the table whose partition was deleted.
        self._by_row[~np.isin(self._by_row, list(self._present))] = UNKNOWN_SUBJECT

    def of_rows(self, table_rows: NDArray[np.int32]) -> NDArray[np.int32]:
        """Return the subjects of rows of the partition table; -1 stays -1."""
        found = self._look_up(table_rows)
        if bool(((found == UNKNOWN_SUBJECT) & (table_rows >= 0)).any()):
            self.refresh()
            found = self._look_up(table_rows)
        return found

    def _subject_of(self, key: tuple[str, int]) -> int:
        subject = self._known.get(key)
        if subject is not None:
            return subject
        if self._free:
            subject = self._free.pop()
            self._names[subject] = key
        else:
            subject = len(self._names)
            self._names.append(key)
        self._known[key] = subject
        return subject

    def _look_up(self, table_rows: NDArray[np.int32]) -> NDArray[np.int32]:
        found: NDArray[np.int32] = self._by_row.take(table_rows + 1, mode="clip")
        return found


def distinct(numbers: NDArray[np.int64]) -> tuple[list[int], NDArray[np.int64]]:
    """Return the distinct numbers and, for each of `numbers`, its index among them."""
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
