"""The client libraries with one interface: a producer that sends a batch, a reader, a member of a group.

Each is unmodified and has its own defaults, but for settings that its users here need. An exception of a library
becomes a ClientError that names the remedy; each is counted by its text. Does not validate records.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, Protocol

WAIT_SECONDS = 60.0
#: In the place of the offset of an acknowledged record, where the client names none.
ACKNOWLEDGED = -3


class Kind(Enum):
    """The three kinds of producers. A plain one may send a record again when it gets no response."""

    IDEMPOTENT = "idempotent"
    TRANSACTIONAL = "transactional"
    PLAIN = "plain"


class Isolation(Enum):
    """The isolation level of a reader."""

    COMMITTED = "read_committed"
    UNCOMMITTED = "read_uncommitted"


class Record(NamedTuple):
    """A record that was read."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None


class ToSend(NamedTuple):
    """A record to be sent."""

    partition: int
    key: bytes | None
    value: bytes | None


class Remedy(Enum):
    """The caller's possible reaction to an error."""

    RETRY = "call again"
    ABORT = "abort the transaction"
    REPLACE = "make a new client"


class ClientError(Exception):
    """A client's own exception, with its remedy."""

    def __init__(self, failure: BaseException, remedy: Remedy) -> None:
        super().__init__(text_of(failure))
        self.remedy = remedy


class Producer(Protocol):
    """A producer of one topic."""

    def send(self, records: Sequence[ToSend]) -> list[int | str]:
        """Send all and wait for each: its offset (ACKNOWLEDGED where none is named), or the error."""

    def begin(self) -> None:
        """Begin a transaction."""

    def send_offsets(self, offsets: Mapping[int, int], member: Member) -> None:
        """Commit offsets of a group with the transaction."""

    def commit(self) -> None:
        """Commit the transaction."""

    def abort(self) -> None:
        """Abort the transaction."""

    def close(self) -> None:
        """Close at once, without flushing."""


class Reader(Protocol):
    """A reader of all partitions of one topic, in no group."""

    def poll(self) -> list[Record]:
        """Return the next records, none after a fraction of a second."""

    def ends(self) -> dict[int, int]:
        """Return the end of each partition at this moment."""

    def positions(self) -> dict[int, int]:
        """Return the offset that is read next of each partition."""

    def close(self) -> None:
        """Close at once, without flushing."""


class Member(Protocol):
    """A member of a consumer group that reads one topic and commits its offsets itself."""

    def poll(self, seconds: float = 0.0) -> list[Record]:
        """Return the next records, none after this time; 0: the library's own."""

    def assignment(self) -> set[int]:
        """Return the partitions that are assigned to it."""

    def commit(self, offsets: Mapping[int, int]) -> None:
        """Commit these offsets and wait for the response."""

    def close(self) -> None:
        """Leave the group."""


Assigned = Callable[[Sequence[int]], None]


class Membership(NamedTuple):
    """A member's group and protocol; the assignor and the instance id, if it names them."""

    group: str
    protocol: str = "classic"
    assignor: str = ""
    instance: str = ""


@dataclass(frozen=True)
class Library:
    """One client library: how its clients are made.

    `producer(kind, topic, transactional_id)`, `reader(topic, isolation, offsets)`, `member(topic, membership,
    assigned)`; `assigned`, if given, is called with the newly assigned partitions. `make_topic(name, partitions)`.
    `protocols` are its group protocols. With `has_share_group` a share group of raw requests reads its records.
    """

    name: str
    producer: Callable[[Kind, str, str], Producer]
    reader: Callable[[str, Isolation, Mapping[int, int]], Reader]
    member: Callable[[str, Membership, Assigned | None], Member]
    make_topic: Callable[[str, int], None]
    protocols: tuple[str, ...]
    plain_repeats: bool
    records_per_second: float
    has_share_group: bool = False


def text_of(failure: BaseException) -> str:
    """Return a fault in a few words that are the same for the same fault."""
    return f"{type(failure).__name__}: {failure}"[:100]
