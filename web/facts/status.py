"""The shape of /status.json: the known state of a broker at one time. Declarations only.

An unknown value is None and never 0: rates need two readings, and a share of nothing is unknown.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Broker:
    """The broker's identity. With `is_native` the compiled module is in use, else pure Python."""

    version: str
    instance: str
    pid: int
    cluster_id: str
    bootstrap: str
    data_dir: str
    run_dir: str
    request_log: str
    started_ms: int
    is_native: bool
    disk_free_bytes: int
    disk_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """The broker as a whole, per second. `longest_lag_group` is the group with the longest known lag.

    `topics` and `partitions` are without internal topics.
    """

    requests_per_s: float | None
    errors_per_s: float | None
    bytes_in_per_s: float | None
    bytes_out_per_s: float | None
    records_per_s: float | None
    connections: int
    topics: int
    partitions: int
    log_bytes: int
    longest_lag_s: float | None
    longest_lag_group: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Acceptor:
    """The listening sockets together; `blocked` is the largest share of time that one did not accept."""

    accepted_per_s: float | None
    closed_per_s: float | None
    blocked: float | None
    accept_errors: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Processor:
    """One processor. `mutes_per_s` is, by cause, the rate at which it stopped reading from connections.

    `answers_held_back` are delayed responses to clients that fail again and again.
    """

    index: int
    idle: float | None
    requests_per_s: float | None
    bytes_in_per_s: float | None
    bytes_out_per_s: float | None
    connections: int
    arena_used_bytes: int
    arena_bytes: int
    mutes_per_s: dict[str, float]
    requests_kept_bytes: int
    answers_unwritten_bytes: int
    answers_held_back: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One handler, or the controller."""

    index: int
    idle: float | None
    requests_per_s: float | None
    errors_per_s: float | None
    records_per_s: float | None
    bytes_per_s: float | None
    commits_per_s: float | None
    parked_per_s: float | None
    overload_throttle_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Ring:
    """One ring between a processor and a target, the controller after the handlers; `frames` are the waiting ones.

    For a ring to the recorder, `processor` is the number of its source, handlers after the processors.
    """

    kind: str
    processor: int
    target: int
    used_bytes: int
    capacity_bytes: int
    frames: int
    fill: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Api:
    """One API: its rate, and by phase the median, the 99th percentile and the mean in µs."""

    key: int
    name: str
    requests_per_s: float | None
    count: int
    p50_us: dict[str, float]
    p99_us: dict[str, float]
    mean_us: dict[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """One partition."""

    number: int
    owner: int
    start_offset: int
    end_offset: int
    stable_offset: int
    size_bytes: int
    is_open: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """One topic; bytes are those of records, as stored."""

    name: str
    internal: bool
    records: int
    size_bytes: int
    records_per_s: float | None
    bytes_in_per_s: float | None
    bytes_out_per_s: float | None
    owners: list[int]
    partitions: list[Partition]


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """One process. `cpu` is in cores; `serves`: its present generation is ready.

    `silent_s` is the time since the last published pass of its loop.
    """

    role: str
    index: int
    pid: int
    state: str
    serves: bool
    generation: int
    restarts: int
    exit_status: int
    last_error: str
    silent_s: float | None
    cpu: float | None
    pss_bytes: int | None
    threads: int | None
    descriptors: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Where requests wait, as a sentence. `level` is calm, busy or stuck; `where` names parts of the picture."""

    level: str
    text: str
    where: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A client's calls: an API in one version, and their number, estimated from the request log's rows."""

    api: str
    version: int
    count: int
    deprecated: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """One connection. `calls` and `topics` are empty while the request log is off; `muted` is the cause of a mute."""

    connection: str
    client_id: str
    software: str
    version: str
    address: str
    listener: str
    opened_ms: int
    active_ms: int
    requests: int
    errors: int
    requests_per_s: float | None
    bytes_in_per_s: float | None
    bytes_out_per_s: float | None
    in_flight: int
    muted: list[str]
    calls: list[Call]
    topics: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientMetric:
    """The latest value of a metric that a client has pushed; of a histogram the mean."""

    name: str
    attributes: dict[str, str]
    value: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientInstance:
    """A client that pushes metrics (KIP-714). `connection` is that of its last request."""

    instance: str
    connection: str
    client_id: str
    user: str
    software: str
    version: str
    address: str
    pushed_ms: int
    metrics: list[ClientMetric]


@dataclass(frozen=True, slots=True, kw_only=True)
class Quota:
    """A quota used by a client, or by all that share it: an empty name matches any.

    `per_s` is in the unit of `limit`, None for a token bucket; `throttled_ms` is the remaining throttle time.
    """

    quota: str
    user: str
    client_id: str
    limit: float
    per_s: float | None
    times_throttled: int
    throttle_ms: int
    throttled_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One member of a group; `partitions` is None when its assignment cannot be decoded.

    `silent_s`: since its last heartbeat; `session_left_s`: until its partitions are given to others.
    """

    id: str
    instance_id: str | None
    client_id: str
    host: str
    state: str | None
    partitions: dict[str, list[int]] | None
    silent_s: float | None
    session_left_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Offset:
    """A group's committed offset of a partition, and its lag."""

    topic: str
    partition: int
    offset: int
    end_offset: int | None
    lag: int | None
    lag_s: float | None
    committed_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SharePartition:
    """A partition of a share group; offsets are None before anybody has read from it.

    `deliveries` is the highest delivery count of a record that may be delivered again, `lock_left_s` the time until the
    oldest lock runs out. `locks_expired` and `dead_letters` count records since its state was loaded.
    """

    topic: str
    partition: int
    start_offset: int | None
    end_offset: int | None
    in_flight: int | None
    waiting: int | None
    deliveries: int | None
    lock_left_s: float | None
    lag: int | None
    lag_s: float | None
    locks_expired: int
    dead_letters: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """One group. `lag` is the sum over its partitions, `lag_s` the longest; unknown if one of them is."""

    id: str
    kind: str
    state: str
    protocol: str | None
    generation: int | None
    since_ms: int | None
    handler: int
    lag: int | None
    lag_s: float | None
    members: list[Member]
    offsets: list[Offset]
    share_partitions: list[SharePartition]


@dataclass(frozen=True, slots=True, kw_only=True)
class Transaction:
    """One ongoing transaction."""

    id: str
    state: str
    producer_id: int
    start_ms: int
    timeout_ms: int
    partitions: dict[str, list[int]] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """Everything in /status.json; `window_s` is the time span of the rates.

    `reasons` are causes for which clients are not served, `remarks` problems that need attention all the same.
    """

    time_ms: int
    window_s: float | None
    ready: bool
    reasons: list[str]
    remarks: list[str]
    verdict: Verdict
    broker: Broker
    totals: Totals
    acceptor: Acceptor
    processors: list[Processor]
    handlers: list[Target]
    controller: Target
    rings: list[Ring]
    background: dict[str, dict[str, float]]
    apis: list[Api]
    topics: list[Topic]
    clients: list[Client]
    clients_left_out: int
    client_instances: list[ClientInstance]
    client_instances_left_out: int
    quotas: list[Quota]
    quotas_left_out: int
    groups: list[Group]
    groups_left_out: int
    transactions: list[Transaction]
    processes: list[Process]
