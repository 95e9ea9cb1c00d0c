"""The pytest plugin: fixtures for a broker, test topics, and the requests that clients sent.

Pytest loads it in every project that has this distribution installed; it does nothing until a test uses one of its
fixtures. Under pytest-xdist each worker is a process with its own broker.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import pytest

from rotunda.broker.clock import SystemClock
from rotunda.broker.errors import RotundaError, UsageError

if TYPE_CHECKING:
    from rotunda.broker.testing.broker_pool import Broker, BrokerPool
    from rotunda.broker.testing.requests import Request
    from rotunda.broker.testing.running_broker import RotundaBroker

#: Numbers of requests and log lines in the report of a failed test.
REPORTED_REQUESTS: Final = 30
REPORTED_LINES: Final = 50

_LONGEST_NAME: Final = 100
#: The part of a test's id for its marker: none, so that ids do not change with settings. Before pytest 8.4: a word.
_HIDDEN: Final[Any] = getattr(pytest, "HIDDEN_PARAM", "rotunda")
_POOL: Final = pytest.StashKey["BrokerPool"]()
_USED: Final = pytest.StashKey[tuple["RotundaBroker", int, int, int]]()


_OPTIONS: Final = {
    "external": ("HOST:PORT", "use this broker, Kafka as well, and start none"),
    "config": ("FILE", "a server.properties file for the brokers that are started"),
    "keep": ("DIR", "keep data and logs of the brokers in this directory"),
}


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare --rotunda-external and the other options, and ini values with the same names."""
    group = parser.getgroup("rotunda", "Kafka for tests, by Rotunda")
    for name, (metavar, text) in _OPTIONS.items():
        group.addoption(f"--rotunda-{name}", metavar=metavar, default=None, help=text)
        parser.addini(f"rotunda_{name}", text, default="")


