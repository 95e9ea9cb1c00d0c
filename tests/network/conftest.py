"""The processor shared by most tests of the network."""

from collections.abc import Iterator

import pytest

from tests.support.processor_bench import ProcessorBench


@pytest.fixture
def bench(request: pytest.FixtureRequest) -> Iterator[ProcessorBench]:
    """Yield a processor run by the test, with a module's BENCH_OPTIONS."""
    with ProcessorBench(**getattr(request.module, "BENCH_OPTIONS", {})) as running:
        yield running
