"""The sources of the status page, from the process that starts it: views of shared memory, names and plain facts.

Nothing here reads or computes. The broker is not imported: it passes in its own data, such as the names of topics and
the values of its settings.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from rotunda.web.http.access import OPEN, Admission

if TYPE_CHECKING:
    from ssl import SSLContext

    from rotunda.broker.metrics.broker_reading import BrokerReader
    from rotunda.shm.tables.recent_requests import RecentReader


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerFacts:
    """Constants of a running broker, except for new listeners: their names, in the order of indexes."""

    version: str
    instance: str
    pid: int
    cluster_id: str
    bootstrap: str
    data_dir: str
    run_dir: str
    listeners: Sequence[str]
    started_ms: int
    request_log: str
    is_native: bool


class PartitionFacts(NamedTuple):
    """A partition: its number, its row in the partition table, and the handler that owns it."""

    number: int
    row: int
    owner: int


class TopicFacts(NamedTuple):
    """A topic and its partitions."""

    name: str
    internal: bool
    partitions: tuple[PartitionFacts, ...]


class Setting(NamedTuple):
    """A setting: its value as text, its source, and whether it can change while the broker runs."""

    name: str
    value: str
    origin: str
    is_default: bool
    dynamic: bool
    doc: str


class JobFacts(NamedTuple):
    """A Spark job: its question, and the required options of its command."""

    question: str
    needs: str


class Login(NamedTuple):
    """The name and password of a request."""

    name: str
    password: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordsWanted:
    """The wanted records of a topic: the newest, or those from an offset or a time (ms) on; with a key, only its.

    `older` and `newer` continue an earlier reading in one direction, from these offsets by partition.
    """

    topic: str
    partition: int | None = None
    offset: int | None = None
    time_ms: int | None = None
    older: Mapping[int, int] = field(default_factory=dict)
    newer: Mapping[int, int] = field(default_factory=dict)
    key: bytes | None = None
    count: int = 50
    read_committed: bool = True


class RecordFacts(NamedTuple):
    """One record. Keys of headers may have lone surrogates, for bytes that are not UTF-8."""

    partition: int
    offset: int
    timestamp_ms: int
    is_log_append_time: bool
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


class ExaminedOffsets(NamedTuple):
    """A partition's start, stable and end offset, and the examined range from `low` to below `high`."""

    partition: int
    start: int
    stable: int
    end: int
    low: int
    high: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordsFound:
    """Records in the order of reading; `older` and `newer` continue it. `notes` are for the viewer."""

    records: Sequence[RecordFacts]
    partitions: Sequence[ExaminedOffsets]
    older: Mapping[int, int]
    newer: Mapping[int, int]
    notes: Sequence[str]


class RecordsRejected(Exception):  # noqa: N818 - named for what happened
    """The records cannot be read, with the reason and the status of the response; 401: log in as another user."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


#: Reads records with the rights of a user. Waits, for a bounded time. Raises RecordsRejected.
ReadRecords = Callable[[RecordsWanted, "Login | None"], RecordsFound]


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestsWanted:
    """The wanted requests: from a time (ms) on, and before another; with `slow` only those, slowest first.

    `patterns` are texts, with `*` for any, of the options of `rotunda requests` with these names.
    """

    since_ms: int
    until_ms: int | None = None
    slow: bool = False
    slower_than_ms: float = 0
    patterns: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RequestsFound:
    """Rows of the request log, notes for the viewer, and the command that searches without a time limit."""

    rows: Sequence[Mapping[str, Any]]
    notes: Sequence[str]
    command: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """All inputs of the page. `settings` returns the present values.

    `deprecated_up_to` is the last deprecated version of an API that has any. `reports` is the directory of the Spark
    jobs' results, `jobs` the facts of each by name. `history` returns the series of a range, from and to a Unix time in
    ms; `search_requests` returns requests of the request log, or it raises OSError. `tls`, which returns the context
    for new connections, enables HTTPS. `topic_settings` returns the settings of a topic, None for an unknown one.
    `records` is None if the page shows no records.
    """

    facts: BrokerFacts
    deprecated_up_to: Mapping[int, int]
    reader: BrokerReader
    recent: RecentReader
    settings: Callable[[], list[Setting]]
    topic_settings: Callable[[str], list[Setting] | None]
    allowed_hosts: tuple[str, ...]
    any_address: bool
    disk: Path
    reports: Path
    jobs: Mapping[str, JobFacts]
    history: Callable[[int, int], dict[str, Any]]
    search_requests: Callable[[RequestsWanted], RequestsFound]
    admission: Admission = OPEN
    records: ReadRecords | None = None
    tls: Callable[[], SSLContext] | None = None
