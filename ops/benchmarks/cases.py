"""The cases: a load each, its ruler, and the figure expected on 2 cores.

A case names the load (arguments of kload after the port) and the ruler (the kind of bare). All servers get exactly the
same load, one after the other, so that only their ratio matters and not the machine.
"""

from collections.abc import Sequence
from dataclasses import dataclass

PARTITIONS = 4
MEGABYTE_RECORDS = ("1000", "1000")  # 1000 records of 1000 bytes: one batch just under message.max.bytes
FETCH_BYTES = 1048576
BATCH_BYTES = 1009997  # bytes of such a batch in a file, and so of the response to a fetch of FETCH_BYTES


@dataclass(frozen=True)
class Case:
    """One load. `unit` is the key to compare in kload's last line: req_s or mb_s."""

    title: str
    command: str
    connections: int
    depth: int
    records: tuple[str, ...]
    ruler: str
    unit: str
    #: Rotunda's rate to Kafka's.
    expected_ratio: float | None = None
    ruler_bytes: int = FETCH_BYTES
    #: Initial content of each partition: records of a batch, bytes of a record.
    fill: tuple[str, ...] = ()
    #: Number of topics, for a load that requests metadata of topics; 0: it uses one.
    topics: int = 0

    def kload_arguments(self, topic: str, partitions: int, seconds: float) -> list[str]:
        """Return kload's arguments after the port."""
        fixed = [topic, str(self.topics or partitions), str(self.connections), str(self.depth), str(seconds)]
        return fixed + list(self.records)


def is_chosen(title: str, texts: Sequence[str]) -> bool:
    """Return whether a title contains one of the texts; True if there are none."""
    return not texts or any(text in title for text in texts)


def small_produce(connections: int, depth: int, expected_ratio: float | None = None) -> Case:
    """Return the case of one record of 100 bytes a request, acks=1, against bare echo."""
    title = f"small Produce, {connections} connections, depth {depth}"
    return Case(title, "produce", connections, depth, ("1", "100"), "echo", "req_s", expected_ratio)


def small_answer(title: str, command: str, expected_ratio: float, topics: int = 0) -> Case:
    """Return the case of a request with a small response, from 64 connections."""
    return Case(f"{title}, 64 connections", command, 64, 1, (), "echo", "req_s", expected_ratio, topics=topics)


#: In this order: cases that fill the page cache are last.
CASES = (
    small_produce(16, 1, 1.2),
    small_produce(64, 1, 1.4),
    small_produce(64, 5, 2.0),
    Case("small Produce to 4 partitions in turns, 64 connections, depth 1", "alternate", 64, 1,
         ("1", "100"), "echo", "req_s", 1.2),
    small_answer("ApiVersions", "api", 2.0),
    small_answer("OffsetCommit", "commit", 1.5),
    small_answer("Heartbeat", "heartbeat", 1.3),
    small_answer("Metadata of 1 topic", "metadata", 1.3, topics=1),
    small_answer("Metadata of 100 topics", "metadata", 1.3, topics=100),
    small_answer("ListOffsets", "offsets", 1.3),
    Case("64 KB Fetch, 16 connections", "fetch", 16, 1, (str(64 << 10),), "file", "mb_s", 1.1, 64637, ("64", "1000")),
    Case("1 MB Fetch, 4 connections", "fetch", 4, 1, (str(FETCH_BYTES),), "file", "mb_s", 1.1, BATCH_BYTES,
         MEGABYTE_RECORDS),
    Case("16 KB Produce of 100 records, 16 connections, depth 5", "produce", 16, 5, ("100", "160"), "append", "mb_s",
         1.4),
    Case("1 MB Produce, 4 connections, depth 2", "produce", 4, 2, MEGABYTE_RECORDS, "append", "mb_s", 1.1),
)  # fmt: skip
#: Kafka's time divided by Rotunda's.
FASTER_PRODUCE_TO_FETCH = {"p50_us": 1.1, "p99_us": 2.0}

GROUPS = 1000
GROUP_CONNECTIONS = 32
HEARTBEAT_MS = 3000
#: Offsets, as Kafka counts commits (`offset-commit-rate`), and how many of them a member commits at once.
COMMITS_PER_SECOND = 10_000
OFFSETS_PER_COMMIT = (4, 1)
#: The remaining share of small Produce with groups, Rotunda's divided by Kafka's.
KEPT_BESIDE_GROUPS = 1.1

#: The rate of Rotunda's own producer divided by confluent-kafka's.
OWN_PRODUCER = 0.7
OWN_PRODUCER_RECORDS = 500_000

READY_SECONDS = 0.5
FIRST_ACKNOWLEDGED_SECONDS = 0.5
IDLE_MEMORY_MB = 150.0
IDLE_CPU_PERCENT = 0.5
