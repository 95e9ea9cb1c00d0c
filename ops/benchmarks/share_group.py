"""A share group as a load: the rate at which its members read a topic, each a thread with librdkafka.

Its records are accepted by the poll that follows. Knows neither the broker nor what its rates are compared with.
"""

import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType

from confluent_kafka import ShareConsumer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from ops.benchmarks import librdkafka
from ops.broker import ProgramError

TITLE = "share group of 8 consumers, records of 100 B"
MEMBERS = PARTITIONS = 8
RECORDS = 1_000_000
RECORD_BYTES = 100
EXPECTED_RATIO = 1.0
#: Within it no lock expires, so that every record is counted once.
DEADLINE_S = 60.0
CONFIG: Mapping[str, str] = MappingProxyType(
    {"share.auto.offset.reset": "earliest", "share.record.lock.duration.ms": f"{DEADLINE_S * 1000:.0f}"}
)
_POLL_S = 0.1
#: The log level without the warning that its share consumer is a preview.
_ERRORS = 3


@dataclass
class Read:
    """The number of records that one member has read, and the time of the last."""

    records: int = 0
    last: float = 0.0


def fill(settings: librdkafka.Settings, topic: str, records: int) -> None:
    librdkafka.create(settings, [topic], PARTITIONS)
    values = librdkafka.texts(1000, RECORD_BYTES)
    for partition in range(PARTITIONS):
        # The record of the connection is one of them.
        librdkafka.produced(settings, topic, values, records // PARTITIONS - 1, partition)


def rate(settings: librdkafka.Settings, topic: str, group: str, records: int) -> float:
    """Return the records a second of a new group, from the start of its members to the last record of its topic."""
    changes = [ConfigEntry(*each, incremental_operation=AlterConfigOpType.SET) for each in CONFIG.items()]
    resource = ConfigResource(ResourceType.GROUP, group, incremental_configs=changes)
    admin = AdminClient(settings)  # its requests end with it
    admin.incremental_alter_configs([resource])[resource].result(DEADLINE_S)
    reads = [Read() for _ in range(MEMBERS)]
    begun = time.monotonic()
    member = partial(_member, settings | {"group.id": group, "log_level": _ERRORS}, topic, records, reads)
    with ThreadPoolExecutor(MEMBERS) as threads:
        list(threads.map(member, reads))
    return records / (max(each.last for each in reads) - begun)


def _member(settings: librdkafka.Settings, topic: str, records: int, reads: list[Read], own: Read) -> None:
    """Poll until all members together have read the records."""
    deadline = time.monotonic() + DEADLINE_S
    with ShareConsumer(settings) as member:
        member.subscribe([topic])
        while (found := sum(each.records for each in reads)) < records:
            if time.monotonic() > deadline:
                raise ProgramError(f"{found} of {records} records were read in {DEADLINE_S:.0f} s")
            if read := sum(message.error() is None for message in member.poll(_POLL_S)):
                own.records, own.last = own.records + read, time.monotonic()
