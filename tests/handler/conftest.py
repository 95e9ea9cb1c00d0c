"""Fixtures of the request loop's tests."""

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.admin_cluster import AdminCluster
from tests.support.groups.requests import broker_with_groups
from tests.support.stepped_broker import SteppedBroker


@pytest.fixture(autouse=True)
def _garbage_as_it_was() -> Iterator[None]:
    """Restore the collector's thresholds: a handler's loop changes those of its process."""
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)


@pytest.fixture
def stepped(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[SteppedBroker]:
    """Yield handlers and a controller run by the test: two handlers, with a topic of four partitions.

    The arguments of the mark `stepped` are other topics, by name with their partitions, and options of the broker.
    """
    marker = request.node.get_closest_marker("stepped")
    topics, options = (marker.args[0], dict(marker.kwargs)) if marker else ({"topic": 4}, {})
    configs = options.pop("configs", None)
    running = SteppedBroker(tmp_path, **options)
    for name, partitions in topics.items():
        running.create(name, partitions, configs)
    if marker:
        running.settle()
    yield running
    running.close()


@pytest.fixture
def broker(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[SteppedBroker]:
    """Yield two handlers and a controller run by the test, for groups and transactions.

    A module's TOPICS are created, by name with their partitions; a test's parameter contains its own settings. With
    the mark `stepped` it is the broker of that fixture, which has no groups.
    """
    if request.node.get_closest_marker("stepped"):
        yield request.getfixturevalue("stepped")
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
