"""Fixtures of the request loop's tests."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.admin_cluster import AdminCluster
from tests.support.groups.requests import broker_with_groups
from tests.support.stepped_broker import SteppedBroker


@pytest.fixture
def stepped(tmp_path: Path) -> Iterator[SteppedBroker]:
    """Yield two handlers and a controller run by the test, with a topic of four partitions."""
    broker = SteppedBroker(tmp_path)
    broker.create("topic", 4)
    yield broker
    broker.close()


@pytest.fixture
def broker(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[SteppedBroker]:
    """Yield two handlers and a controller run by the test, for groups and transactions.

    A module's TOPICS are created, by name with their partitions; a test's parameter contains its own settings.
    """
    topics = getattr(request.module, "TOPICS", {"topic": 4})
    with broker_with_groups(tmp_path, topics, getattr(request, "param", None)) as running:
        yield running


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[AdminCluster]:
    """Yield a controller and the handlers' metadata, without topics."""
    made = AdminCluster(tmp_path)
    yield made
    made.close()
