"""Fixtures of several tests of a running broker: an admin client, a random source, and brokers with a request log."""

import random
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from tests.support.broker_process import BrokerProcess
from tests.support.feeds import random_seed
from tests.support.request_log import Start, recording_brokers


@pytest.fixture
def admin(broker: BrokerProcess) -> AdminClient:
    """Return librdkafka's admin client."""
    return AdminClient({"bootstrap.servers": broker.bootstrap})


@pytest.fixture
def chance() -> random.Random:
    """Return a random source whose seed is shown when the test fails."""
    seed = random_seed()
    print(f"seed {seed}")
    return random.Random(seed)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Yield a function that starts a broker with a request log whose files are finished every half second."""
    yield from recording_brokers(tmp_path)


@pytest.fixture
def held() -> Iterator[ExitStack]:
    """Yield an exit stack that closes connections at the end."""
    with ExitStack() as stack:
        yield stack
