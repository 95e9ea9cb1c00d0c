"""The listeners of this run by index, as the supervisor publishes them: open and closed ones.

Requests, connections and metrics name a listener by its index. A removed listener keeps its index, so an index never
means two listeners; a listener of the same name gets the same index again. The supervisor publishes a listener before
clients can connect to it, and publishes its end before it closes it: every index in use is found here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, overload

from rotunda.broker.security.session import Session
from rotunda.shm.tables.snapshot_buffer import SnapshotReader, SnapshotWriter


class ListenerEntry(NamedTuple):
    """One listener: its name, its security protocol, and the address advertised to clients (`C18`)."""

    name: str
    protocol: str
    advertised_host: str
    advertised_port: int
    is_open: bool = True
    #: If not 0, clients get the address, with TLS the name, by which they reached the broker, and this port. The
    #: advertised address is then for sessions without a known one: clients that connected before this was set keep
    #: theirs.
    reached_port: int = 0

    def address_for(self, session: Session) -> tuple[str, int]:
        """Return the host and port of this broker for a client."""
        if self.reached_port and session.reached:
            return session.reached, self.reached_port
        return self.advertised_host, self.advertised_port

    def advertised_at(self, host: str, port: int) -> ListenerEntry:
        """Return the listener with another advertised address; without a host, clients get the address they reached."""
        if not host:
            return self._replace(reached_port=port)
        return self._replace(advertised_host=host, advertised_port=port, reached_port=0)


class ListenerTable(Sequence[ListenerEntry]):
    """The listeners by index. Each access sees the latest publication; while nothing changed it costs one load."""

    def __init__(self, view: memoryview) -> None:
        self._reader = SnapshotReader(view)
        self._entries: list[ListenerEntry] = []
        self._seen = 0

    @property
    def version(self) -> int:
        """Number of the latest publication. HOT."""
        return self._reader.sequence

    def __len__(self) -> int:
        return len(self._latest())

    @overload
    def __getitem__(self, index: int) -> ListenerEntry: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[ListenerEntry]: ...

    def __getitem__(self, index: int | slice) -> ListenerEntry | Sequence[ListenerEntry]:
        return self._latest()[index]

    def _latest(self) -> list[ListenerEntry]:
        # Read the number first: a publication during the read is found at the next access.
        if (sequence := self._reader.sequence) != self._seen:
            document = self._reader.read()
            self._seen = sequence
            self._entries = [ListenerEntry(*fields) for fields in document["listeners"]] if document else []
        return self._entries


class ListenerNames(Sequence[str]):
    """The names alone, for printing."""

    def __init__(self, table: ListenerTable) -> None:
        self._table = table

    def __len__(self) -> int:
        return len(self._table)

    @overload
    def __getitem__(self, index: int) -> str: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[str]: ...

    def __getitem__(self, index: int | slice) -> str | Sequence[str]:
        if isinstance(index, int):
            return self._table[index].name
        return [entry.name for entry in self._table[index]]


def publish_listeners(view: memoryview, entries: Sequence[ListenerEntry], now_ns: int) -> None:
    """Publish all listeners of this run. Supervisor only. Raises ValueError if they do not fit."""
    SnapshotWriter(view).publish({"listeners": [list(entry) for entry in entries]}, (), now_ns)
