"""Java as tests start it: programs that run for seconds are not worth the slower of its two compilers."""

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
