"""The sources of the status page, from the process that starts it: views of shared memory, names and plain facts.

Nothing here reads or computes. The broker is not imported: it passes in its own data, such as the names of topics and
the values of its settings.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """All inputs of the page. `settings` returns the present values.

    `deprecated_up_to` is the last deprecated version of an API that has any. `reports` is the directory of the Spark
    jobs' results, `jobs` the facts of each by name. `history` returns the series of a range, from and to a Unix time in
    ms. `tls`, which returns the context for new connections, enables
    HTTPS.
    """

    facts: BrokerFacts
    deprecated_up_to: Mapping[int, int]
    reader: BrokerReader
    recent: RecentReader
    settings: Callable[[], list[Setting]]
    allowed_hosts: tuple[str, ...]
    any_address: bool
    disk: Path
    reports: Path
    jobs: Mapping[str, JobFacts]
    history: Callable[[int, int], dict[str, Any]]
    admission: Admission = OPEN
    tls: Callable[[], SSLContext] | None = None
