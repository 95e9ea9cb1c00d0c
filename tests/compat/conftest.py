"""Java as tests start it: what runs for seconds is not worth the slower compiler of its two."""

import os
from collections.abc import Iterator

import pytest

TOOL_OPTIONS = "JAVA_TOOL_OPTIONS"


@pytest.fixture(scope="package", autouse=True)
def quick_java() -> Iterator[None]:
    """Have every Java that is started here, clients and brokers, compile quickly."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(TOOL_OPTIONS, f"{os.environ.get(TOOL_OPTIONS, '')} -XX:TieredStopAtLevel=1".strip())
        yield
