"""The broker settings that are not defaults of topics: directories, processes, memory, limits.

Declarations only. `broker_config` joins them with `log` into the one BrokerConfig. Every key here has an effect on the
broker; names and defaults are Kafka's wherever Kafka has the key.
"""

from __future__ import annotations

from dataclasses import dataclass

from rotunda.broker.config.keys import MAX_INT, ONE_REPLICA, Kind, setting

SMALLEST_ARENA_BYTES = 1024 * 1024


def _arena_complaint(size: int) -> str | None:
    allowed = size == -1 or size >= SMALLEST_ARENA_BYTES
    return None if allowed else f"Value must be -1 or at least {SMALLEST_ARENA_BYTES}"


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class ServerSettings:
    """Settings of the broker itself. A part of BrokerConfig."""

    log_dir: tuple[str, ...] | None = setting(
        Kind.LIST, None, nullable=True, doc="Older name of log.dirs; log.dirs wins if both are set."
    )
    log_dirs: tuple[str, ...] = setting(
        Kind.LIST,
        ("rotunda-data",),
        default_text="`./rotunda-data` if there is one, else `$XDG_DATA_HOME/rotunda`, which is "
        "`~/.local/share/rotunda` unless set",
        doc="The data directory: records, metadata and checkpoints. Exactly one; created if missing.",
    )
    ephemeral: bool = setting(
        Kind.BOOLEAN,
        False,
        doc="Keep the data in a temporary directory that is removed at the end; metadata is not forced to disk.",
    )
    #: Whether it was started for tests, which inject faults. Not a setting, so only tests can enable it.
    injects_faults: bool = False
    #: The file of client properties by which commands of this machine authenticate; empty: none.
    client_properties: str = ""
    num_network_threads: int = setting(
        Kind.INT,
        1,
        default_text="half the CPUs, from 1 to 3",
        least=1,
        most=256,
        dynamic=True,
        doc="Number of processors: processes that read requests from clients and write responses. It can be "
        "halved or doubled while the broker runs, up to 8 or four times the initial number.",
    )
    num_io_threads: int = setting(
        Kind.INT,
        1,
        default_text="half the CPUs, from 1 to 8",
        least=1,
        most=256,
        dynamic=True,
        doc="Number of handlers: processes that own partitions and serve requests. It can be halved or doubled "
        "while the broker runs, up to 4 or twice the initial number. Requests pause for a moment while "
        "partitions and groups move to their new owners.",
    )
    socket_send_buffer_bytes: int = setting(
        Kind.INT, 102400, least=-1, doc="SO_SNDBUF of client sockets; -1 uses the system's default."
    )
    socket_receive_buffer_bytes: int = setting(
        Kind.INT,
        102400,
        least=-1,
        doc="SO_RCVBUF of listening sockets, inherited by their connections; -1 uses the system's default.",
    )
    socket_listen_backlog_size: int = setting(
        Kind.INT,
        50,
        unit="connections",
        least=1,
        doc="Backlog of connections waiting to be accepted; the system's somaxconn caps it.",
    )
    socket_request_max_bytes: int = setting(
        Kind.INT, 104857600, least=1, doc="Maximum size of a request; a longer one closes its connection."
    )
    response_max_bytes: int = setting(
        Kind.INT,
        67108864,
        least=65536,
        doc="Maximum size of a response to a request for any number of resources, such as DescribeConfigs, "
        "DescribeGroups or ListGroups. A longer one is replaced by POLICY_VIOLATION, or, for APIs without an "
        "error field, closes the connection with a log line. Fetch has fetch.max.bytes.",
    )
    connections_max_idle_ms: int = setting(
        Kind.LONG, 600000, doc="Close connections without traffic for this long; negative: never."
    )
    queued_max_request_bytes: int = setting(
        Kind.LONG,
        -1,
        least=-1,
        validator=_arena_complaint,
        doc="Shared memory for large requests in flight, all processors together. While it is full, connections "
        "with a large request wait. -1: 32 MiB, on a small /dev/shm half of its free space or the unreserved "
        "rest, at least 1 MiB.",
    )
    pipeline_max: int = setting(
        Kind.INT,
        64,
        unit="requests",
        least=1,
        doc="Maximum number of unanswered requests of a connection. At this number reading pauses.",
    )
    pipeline_resume: int = setting(
        Kind.INT,
        8,
        unit="requests",
        least=1,
        doc="Reading resumes below this many unanswered requests. At most pipeline.max.",
    )
    pipeline_max_bytes: int = setting(
        Kind.LONG,
        1048576,
        least=1,
        doc="Maximum bytes of unanswered requests of a connection, Produce not counted. Above it reading pauses.",
    )
    pipeline_max_total_bytes: int = setting(
        Kind.LONG,
        67108864,
        least=0,
        doc="Memory for copies of unanswered requests, all processors together, in addition to 8 KiB a "
        "connection. They are sent again when a handler dies.",
    )
    output_max_bytes: int = setting(
        Kind.LONG, 8388608, least=1, doc="Maximum bytes of responses queued for a connection. Above it reading pauses."
    )
    request_ring_bytes: int = setting(
        Kind.INT,
        1048576,
        least=262144,
        most=1073741824,
        doc="Size of each ring between a processor and a handler. Rounded down to a power of two, and reduced "
        "where many processes would not fit a small /dev/shm.",
    )
    max_partitions: int = setting(
        Kind.INT,
        10000,
        unit="partitions",
        least=1,
        most=1000000,
        doc="Maximum number of partitions of the broker; shared memory is reserved for each.",
    )
    auto_create_topics_enable: bool = setting(
        Kind.BOOLEAN, True, doc="Create missing topics when a client that allows it requests their metadata."
    )
    delete_topic_enable: bool = setting(Kind.BOOLEAN, True, doc="Whether topics can be deleted.")
    num_partitions: int = setting(
        Kind.INT, 1, unit="partitions", least=1, doc="Number of partitions of topics created without a number."
    )
    default_replication_factor: int = setting(
        Kind.INT,
        1,
        least=1,
        most=1,
        most_because=ONE_REPLICA,
        doc="Replication factor of topics created without one; a single broker has one replica.",
    )
    one_replica_suffices: bool = setting(
        Kind.BOOLEAN,
        False,
        doc="Create topics with any requested replication factor, and keep one replica, which satisfies any "
        "min.insync.replicas. For tests of applications that request three.",
    )
    producer_id_expiration_ms: int = setting(
        Kind.INT,
        86400000,
        least=1,
        dynamic=True,
        doc="How long a partition keeps the state of an idempotent producer without new records.",
    )
    shutdown_timeout_ms: int = setting(
        Kind.INT, 10000, least=0, doc="How long a stopping broker waits for its processes before it kills them."
    )
    process_restart_limit: int = setting(
        Kind.INT,
        20,
        least=1,
        most=MAX_INT,
        doc="Number of immediate restarts of one process within process.restart.window.ms. Further restarts are "
        "at least half a second apart; those of the cleaner, recorder and status page at least the window "
        "divided by this limit. The other processes continue. If no process has served a request since the "
        "first of these deaths, the broker stops, with the reason in the log and in `rotunda status`. "
        "Failures of the status page and the recorder never stop it.",
    )
    process_hang_timeout_ms: int = setting(
        Kind.INT,
        30000,
        least=-1,
        doc="How long the loop of a process may hang before the process is killed and replaced. `/readyz`, the "
        "status page and `rotunda status` name it after 2 seconds. Not counted: time in which the whole "
        "broker or machine is suspended, uninterruptible waits in the kernel, such as a slow disk, and "
        "startup. Time spent waiting for a CPU counts a quarter. At least 2 seconds; -1: never.",
    )
    process_restart_window_ms: int = setting(
        Kind.INT, 60000, least=1, doc="The window over which process.restart.limit counts."
    )


def log_dirs_complaint(config: ServerSettings) -> str | None:
    """Return an error unless there is exactly one data directory."""
    return None if len(config.log_dirs) == 1 and config.log_dirs[0] else "must name exactly one directory"


def pipeline_complaint(config: ServerSettings) -> str | None:
    """Return an error if reading would resume above the limit at which it stops."""
    return None if config.pipeline_resume <= config.pipeline_max else "must not be above pipeline.max"
