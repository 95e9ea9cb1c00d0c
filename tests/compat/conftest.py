"""Fixtures of tests with clients: Java that compiles quickly, and brokers that die while clients write."""

import os
from collections.abc import Iterator

import pytest

from tests.compat.dying_brokers import DyingBroker, DyingKafka, DyingRotunda

TOOL_OPTIONS = "JAVA_TOOL_OPTIONS"


@pytest.fixture(scope="package", autouse=True)
def quick_java() -> Iterator[None]:
    """Have every Java that is started here, clients and brokers, compile quickly: programs of seconds gain by it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(TOOL_OPTIONS, f"{os.environ.get(TOOL_OPTIONS, '')} -XX:TieredStopAtLevel=1".strip())
        yield


@pytest.fixture(scope="package", params=[DyingRotunda, DyingKafka], ids=["rotunda", "kafka"])
def dying(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DyingBroker]:
    """Yield our broker, and Kafka."""
    running = request.param(tmp_path_factory.mktemp("broker"))
    yield running
    running.stop()
