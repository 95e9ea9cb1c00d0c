"""What is measured: a row a question, the ruler it is held against, the figure expected on 2 cores.

A case names the load (arguments of kload after the port) and the ruler (the kind of bare). Both get exactly
the same load, one after the other, so that only their ratio matters and not the machine.
"""

from dataclasses import dataclass

MEGABYTE_RECORDS = ("1000", "1000")  # 1000 records of 1000 bytes: one batch just under message.max.bytes
FETCH_BYTES = 1048576
BATCH_BYTES = 1009997  # what such a batch takes in a file, and so what a fetch of FETCH_BYTES brings


@dataclass(frozen=True)
class Case:
    """One measurement. `unit` is the key of kload's last line that is compared: req_s or mb_s."""

    title: str
    command: str
    connections: int
    depth: int
    records: tuple[str, ...]
    ruler: str
    unit: str
    expected_ratio: float | None
    ruler_bytes: int = FETCH_BYTES

    def kload_arguments(self, topic: str, partitions: int, seconds: float) -> list[str]:
        """Return what follows the port on kload's command line."""
        fixed = [topic, str(partitions), str(self.connections), str(self.depth), str(seconds)]
        return fixed + list(self.records)


def small_produce(connections: int, depth: int, expected_ratio: float | None) -> Case:
    """Return the case of one record of 100 bytes a request, acks=1, against bare echo."""
    title = f"small Produce, {connections} connections, depth {depth}"
    return Case(title, "produce", connections, depth, ("1", "100"), "echo", "req_s", expected_ratio)


def one_megabyte_fetch(title: str, ruler_bytes: int) -> Case:
    """Return the case of one batch a fetch, against bare file with answers of so many bytes."""
    return Case(title, "fetch", 4, 1, (str(FETCH_BYTES),), "file", "mb_s", 0.7, ruler_bytes)


CASES = (
    small_produce(16, 1, None),
    small_produce(64, 1, 0.5),
    small_produce(16, 16, None),
    small_produce(64, 16, None),
    Case("ApiVersions, 64 connections, depth 1", "api", 64, 1, (), "echo", "req_s", None),
    Case("1 MB Produce, 4 connections", "produce", 4, 1, MEGABYTE_RECORDS, "append", "mb_s", 0.7),
    one_megabyte_fetch("1 MB Fetch, 4 connections", BATCH_BYTES),
    one_megabyte_fetch("1 MB Fetch, 4 connections, ruler with 2^20 bytes", FETCH_BYTES),
)

BESIDE_GROUPS = small_produce(64, 1, 0.9)
GROUPS = 1000
GROUP_CONNECTIONS = 32
HEARTBEAT_MS = 3000
#: Offsets, as Kafka counts commits (`offset-commit-rate`), and how many of them a member commits at once.
COMMITS_PER_SECOND = 10_000
OFFSETS_PER_COMMIT = (4, 1)

#: With the request log against without it, in requests or megabytes a second.
REQUEST_LOG = (
    small_produce(64, 1, 0.97),
    small_produce(64, 16, 0.97),
    Case("1 MB Produce, 4 connections", "produce", 4, 1, MEGABYTE_RECORDS, "append", "mb_s", 0.99),
)

#: What so many browsers on the status page add to the broker's processor time, at 500 requests/s of 64 connections.
WATCHED = Case("", "produce", 64, 1, ("1", "100", "1", "500"), "echo", "req_s", None)
BROWSERS = 20
WATCHED_CPU_PERCENT = 1.0

PRODUCE_TO_FETCH_P50_US = 400.0
READY_SECONDS = 0.5
FIRST_ACKNOWLEDGED_SECONDS = 0.5
IDLE_MEMORY_MB = 150.0
IDLE_CPU_PERCENT = 0.5
