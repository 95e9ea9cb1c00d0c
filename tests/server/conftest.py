"""What the tests of the request loop share."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.group_requests import broker_with_groups
from tests.support.stepped_broker import SteppedBroker


@pytest.fixture
def stepped(tmp_path: Path) -> Iterator[SteppedBroker]:
    """Yield two handlers and a controller that are turned by hand, with a topic of four partitions."""
    broker = SteppedBroker(tmp_path)
    broker.create("topic", 4)
    yield broker
    broker.close()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[SteppedBroker]:
    """Yield two handlers and a controller that are turned by hand, with a topic of four partitions and groups."""
    with broker_with_groups(tmp_path) as running:
        yield running
