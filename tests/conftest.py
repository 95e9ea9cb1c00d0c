"""Fixtures for every test. The brokers among them are real ones; a module shares one of each kind."""

import gc
import os
import uuid
from collections.abc import Generator, Iterator
from contextlib import suppress
from itertools import chain, cycle, groupby
from pathlib import Path

import hypothesis
import pytest
import pytest_timeout

from ops.compatibility import preparation
from rotunda.broker.log.segments.open_segments import OPEN_SEGMENTS
from tests.support.broker_process import BrokerProcess
from tests.support.deadline import deadline_s
from tests.support.sampling import Sampling
from tests.support.shared_kafka import SharedKafka, shared_kafka
from tests.support.wire_client import WireClient

#: Rooms of Java, of whole brokers and of packages.
QUICK_LEAVES_OUT = {
    *("bench", "cli", "compat", "faults", "integration", "litmus", "native", "packaging", "reliability"),
    *("spark", "supervisor", "testing", "upgrade"),
}

# The time of an example, or of its generation, depends more on the machine than on the tested code.
hypothesis.settings.register_profile(
    "any machine", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("any machine")


def pytest_timeout_set_timer(item: pytest.Item, settings: pytest_timeout.Settings) -> object:
    """Give a test more time on a busy machine."""
    return pytest_timeout.pytest_timeout_set_timer(item, settings._replace(timeout=deadline_s(settings.timeout)))


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("rotunda's own tests")
    group.addoption("--quick", action="store_true", help="leave out tests of a broker, Java, a browser or Spark")
    group.addoption("--whole", action="store_true", help="run every case of tests that have a sample of them otherwise")
    group.addoption("--compat", action="store_true", help="run the tests of clients that are left out otherwise")


def is_chosen(item: pytest.Item) -> bool:
    """Return whether a test belongs to the run that the options name."""
    if item.config.getoption("--compat") != (item.get_closest_marker("compat") is not None):
        return False
    return is_quick(item) or not item.config.getoption("--quick")


def is_quick(item: pytest.Item) -> bool:
    """Return whether a test needs no other program, and no whole broker unless it is the walk of a client library."""
    if item.get_closest_marker("walk"):
        return True
    if QUICK_LEAVES_OUT & set(item.path.parts) or "browser" in getattr(item, "fixturenames", ()):
        return False
    return not any(map(item.get_closest_marker, ("slow", "needs")))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect tests without garbage collections: each goes through all tests collected so far, and finds nothing."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Prepare the parts that a test needs, before the fixtures that use them."""
    for marker in item.iter_markers("needs"):
        for part in marker.args:
            preparation.prepare(part)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Choose the tests, and deal them to the workers."""
    left_out = [item for item in items if not is_chosen(item)]
    config.hook.pytest_deselected(items=left_out)
    chosen = [item for item in items if is_chosen(item)]
    items[:] = dealt(chosen, int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")))


def dealt(items: list[pytest.Item], workers: int) -> list[pytest.Item]:
    """Return the tests in an order of which each worker gets an equal part, and runs it from its beginning.

    Modules of Spark are at the beginning of one part, and those of the shared Kafka at another's, so other workers
    start neither. Slow modules are at the beginnings of the rest: short tests are left for the end, when workers steal
    from each other.
    """
    kafka = {item.path for item in items if "apache_kafka" in getattr(item, "fixturenames", ())}
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    parts: list[list[pytest.Item]] = [[] for _ in range(workers)]
    places = {"spark": cycle(parts[:1]), "kafka": cycle(parts[1:2] or parts), "slow": cycle(parts[2:] or parts)}
    short: list[pytest.Item] = []
    for path, tests in groupby(items, lambda item: item.path):
        if "spark" in path.parts:
            next(places["spark"]).extend(tests)
        elif path in kafka:
            next(places["kafka"]).extend(tests)
        elif path in slow:
            next(places["slow"]).extend(tests)
        else:
            short += tests
    for number, part in enumerate(parts):
        missing = max(0, (len(items) - sum(map(len, parts[:number]))) // (workers - number) - len(part))
        part.extend(short[:missing])
        del short[:missing]
    return list(chain(*parts, short))


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[BrokerProcess]:
    """Run a broker with two processors and two handlers; a module's BROKER_SETTINGS and BROKER_OPTIONS are added."""
    settings = {
        "num.network.threads": 2,
        "num.io.threads": 2,
        **getattr(request.module, "BROKER_SETTINGS", {}),
    }
    options = getattr(request.module, "BROKER_OPTIONS", {})
    running = BrokerProcess(tmp_path_factory.mktemp("broker"), settings, **options).start()
    yield running
    running.stop()


@pytest.fixture(scope="session")
def apache_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedKafka]:
    """Run one Apache Kafka in a worker."""
    with shared_kafka(tmp_path_factory.mktemp("kafka")) as running:
        yield running


@pytest.fixture
def wire(broker: BrokerProcess) -> Iterator[WireClient]:
    """Yield a raw connection to the shared broker."""
    with WireClient(broker.port) as client:
        yield client


@pytest.fixture
def sampling(request: pytest.FixtureRequest) -> Sampling:
    """Return a choice of a test's cases."""
    return Sampling(request.config.getoption("--whole"))


@pytest.fixture
def topic() -> str:
    """Return a topic name that no other test uses."""
    return f"topic-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def broker_directory(tmp_path: Path) -> Path:
    """Return a directory for a broker of the test's own."""
    directory = tmp_path / "broker"
    directory.mkdir()
    return directory


@pytest.fixture
def own_broker(broker_directory: Path, request: pytest.FixtureRequest) -> Iterator[BrokerProcess]:
    """Run a broker for one test, with a module's OWN_SETTINGS and OWN_OPTIONS."""
    options = getattr(request.module, "OWN_OPTIONS", {})
    running = BrokerProcess(broker_directory, getattr(request.module, "OWN_SETTINGS", {}), **options).start()
    yield running
    if running.is_running():
        running.stop()


@pytest.fixture(autouse=True)
def _segments_go_with_their_test() -> Iterator[None]:
    """Forget segments that a test leaves open, as a killed process does: their descriptors may be others' by now."""
    before = set(OPEN_SEGMENTS._seen)
    yield
    for segment in set(OPEN_SEGMENTS._seen) - before:
        OPEN_SEGMENTS.forget(segment)


def _descriptors() -> set[int]:
    return {int(name) for name in os.listdir("/proc/self/fd")}


@pytest.fixture
def close_abandoned_files(tmp_path: Path) -> Iterator[None]:
    """Close the files of a test's own directory that it leaves open, as the kernel does for a killed process.

    Another thread of this process may have opened others meanwhile.
    """
    before = _descriptors()
    yield
    for fd in _descriptors() - before:
        with suppress(OSError):
            if Path(f"/proc/self/fd/{fd}").readlink().is_relative_to(tmp_path):
                os.close(fd)