def pytest_configure(config: pytest.Config) -> None:
    """Declare the markers."""
    config.addinivalue_line(
        "markers", "rotunda(settings): settings of the broker, by Kafka's names, for the tests that are marked"
    )
    config.addinivalue_line(
        "markers", "rotunda_topic(partitions=1, settings={}): how the topic of `rotunda_topic` is made"
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Parametrize the broker of tests with the marker by its settings."""
    marker = metafunc.definition.get_closest_marker("rotunda")
    if marker is not None and "rotunda_broker" in metafunc.fixturenames:
        settings = _settings_of(marker)
        metafunc.parametrize("rotunda_broker", [settings], indirect=True, scope="session", ids=[_HIDDEN])


def _settings_of(marker: pytest.Mark) -> Mapping[str, object]:
    settings = marker.args[0] if marker.args else marker.kwargs.get("settings", {})
    given = len(marker.args) + len(marker.kwargs)
    if given > 1 or marker.kwargs.keys() - {"settings"} or not isinstance(settings, Mapping):
        words = ", ".join([*map(repr, marker.args), *(f"{name}={value!r}" for name, value in marker.kwargs.items())])
        raise pytest.Collector.CollectError(
            f"@pytest.mark.rotunda({words}): only settings are accepted, a mapping of Kafka's names, such as "
            'settings={"num.partitions": 3}'
        )
    return settings


def pytest_unconfigure(config: pytest.Config) -> None:
    """Stop all brokers."""
    pool = config.stash.get(_POOL, None)
    if pool is not None:
        pool.stop()


@pytest.fixture(scope="session")
def rotunda_broker(request: pytest.FixtureRequest) -> Broker:
    """Return a broker that runs until the session ends: one for all tests, one per marker value."""
    return _pool(request.config).of(getattr(request, "param", {}))


@pytest.fixture(scope="session")
def rotunda_bootstrap(rotunda_broker: Broker) -> str:
    """Return the value of bootstrap.servers for clients."""
    return rotunda_broker.bootstrap


@pytest.fixture
def rotunda_topic(rotunda_broker: Broker, request: pytest.FixtureRequest) -> Iterator[str]:
    """Create a topic for the test, named after it, and delete it afterwards."""
    marker = request.node.get_closest_marker("rotunda_topic")
    made = {} if marker is None else marker.kwargs
    if marker is not None and (marker.args or made.keys() - {"partitions", "settings"}):
        raise UsageError("@pytest.mark.rotunda_topic accepts only partitions=, a number, and settings=, a mapping")
    test = re.sub(r"[^A-Za-z0-9._-]+", "-", request.node.name)[:_LONGEST_NAME]
    name = f"{test}-{uuid.uuid4().hex[:8]}"
    rotunda_broker.create_topic(name, **made)
    yield name
    # If the test killed or stopped its broker, the topic no longer exists.
    with suppress(RotundaError):
        rotunda_broker.delete_topic(name)


@pytest.fixture
def rotunda_reset(rotunda_broker: Broker) -> Callable[[], list[str]]:
    """Delete all topics and groups before the test; return a function that repeats this."""
    rotunda_broker.reset()
    return rotunda_broker.reset


@pytest.fixture
def rotunda_requests(rotunda_broker: Broker) -> Callable[..., list[Request]]:
    """Return a function that lists client requests since the start of the test; see `RotundaBroker.requests`."""
    begun_us = SystemClock.wall_ms() * 1000

    def requests(api: str | None = None, *, client_id: str | None = None, topic: str | None = None) -> list[Request]:
        found: list[Request] = rotunda_broker.requests(api, client_id=client_id, topic=topic, since_us=begun_us)
        return found

    return requests


@pytest.fixture
def rotunda_brokers(request: pytest.FixtureRequest) -> Iterator[Callable[..., Broker]]:
    """Return a function that starts further brokers, with their own settings, until the test ends."""
    started: list[Broker] = []

    def start(settings: Mapping[str, object] | None = None) -> Broker:
        started.append(_pool(request.config).new(settings or {}))
        return started[-1]

    yield start
    for broker in started:
        broker.stop()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Iterator[None]:
    """Record the start of a test with a broker: its report covers the time since then."""
    begun_us = SystemClock.wall_ms() * 1000
    pool = item.config.stash.get(_POOL, None)
    before = {} if pool is None else pool.totals()
    yield
    broker = getattr(item, "funcargs", {}).get("rotunda_broker")
    if broker is not None and not broker.is_external:
        item.stash[_USED] = broker, begun_us, *before.get(broker, (0, 0))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    """Cancel the test's faults before its fixtures end, so that clients close without them."""
    pool = item.config.stash.get(_POOL, None)
    if pool is not None:
        pool.clear_faults()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, None]:
    """Add the last requests and the broker's log to the report of a failed test."""
    outcome = yield
    report = outcome.get_result()
    used = item.stash.get(_USED, None)
    if used is not None and report.when in ("setup", "call") and report.failed:
        broker, begun_us, log_begun, faults_begun = used
        try:
            requests = broker.requests(since_us=begun_us)
            text = "\n".join(map(str, requests[-REPORTED_REQUESTS:])) or "none"
        except (RotundaError, OSError) as failure:
            text = f"not known: {failure}"
        report.sections.append(("rotunda: the last requests", text))
        if injected := broker.faults[faults_begun:]:
            report.sections.append(("rotunda: injected faults", "\n".join(map(str, injected))))
        lines = broker.log_text()[log_begun:].splitlines()
        if lines:
            report.sections.append(("rotunda: the broker's log", "\n".join(lines[-REPORTED_LINES:])))


def _pool(config: pytest.Config) -> BrokerPool:
    if _POOL not in config.stash:
        # Every pytest run with this distribution loads the plugin; few use a broker.
        from rotunda.broker.testing.broker_pool import BrokerPool  # noqa: PLC0415

        options = {
            name: str(config.getoption(f"--rotunda-{name}") or config.getini(f"rotunda_{name}")) for name in _OPTIONS
        }
        config.stash[_POOL] = BrokerPool(**options)
    return config.stash[_POOL]
