"""Brokers with a request log under test: how they are started, and the contents of their finished files."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from confluent_kafka.admin import AdminClient, ResourceType

from rotunda.broker.request_log.part_files import dataset_path, finished
from tests.support.broker_process import BrokerProcess
from tests.support.broker_settings import set_configs

Start = Callable[..., BrokerProcess]


def recording_brokers(directory: Path) -> Iterator[Start]:
    """Yield a function that starts a broker whose files are finished every half second; stop them all in the end.

    Settings are given by name with underscores.
    """
    brokers: list[BrokerProcess] = []

    def start(**settings: object) -> BrokerProcess:
        names = {name.replace("_", "."): value for name, value in settings.items()}
        made = BrokerProcess(directory, {"request.log.roll.ms": 500, **names}, ephemeral=False)
        brokers.append(made.start())
        return made

    yield start
    for broker in brokers:
        if broker.is_running():
            broker.stop()


def read(broker: BrokerProcess, dataset: str) -> pa.Table:
    """Return everything that finished files of a dataset hold."""
    paths = [part.path for part in finished(dataset_path(broker.data_dir / "request-log", dataset))]
    tables = [pq.read_table(path, partitioning=None) for path in sorted(paths)]
    return pa.concat_tables(tables) if tables else pa.table({})


def rows(broker: BrokerProcess, dataset: str) -> list[dict[str, Any]]:
    """Return the same row by row."""
    return read(broker, dataset).to_pylist()


def pid_of(broker: BrokerProcess, role: str) -> int:
    """Return the process id of the first process of a role."""
    (row,) = [row for row in broker.processes(role) if row["index"] == 0]
    return int(row["pid"])


def set_while_running(broker: BrokerProcess, **settings: object) -> None:
    """Change settings of the broker as an admin client does."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    set_configs(admin, ResourceType.BROKER, "1", {name.replace("_", "."): each for name, each in settings.items()})
