"""A generated request log: random rows of any dataset, with rows of known content added.

Files are at the recorder's paths, with the recorder's own schemas. A column that a row does not name has the value of a
harmless request.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from rotunda.broker.request_log.columns import DATASETS
from rotunda.broker.request_log.part_files import hour_path
from rotunda.broker.request_log.tables import schema_of

Row = Mapping[str, Any]

#: Key, name, and whether it names a topic.
APIS = {"PRODUCE": 0, "FETCH": 1, "METADATA": 3, "OFFSET_COMMIT": 8, "HEARTBEAT": 12}
ERRORS = {0: "NONE", 3: "UNKNOWN_TOPIC_OR_PARTITION", 6: "NOT_LEADER_OR_FOLLOWER", 22: "ILLEGAL_GENERATION"}
PHASES = ("requestQueueTimeUs", "localTimeUs", "remoteTimeUs", "responseQueueTimeUs", "sendTimeUs")
START = datetime(2026, 3, 1, 10, tzinfo=UTC)

#: Columns of `requests` that the first brokers with a request log did not write.
LATER_COLUMNS = (
    "codec",
    "recordBytes",
    "maxWaitMs",
    "throttledBy",
    "injected",
    "deniedOperation",
    "deniedResourceType",
    "deniedResource",
)

_ZEROS = {"int16": 0, "int32": 0, "int64": 0, "double": 0.0, "bool": False, "string": ""}
_numbers = count()


def request(time: datetime, **columns: object) -> dict[str, Any]:
    """Return a row of `requests`: a Produce of client `app` unless columns override it; the total is computed."""
    row: dict[str, Any] = {
        "time": time, "requestApiKeyName": "PRODUCE", "requestApiVersion": 11, "connection": "0-1-1",
        "clientId": "app", "softwareName": "librdkafka", "softwareVersion": "2.8.0", "address": "10.0.0.1",
        "principal": "User:ANONYMOUS", "securityProtocol": "PLAINTEXT", "listener": "PLAINTEXT", "topic": "events",
        "partition": 0, "partitionCount": 1, "records": 10, "requestBytes": 1000, "responseBytes": 60, "acks": -1,
        "requestQueueTimeUs": 20, "localTimeUs": 100, "remoteTimeUs": 0, "responseQueueTimeUs": 15, "sendTimeUs": 10,
        "errorCode": 0, "sampleWeight": 1, "recordBytes": 900, "codec": "none",
    }  # fmt: skip
    row |= columns
    row["requestApiKey"] = row.get("requestApiKey", APIS.get(row["requestApiKeyName"]))
    row.setdefault("errorName", ERRORS[row["errorCode"]])
    row["totalTimeUs"] = sum(row[phase] for phase in PHASES)
    return row


def random_requests(seed: int, rows: int, hours: int = 2) -> list[dict[str, Any]]:
    """Return requests of a few clients, topics and versions over some hours, with nulls, errors and sample weights."""
    chance = random.Random(seed)
    return [_random_request(chance, hours) for _ in range(rows)]


def _random_request(chance: random.Random, hours: int) -> dict[str, Any]:
    api = chance.choice(list(APIS))
    client = chance.choice(["app", "billing", "app", None])
    topic = chance.choice(["events", "orders", "orders"]) if APIS[api] <= 1 else None
    phases = {phase: int(chance.expovariate(1) * 10 ** chance.randint(0, 6)) for phase in PHASES}
    return request(
        START + timedelta(microseconds=chance.randrange(hours * 3_600_000_000)),
        requestApiKeyName=api, requestApiVersion=chance.randint(0, 3), clientId=client, topic=topic,
        softwareName=chance.choice(["librdkafka", "apache-kafka-java", None]), address=f"10.0.0.{chance.randint(1, 9)}",
        listener=chance.choice(["PLAINTEXT", "INTERNAL"]), connection=f"0-1-{chance.randint(1, 20)}",
        partition=None if topic is None else chance.choice([0, 0, 0, 1, 2]),
        records=None if topic is None else chance.randrange(1000), requestBytes=chance.randrange(100_000),
        responseBytes=chance.randrange(10_000), errorCode=chance.choice([0] * 20 + [3, 6, 22]),
        sampleWeight=chance.choice([1, 1, 1, 7]), slow=chance.random() < 0.1,
        throttleTimeUs=chance.choice([0, 0, 5000]),
        recordBytes=None if topic is None else chance.randrange(100_000), **phases,
    )  # fmt: skip


def write(root: Path, dataset: str, rows: Iterable[Row], without: Iterable[str] = ()) -> list[Path]:
    """Write rows of a dataset, a file for each hour, and return the files; `without` are columns of later versions."""
    schema = pa.schema(schema_of(DATASETS[dataset]))
    by_hour: dict[int, list[Row]] = defaultdict(list)
    for row in rows:
        by_hour[int(row["time"].timestamp()) // 3600].append(row)
    files = []
    for hour, of_hour in sorted(by_hour.items()):
        columns = {c.name: [row.get(c.name, _default(c)) for row in of_hour] for c in DATASETS[dataset].columns}
        path = hour_path(root, dataset, hour) / f"part-generated-1-{next(_numbers)}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table(columns, schema).drop_columns(list(without)), path, compression="zstd")
        files.append(path)
    return files


def _default(column: Any) -> object:
    return None if column.nullable else _ZEROS.get(column.kind)
