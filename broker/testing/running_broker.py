"""A broker for tests: one that is started and stopped by them, or an external one.

Runs in the process of the tests. A started broker has free ports, a temporary directory of its own, and settings for a
short life: data is not forced to disk, groups do not wait for more members, request log rows are readable at once, and
topics may request any replication factor.
All other settings are the user's.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from rotunda.broker.cli.instance.start import EPHEMERAL_PREFIX
from rotunda.broker.clock import SystemClock
from rotunda.broker.errors import RotundaError, UsageError
from rotunda.broker.faults.fault import FaultKind
from rotunda.broker.native import PURE_PYTHON_VARIABLE
from rotunda.broker.runtime import run_dir
from rotunda.broker.testing import cluster
from rotunda.broker.testing.faults import Faults, FaultScope, InjectedFault, api_named, error_of, milliseconds_of
from rotunda.broker.testing.supervisor_end import has_ended, remove_files_of
from rotunda.shm.control import ControlSegment
from rotunda.shm.segment import attach, new_instance

if TYPE_CHECKING:
    from types import TracebackType

    from rotunda.broker.records.record_reader import Record
    from rotunda.broker.runtime.run_dir import RunRecord
    from rotunda.broker.testing.records import Value
    from rotunda.broker.testing.requests import Request
    from rotunda.shm.tables.process_slots import ProcessStatus

#: Default settings, unless the user sets them.
SETTINGS: Final[Mapping[str, object]] = {
    "listeners": "PLAINTEXT://127.0.0.1:0",
    "status.port": 0,
    "num.network.threads": 1,
    "num.io.threads": 2,
    "group.initial.rebalance.delay.ms": 0,
    "request.log.roll.ms": 100,
    "one.replica.suffices": True,
}

START_S: Final = 120.0
#: Longer than shutdown.timeout.ms, after which the broker kills its remaining processes.
STOP_S: Final = 20.0
_LOOK_AGAIN_S: Final = 0.005
_LOG_NAME: Final = "broker.log"
_VARIABLES: Final = ("ROTUNDA_", "KAFKA_")


class RotundaBroker:
    """A broker that runs during a `with` block, or from `start` to `stop`.

    >>> with RotundaBroker({"num.partitions": 3}) as broker:
    ...     producer = Producer({"bootstrap.servers": broker.bootstrap})
    """

    is_external = False

    def __init__(
        self, settings: Mapping[str, object] | None = None, *, config: Path | None = None, keep: Path | None = None
    ) -> None:
        """Set ``settings`` by Kafka's names, in addition to those of ``config``, a server.properties file.

        Its files are deleted at its end, unless ``keep`` is a directory for data and logs.
        """
        self.settings = dict(settings or {})
        self.bootstrap = ""
        self._config = config
        self._keep = keep
        self._directory = Path()
        self._process: subprocess.Popen[bytes] | None = None
        self._is_stopping = False
        self._record: RunRecord | None = None
        self._injected: Faults | None = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, failure: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> Self:
        """Start the broker; return when it is ready. Raises RotundaError, with its output, if it fails."""
        if self._process is not None:
            raise UsageError("this broker runs already; stop it first, or make another one")
        if self._keep is None:
            # If this process is killed, the next broker that starts finds and removes the directory by this name.
            self._directory = Path(tempfile.mkdtemp(prefix=f"{EPHEMERAL_PREFIX}{new_instance()}-"))
        else:
            self._directory = self._keep
            self._directory.mkdir(parents=True, exist_ok=True)
        with (self._directory / _LOG_NAME).open("ab") as log:
            self._process = subprocess.Popen(
                self._command(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                # Settings in the environment are for the developer's other brokers.
                env={
                    name: value
                    for name, value in os.environ.items()
                    if name == PURE_PYTHON_VARIABLE or not name.startswith(_VARIABLES)
                },
            )
        self._is_stopping = False
        try:
            self._record = self._ready_record(self._process)
        except BaseException:
            self.stop()
            raise
        self.bootstrap = self._record.bootstrap.partition(",")[0]
        return self

    def stop(self) -> None:
        """Stop the broker and delete its files, unless they are kept. Idempotent.

        Kept data is flushed first, as in any broker's shutdown; otherwise the processes are killed.
        """
        self.begin_stop()
        process, self._process = self._process, None
        if process is None:
            return
        self._injected = None
        if not has_ended(process, STOP_S):
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        if process.returncode < 0:
            remove_files_of(self._record)
        if self._keep is None:
            shutil.rmtree(self._directory, ignore_errors=True)

    def begin_stop(self) -> None:
        """Start to stop without waiting, which `stop` does. Idempotent."""
        if self._process is not None and not self._is_stopping:
            # Once: a second signal would force an immediate stop.
            self._is_stopping = True
            self._process.send_signal(signal.SIGTERM)

    @property
    def status_url(self) -> str:
        """The address of its status page; empty if disabled."""
        return self._running().status_url

    @property
    def data_dir(self) -> Path:
        """Directory of its records and its request log."""
        return Path(self._running().data_dir)

    @property
    def pid(self) -> int:
        """The process id of its supervisor."""
        return self._running().pid

    def log_text(self) -> str:
        """Return its log."""
        path = self._directory / _LOG_NAME
        return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""

    def create_topic(self, name: str, partitions: int = 1, settings: Mapping[str, object] | None = None) -> None:
        """Create a topic. Raises ApiError."""
        cluster.create_topic(self._address, name, partitions, settings or {})

    def delete_topic(self, name: str) -> None:
        """Delete a topic, if it exists."""
        cluster.delete_topics(self._address, [name])

    def reset(self) -> list[str]:
        """Cancel all faults, delete all topics and groups. Return the groups with members, which are not deleted."""
        self.clear_faults()
        return cluster.reset(self._address)

    def produce(self, topic: str, *values: Value, key: Value = None, partition: int | None = None) -> None:
        """Write a record for each value, and return when all are stored. Raises KafkaError."""
        from rotunda.broker.testing.records import produce  # noqa: PLC0415 - a producer takes a while to import

        produce(self._address, topic, values, key, partition)

    def consume(self, topic: str, count: int | None = None, *, timeout_s: float = 10.0) -> list[Record]:
        """Return the topic's first records, in the order of each partition.

        Without ``count``: the present ones. With it, wait for that number. Raises RotundaError if there are fewer.
        """
        from rotunda.broker.testing.records import consume  # noqa: PLC0415 - as above

        return consume(self._address, topic, count, timeout_s)

    def requests(
        self, api: str | None = None, *, client_id: str | None = None, topic: str | None = None, since_us: int = 0
    ) -> list[Request]:
        """Return the requests completed so far, oldest first, filtered by the arguments.

        ``api`` is Kafka's name ("Produce" or "PRODUCE"); ``since_us`` is a start time in µs since 1970. Raises
        UsageError for an unknown API.
        """
        if api is not None:
            api = api_named(api).text
        from rotunda.broker.testing.requests import requests_of  # noqa: PLC0415 - Arrow takes a while to import

        record = self._running()
        return requests_of(record, (api, client_id, topic), since_us, SystemClock())

    def fail(
        self,
        api: str,
        error: object,
        *,
        times: int | None = None,
        topic: str | None = None,
        group: str | None = None,
        client: str | None = None,
    ) -> InjectedFault:
        """Respond to requests with an error, without processing them. Returns when the fault is in force.

        ``api`` is Kafka's name of an API ("Produce"), ``error`` an error's name, its number, or a client library's
        class for it. ``times``: maximum number of requests. ``topic``: only this topic; the request's other topics are
        processed. ``group``, ``client``: only requests of this group or client id.
        """
        code = error_of(error)
        return self._faults.inject(FaultKind.FAIL, _named(api), FaultScope(times, topic, group, client), error=code)

    def delay(
        self,
        api: str | None,
        ms: float,
        *,
        times: int | None = None,
        topic: str | None = None,
        group: str | None = None,
        client: str | None = None,
    ) -> InjectedFault:
        """Process requests at once, and delay each response by this many milliseconds; None: any API."""
        most = milliseconds_of(ms, "ms")
        return self._faults.inject(FaultKind.DELAY, api, FaultScope(times, topic, group, client), ms=most)

    def disconnect(
        self,
        api: str | None = None,
        *,
        when: str = "before",
        times: int | None = None,
        topic: str | None = None,
        group: str | None = None,
        client: str | None = None,
    ) -> InjectedFault:
        """Close the connection of such requests, without a response.

        ``when``: "before", the request is not processed; "after", it is processed, and its response is lost.
        """
        kinds = {"before": FaultKind.DISCONNECT, "after": FaultKind.LOSE_RESPONSE}
        if when not in kinds:
            raise UsageError(f'when={when!r}: expected "before" or "after" the request is done')
        return self._faults.inject(kinds[when], api, FaultScope(times, topic, group, client))

    def throttle(
        self, client: str | None = None, ms: float = 1000, *, api: str | None = None, times: int | None = None
    ) -> InjectedFault:
        """Send a throttle time with each response, and mute the connection for that time.

        As if the client had exceeded a quota; ``client``: its client id, None: every client.
        """
        most = milliseconds_of(ms, "ms")
        return self._faults.inject(FaultKind.THROTTLE, api, FaultScope(times, client=client), ms=most)

    def expire_locks(self, group: str, *, times: int | None = 1) -> InjectedFault:
        """End all locks of a share group's records at its next ShareFetch, or at each of the next ``times``.

        The records are delivered again, or given up after the last delivery. Acknowledgements of that request fail.
        Raises UsageError for an unknown group.
        """
        cluster.check_share_group(self._address, group)
        return self._faults.inject(FaultKind.EXPIRE_LOCKS, "ShareFetch", FaultScope(times, group=group))

    @property
    def faults(self) -> list[InjectedFault]:
        """All faults injected since the start, including cancelled ones."""
        return [] if self._injected is None else self._injected.injected

    def clear_faults(self) -> None:
        """Cancel all faults in force."""
        if self._injected is not None:
            self._injected.remove()

    def kill(self, role: str, index: int = 0, *, wait: bool = True) -> None:
        """SIGKILL one process: "acceptor", "processor", "handler", "controller", ... Return when it is replaced.

        ``wait=False``: return at once, before the replacement exists.
        """
        before = self._find(role, index)
        with suppress(ProcessLookupError):
            # It may be dead already, and not yet replaced.
            os.kill(before.pid, signal.SIGKILL)
        if not wait:
            return
        deadline_ns = SystemClock.monotonic_ns() + int(START_S * 1e9)
        while True:
            now = self._find(role, index)
            if now.pid != before.pid and now.ready:
                return
            if SystemClock.monotonic_ns() >= deadline_ns:
                raise RotundaError(f"{role} {index} has not come back in {START_S:g} s\n{self.log_text()}")
            select.select((), (), (), _LOOK_AGAIN_S)

    @property
    def _address(self) -> str:
        return self._running().bootstrap.partition(",")[0]

    @property
    def _faults(self) -> Faults:
        record = self._running()
        if self._injected is None:
            self._injected = Faults(record)
        return self._injected

    def _find(self, role: str, index: int) -> ProcessStatus:
        record = self._running()
        segment = attach(f"/rotunda-{record.instance}-control")
        most = record.most_processors, record.most_handlers
        found = ControlSegment(segment.view, *most, record.max_partitions).statuses()
        for each in found:
            if (each.role, each.index) == (role, index) and each.pid:
                return each
        there = ", ".join(f"{each.role} {each.index}" for each in found if each.pid)
        raise UsageError(f"there is no {role} {index}; there are {there}")

    def _running(self) -> RunRecord:
        if self._record is None or self._process is None:
            raise UsageError("this broker does not run: use it in a `with` block, or call start() first")
        if self._process.poll() is not None:
            raise RotundaError(f"the broker has ended with exit status {self._process.returncode}\n{self.log_text()}")
        return self._record

    def _command(self) -> list[str]:
        where = ["--ephemeral"] if self._keep is None else ["--data-dir", str(self._directory / "data")]
        command = [
            sys.executable,
            "-m",
            "rotunda.broker.testing.child",
            str(os.getpid()),
            "start",
            "--for-tests",
            *where,
        ]
        command += ["--run-dir", str(self._directory / "run")]
        if self._config is not None:
            command += ["--config", str(self._config)]
        for name, value in {**SETTINGS, **self.settings}.items():
            command += ["--set", f"{name}={cluster.setting_text(value)}"]
        return command

    def _ready_record(self, process: subprocess.Popen[bytes]) -> RunRecord:
        deadline_ns = SystemClock.monotonic_ns() + int(START_S * 1e9)
        while True:
            record = run_dir.read(self._directory / "run")
            if record is not None and record.state == run_dir.READY and record.pid == process.pid:
                return record
            if process.poll() is not None:
                raise RotundaError(f"the broker ended with exit status {process.returncode}\n{self.log_text()}")
            if SystemClock.monotonic_ns() >= deadline_ns:
                raise RotundaError(f"the broker does not serve after {START_S:g} s\n{self.log_text()}")
            select.select((), (), (), _LOOK_AGAIN_S)


class ExternalBroker:
    """A broker run by others, Rotunda or Kafka: only topics created here are deleted."""

    is_external = True

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self._topics: list[str] = []

    def create_topic(self, name: str, partitions: int = 1, settings: Mapping[str, object] | None = None) -> None:
        """Create a topic. Raises ApiError."""
        cluster.create_topic(self.bootstrap, name, partitions, settings or {})
        self._topics.append(name)

    def delete_topic(self, name: str) -> None:
        """Delete a topic created here. Raises UsageError for any other."""
        if name not in self._topics:
            raise UsageError(f"the topic {name} was not made by these tests, and stays")
        self._topics.remove(name)
        cluster.delete_topics(self.bootstrap, [name])

    def produce(self, topic: str, *values: Value, key: Value = None, partition: int | None = None) -> None:
        """Write records; see `RotundaBroker.produce`."""
        from rotunda.broker.testing.records import produce  # noqa: PLC0415 - a producer takes a while to import

        produce(self.bootstrap, topic, values, key, partition)

    def consume(self, topic: str, count: int | None = None, *, timeout_s: float = 10.0) -> list[Record]:
        """Return the topic's first records; see `RotundaBroker.consume`."""
        from rotunda.broker.testing.records import consume  # noqa: PLC0415 - as above

        return consume(self.bootstrap, topic, count, timeout_s)

    def reset(self) -> list[str]:
        """Delete the topics created here. Return no groups: none is deleted."""
        topics, self._topics = self._topics, []
        cluster.delete_topics(self.bootstrap, topics)
        return []

    def clear_faults(self) -> None:
        """Do nothing: it has no faults."""

    def begin_stop(self) -> None:
        """Do nothing: it keeps running."""

    def stop(self) -> None:
        """Do nothing: it keeps running."""

    def __getattr__(self, name: str) -> Any:
        if name in vars(RotundaBroker):
            raise UsageError(f"{name} needs a broker that the tests have started; {self.bootstrap} is an external one")
        raise AttributeError(name)


def _named(api: str) -> str:
    if api is None:
        raise UsageError('fail needs the name of an API, such as "Produce": errors differ from API to API')
    return api
