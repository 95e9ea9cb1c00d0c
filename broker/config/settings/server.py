"""The broker settings that are not defaults of topics: directories, processes, memory, limits.

Declarations only. `broker_config` joins them with `log` into the one BrokerConfig. Every key here has an effect on the
broker; names and defaults are Kafka's wherever Kafka has the key.
"""

from __future__ import annotations

from dataclasses import dataclass

from rotunda.broker.config.keys import MAX_INT, ONE_REPLICA, Key, Kind, setting

SMALLEST_ARENA_BYTES = 1024 * 1024


def _arena_complaint(size: int) -> str | None:
    allowed = size == -1 or size >= SMALLEST_ARENA_BYTES
    return None if allowed else f"Value must be -1 or at least {SMALLEST_ARENA_BYTES}"


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class ServerSettings:
    """Settings of the broker itself. Only ever part of a BrokerConfig."""

    log_dir: tuple[str, ...] | None = setting(
        Key(
            name="log.dir",
            kind=Kind.LIST,
            default=None,
            nullable=True,
            doc="Another name of log.dirs, which counts if both are set.",
        )
    )
    log_dirs: tuple[str, ...] = setting(
        Key(
            name="log.dirs",
            kind=Kind.LIST,
            default=("rotunda-data",),
            default_text="`./rotunda-data` if there is one, else `$XDG_DATA_HOME/rotunda`, which is "
            "`~/.local/share/rotunda` unless set",
            doc="The data directory: records, metadata and checkpoints. Exactly one; made if it does not exist.",
        )
    )
    ephemeral: bool = setting(
        Key(
            name="ephemeral",
            kind=Kind.BOOLEAN,
            default=False,
            doc="Keep the data in a temporary directory that is removed at the end; metadata is not forced to disk.",
        )
    )
    #: Whether it was started for tests, which inject faults. Not a setting, so only tests can enable it.
    injects_faults: bool = False
    num_network_threads: int = setting(
        Key(
            name="num.network.threads",
            kind=Kind.INT,
            default=1,
            default_text="half the CPUs, from 1 to 3",
            least=1,
            most=256,
            dynamic=True,
            doc="How many processors there are: processes that read requests from clients and write answers. While "
            "the broker runs it may become half or double what it is, up to 8 or four times what it started with.",
        )
    )
    num_io_threads: int = setting(
        Key(
            name="num.io.threads",
            kind=Kind.INT,
            default=1,
            default_text="half the CPUs, from 1 to 8",
            least=1,
            most=256,
            dynamic=True,
            doc="How many handlers there are: processes that own partitions and answer requests. While the broker "
            "runs it may become half or double what it is, up to 4 or twice what it started with; nothing is "
            "answered for a moment while partitions and groups go to their new owners.",
        )
    )
    socket_send_buffer_bytes: int = setting(
        Key(
            name="socket.send.buffer.bytes",
            kind=Kind.INT,
            default=102400,
            unit="bytes",
            least=-1,
            doc="SO_SNDBUF of a client's socket; -1 leaves it to the system.",
        )
    )
    socket_receive_buffer_bytes: int = setting(
        Key(
            name="socket.receive.buffer.bytes",
            kind=Kind.INT,
            default=102400,
            unit="bytes",
            least=-1,
            doc="SO_RCVBUF of a listening socket, inherited by its connections; -1 leaves it to the system.",
        )
    )
    socket_listen_backlog_size: int = setting(
        Key(
            name="socket.listen.backlog.size",
            kind=Kind.INT,
            default=50,
            unit="connections",
            least=1,
            doc="How many connections may wait to be accepted; the system's somaxconn caps it.",
        )
    )
    socket_request_max_bytes: int = setting(
        Key(
            name="socket.request.max.bytes",
            kind=Kind.INT,
            default=104857600,
            unit="bytes",
            least=1,
            doc="Largest request; a longer one closes its connection.",
        )
    )
    response_max_bytes: int = setting(
        Key(
            name="response.max.bytes",
            kind=Kind.INT,
            default=67108864,
            unit="bytes",
            least=65536,
            doc="Largest answer to a request that may ask for any number of things, such as DescribeConfigs, "
            "DescribeGroups or ListGroups. What does not fit is answered with POLICY_VIOLATION, or, by an API that has "
            "no place for an error, by closing the connection; the log says so. Fetch has fetch.max.bytes.",
        )
    )
    connections_max_idle_ms: int = setting(
        Key(
            name="connections.max.idle.ms",
            kind=Kind.LONG,
            default=600000,
            unit="ms",
            doc="A connection without traffic for this long is closed; negative means never.",
        )
    )
    queued_max_request_bytes: int = setting(
        Key(
            name="queued.max.request.bytes",
            kind=Kind.LONG,
            default=-1,
            unit="bytes",
            least=-1,
            validator=_arena_complaint,
            doc="Shared memory for large requests in flight, all processors together. When it is used up, "
            "connections with a large request wait. -1 means 32 MiB, or half of what /dev/shm has free "
            "if that is less, or what the rest leaves of it, 1 MiB at least.",
        )
    )
    pipeline_max: int = setting(
        Key(
            name="pipeline.max",
            kind=Kind.INT,
            default=64,
            unit="requests",
            least=1,
            doc="A connection with this many unanswered requests is read no further.",
        )
    )
    pipeline_resume: int = setting(
        Key(
            name="pipeline.resume",
            kind=Kind.INT,
            default=8,
            unit="requests",
            least=1,
            doc="Reading goes on when fewer than this many requests are unanswered. At most pipeline.max.",
        )
    )
    pipeline_max_bytes: int = setting(
        Key(
            name="pipeline.max.bytes",
            kind=Kind.LONG,
            default=1048576,
            unit="bytes",
            least=1,
            doc="A connection with more bytes of unanswered requests, Produce apart, is read no further.",
        )
    )
    pipeline_max_total_bytes: int = setting(
        Key(
            name="pipeline.max.total.bytes",
            kind=Kind.LONG,
            default=67108864,
            unit="bytes",
            least=0,
            doc="Unanswered requests that all processors keep for a handler's successor, besides 8 KiB a connection.",
        )
    )
    output_max_bytes: int = setting(
        Key(
            name="output.max.bytes",
            kind=Kind.LONG,
            default=8388608,
            unit="bytes",
            least=1,
            doc="A connection for which more bytes of answers wait, also for earlier ones, is read no further.",
        )
    )
    request_ring_bytes: int = setting(
        Key(
            name="request.ring.bytes",
            kind=Kind.INT,
            default=1048576,
            unit="bytes",
            least=262144,
            most=1073741824,
            doc="Wanted size of each ring between a processor and a handler. Rounded down to a power of two, "
            "and made smaller where many processes would otherwise not fit a small /dev/shm.",
        )
    )
    max_partitions: int = setting(
        Key(
            name="max.partitions",
            kind=Kind.INT,
            default=10000,
            unit="partitions",
            least=1,
            most=1000000,
            doc="Most partitions that the broker can hold; shared memory is set aside for each.",
        )
    )
    auto_create_topics_enable: bool = setting(
        Key(
            name="auto.create.topics.enable",
            kind=Kind.BOOLEAN,
            default=True,
            doc="Create a topic when a client that allows it asks for one that does not exist.",
        )
    )
    delete_topic_enable: bool = setting(
        Key(
            name="delete.topic.enable",
            kind=Kind.BOOLEAN,
            default=True,
            doc="Whether topics may be deleted.",
        )
    )
    num_partitions: int = setting(
        Key(
            name="num.partitions",
            kind=Kind.INT,
            default=1,
            unit="partitions",
            least=1,
            doc="Partitions of a topic created without a number of them.",
        )
    )
    default_replication_factor: int = setting(
        Key(
            name="default.replication.factor",
            kind=Kind.INT,
            default=1,
            least=1,
            most=1,
            most_because=ONE_REPLICA,
            doc="Replicas of a topic created without a number of them; one broker holds one.",
        )
    )
    producer_id_expiration_ms: int = setting(
        Key(
            name="producer.id.expiration.ms",
            kind=Kind.INT,
            default=86400000,
            unit="ms",
            least=1,
            dynamic=True,
            doc="How long a partition remembers an idempotent producer that writes nothing more.",
        )
    )
    shutdown_timeout_ms: int = setting(
        Key(
            name="shutdown.timeout.ms",
            kind=Kind.INT,
            default=10000,
            unit="ms",
            least=0,
            doc="How long a stopping broker waits for its processes to finish their work before it kills them.",
        )
    )
    process_restart_limit: int = setting(
        Key(
            name="process.restart.limit",
            kind=Kind.INT,
            default=20,
            least=1,
            most=MAX_INT,
            doc="How often one process that dies is replaced at once within process.restart.window.ms. Beyond that "
            "one is started half a second after the one before at the earliest, of a cleaner, recorder or status page "
            "after that window divided by this limit, and the others go on serving. If no process has served any "
            "request since the first of these deaths, the broker stops instead, and the log and `rotunda status` say "
            "why; without its status page or its request log it goes on.",
        )
    )
    process_hang_timeout_ms: int = setting(
        Key(
            name="process.hang.timeout.ms",
            kind=Kind.INT,
            default=30000,
            unit="ms",
            least=-1,
            doc="How long the loop of a process may stand still before the process is killed and replaced, as if it "
            "had died. `/readyz`, the status page and `rotunda status` name it after 2 seconds. Time in which the "
            "whole broker or the machine stands still does not count, nor time in which the process waits in the "
            "kernel where no signal reaches it, as for a slow disk; of time that it waits for a processor a quarter "
            "counts. A process that is starting has all the time it needs. It takes 2 seconds at least; -1: never.",
        )
    )
    process_restart_window_ms: int = setting(
        Key(
            name="process.restart.window.ms",
            kind=Kind.INT,
            default=60000,
            unit="ms",
            least=1,
            doc="The span of time over which process.restart.limit counts.",
        )
    )


def log_dirs_complaint(config: ServerSettings) -> str | None:
    """Return an error unless there is exactly one data directory."""
    return None if len(config.log_dirs) == 1 and config.log_dirs[0] else "must name exactly one directory"


def pipeline_complaint(config: ServerSettings) -> str | None:
    """Return an error if reading would resume above the limit at which it stops."""
    return None if config.pipeline_resume <= config.pipeline_max else "must not be above pipeline.max"
