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

    A module's TOPICS are created, by name with their partitions; a test's parameter contains its own settings. With
    the mark `stepped`, whose arguments are topics and options of a broker, it has no groups.
    """
    marker = request.node.get_closest_marker("stepped")
    if marker is not None:
        topics, configs = marker.args[0], marker.kwargs.get("configs")
        running = SteppedBroker(tmp_path, **{key: value for key, value in marker.kwargs.items() if key != "configs"})
        for name, partitions in topics.items():
            running.create(name, partitions, configs)
        running.settle()
        yield running
        running.close()
        return
    topics = getattr(request.module, "TOPICS", {"topic": 4})
    with broker_with_groups(tmp_path, topics, getattr(request, "param", None)) as running:
        yield running


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[AdminCluster]:
    """Yield a controller and the handlers' metadata, without topics."""
    made = AdminCluster(tmp_path)
    yield made
    made.close()
