"""Starts that the machine does not allow: each ends with one line, with the value and the remedy, and its exit code.

Also starts that it only just allows.
"""

import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.support.broker_process import REPOSITORY, BrokerProcess
from tests.support.deadline import deadline_s, wait_until
from tests.support.own_mounts import SHARED_MEMORY, fill, held, may_mount, read_only, small, with_mounts
from tests.support.record_batches import record_batch
from tests.support.wire_client import WireClient
from tests.support.wire_messages import create_topic, produce, read_partition

SETTINGS = {"num.network.threads": 1, "num.io.threads": 1}
needs_mounts = pytest.mark.skipif(not may_mount(), reason="mounts of one's own take root")

#: A user without processes, so that no other process is counted.
UID = 60_000 + os.getpid() % 5_000
OTHER_USER = ["setpriv", "--reuid", str(UID), "--regid", str(UID), "--clear-groups"]


def may_run_as_other() -> bool:
    """Return whether another user may start the broker from here."""
    line = [*OTHER_USER, sys.executable, "-c", "import rotunda.broker, rotunda.shm.segment"]
    return subprocess.run(line, cwd=REPOSITORY, capture_output=True, check=False).returncode == 0


needs_other_user = pytest.mark.skipif(not may_run_as_other(), reason="another user cannot run the broker from here")


@pytest.fixture
def shared_path() -> Iterator[Path]:
    """Yield a directory that every user may write to."""
    with TemporaryDirectory() as made:
        Path(made).chmod(0o777)
        yield Path(made)


def start(directory: Path, *options: str, before: Sequence[str] = ()) -> subprocess.CompletedProcess[str]:
    """Return how a start has ended; `before` is a command that sets limits."""
    line = [*before, sys.executable, "-m", "rotunda", "start", "--listen", "127.0.0.1:0", "--set", "status.port=0"]
    places = ["--run-dir", str(directory / "run"), "--data-dir", str(directory / "data")]
    return subprocess.run(
        [*line, *places, *options], cwd=REPOSITORY, capture_output=True, text=True, timeout=deadline_s(60), check=False
    )


def assert_one_line(ended: subprocess.CompletedProcess[str], pattern: str, code: int = 1) -> None:
    """Assert that a start has ended with a code and one line, after log lines at most."""
    *logged, last = ended.stderr.splitlines()
    assert re.fullmatch(f"rotunda: {pattern}", last), ended.stderr
    assert all(re.search(" (CRITICAL|WARNING) ", line) and "Traceback" not in line for line in logged), ended.stderr
    assert (ended.returncode, ended.stdout) == (code, "")


@needs_mounts
@pytest.mark.parametrize(("kind", "options"), [("data", ()), ("run", ("--daemon", "--wait"))])
def test_a_directory_that_is_read_only(tmp_path: Path, kind: str, options: tuple[str, ...]) -> None:
    directory = tmp_path / kind
    directory.mkdir()
    line = rf"{kind} directory {directory} cannot be used: Read-only file system( \(\S+\))?; make it writable .*"
    with_mounts(read_only(directory), lambda: assert_one_line(start(tmp_path, *options), line))


@needs_mounts
@pytest.mark.parametrize("kind", ["data", "run"])
def test_a_directory_that_is_full(tmp_path: Path, kind: str) -> None:
    directory = tmp_path / kind
    directory.mkdir()

    def in_full_directory() -> None:
        fill(directory)
        line = f"{kind} directory {directory} cannot be used: No space left on device; free some space there"
        assert_one_line(start(tmp_path), line)

    with_mounts([small(directory, 64 << 10)], in_full_directory)


@needs_other_user
def test_a_directory_of_another_user(shared_path: Path) -> None:
    (shared_path / "data").mkdir(mode=0o755)
    line = rf"data directory {shared_path / 'data'} cannot be used: Permission denied \(.*; make it writable .* {UID}\)"
    assert_one_line(start(shared_path, before=OTHER_USER), line)


@needs_other_user
def test_a_mask_that_leaves_no_rights(shared_path: Path) -> None:
    line = rf"data directory {shared_path / 'data'} cannot be used: Permission denied \(.*; make it writable .* {UID}\)"
    mask = ["sh", "-c", 'umask 0777; exec "$@"', "sh"]
    assert_one_line(start(shared_path, before=[*mask, *OTHER_USER]), line)


@needs_other_user
def test_few_processes(shared_path: Path) -> None:
    """The second fork fails, and the thread of the first child."""
    line = r"no process or thread can be started: the limit of this user is 2; raise it \(ulimit -u.*"
    assert_one_line(start(shared_path, before=["prlimit", "--nproc=2:2", *OTHER_USER]), line)


@pytest.mark.parametrize(("kind", "code"), [("data", 1), ("run", 2)])
def test_a_file_in_the_place_of_a_directory(tmp_path: Path, kind: str, code: int) -> None:
    (tmp_path / kind).touch()
    assert_one_line(start(tmp_path), f"{kind} directory {tmp_path / kind} .*directory.*", code)


@pytest.mark.parametrize("limit", [16, 64, 80])
def test_few_descriptors(tmp_path: Path, limit: int) -> None:
    """Also so few that the broker almost reaches its ready line."""
    line = (
        rf"too few files may be open: the limit is {limit}, and this broker needs \d+ or more; raise it \(ulimit -n.*"
    )
    assert_one_line(start(tmp_path, before=["prlimit", f"--nofile={limit}:{limit}"]), line)


def test_with_as_many_descriptors_as_the_line_names_a_broker_serves(tmp_path: Path) -> None:
    refused = start(tmp_path, *_sets(), before=["prlimit", "--nofile=64:64"])
    found = re.search(r"needs (\d+) or more", refused.stderr)
    assert found
    enough = found[1]
    with_limit = ["prlimit", f"--nofile={enough}:{enough}"]
    broker = BrokerProcess(tmp_path, SETTINGS, before=with_limit)
    broker.start()
    _serves(broker)
    broker.stop()


@pytest.mark.parametrize("megabytes", [60, 300, 450])
def test_little_address_space(tmp_path: Path, megabytes: int) -> None:
    limit = megabytes * 1_000_000
    line = rf"no memory: the address space of each process is limited to {limit} bytes.*; raise the limit \(ulimit -v.*"
    assert_one_line(start(tmp_path, before=["prlimit", f"--as={limit}:{limit}"]), line)


@needs_mounts
def test_a_shared_memory_that_is_too_small(tmp_path: Path) -> None:
    size_bytes = 16 << 20
    line = rf"shared memory of this broker needs \d+ bytes, {size_bytes} are left: give /dev/shm more room .*"

    def in_little() -> None:
        assert_one_line(start(tmp_path, *_sets()), line)
        assert not held()

    with_mounts([small(SHARED_MEMORY, size_bytes)], in_little)


@needs_mounts
def test_a_broker_serves_in_as_much_shared_memory_as_the_line_names(tmp_path: Path) -> None:
    """Large requests too, that do not fit the arena which is left."""
    needed: list[int] = []

    def in_little() -> None:
        found = re.search(r"needs (\d+) bytes", start(tmp_path, *_sets()).stderr)
        assert found
        needed.append(int(found[1]))

    def in_enough() -> None:
        broker = BrokerProcess(tmp_path, SETTINGS)
        broker.start()
        _serves(broker, value=bytes(900_000))
        broker.stop()
        assert not held()

    with_mounts([small(SHARED_MEMORY, 16 << 20)], in_little)
    with_mounts([small(SHARED_MEMORY, -(-needed[0] // 4096) * 4096)], in_enough)


@needs_mounts
def test_a_shared_memory_that_is_read_only(tmp_path: Path) -> None:
    line = "shared memory, a tmpfs at /dev/shm, cannot be used: Read-only file system; make it writable .*"
    mounts = [["-t", "tmpfs", "-o", "ro", "tmpfs", str(SHARED_MEMORY)]]
    with_mounts(mounts, lambda: assert_one_line(start(tmp_path), line))


def test_standard_output_that_is_full(tmp_path: Path) -> None:
    """The error names standard output, and nothing else."""
    ended = start(tmp_path, before=["sh", "-c", 'exec "$@" >/dev/full', "sh"])
    assert_one_line(ended, "cannot write to standard output: No space left on device")


def test_a_port_that_is_in_use(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ended = start(tmp_path, "--listen", f"127.0.0.1:{port}")
    assert_one_line(ended, rf"cannot listen on PLAINTEXT://127.0.0.1:{port}: the port is in use by another program", 4)


@needs_mounts
def test_a_broker_stops_in_order_though_its_run_directory_is_full(tmp_path: Path) -> None:
    """Clients and data are more important than the files of `rotunda status`."""

    def in_full_directory() -> None:
        broker = BrokerProcess(tmp_path, SETTINGS, ephemeral=False)
        broker.start()
        filler = fill(broker.run_dir)
        broker.stop()
        filler.unlink()
        assert (broker.data_dir / ".kafka_cleanshutdown").exists()
        assert "cannot record that the broker is stopping" in broker.log_text()

    (tmp_path / "run").mkdir()
    with_mounts([small(tmp_path / "run", 64 << 10)], in_full_directory)


def test_a_start_with_closed_standard_descriptors_serves(tmp_path: Path) -> None:
    """No file of the broker gets their numbers and the output meant for a terminal."""
    broker = BrokerProcess(tmp_path)
    line = ["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", sys.executable, "-m", "rotunda", "start", *_sets()]
    places = ["--run-dir", str(tmp_path / "run"), "--data-dir", str(tmp_path / "data"), "--listen", "127.0.0.1:0"]
    with subprocess.Popen([*line, *places, "--set", "status.port=0"], cwd=REPOSITORY) as process:
        try:
            wait_until((tmp_path / "run" / "broker.json").exists, "a broker")
            assert broker.command("status", "--wait").returncode == 0
            broker.port = int(broker.status()["bootstrap"].rsplit(":", 1)[1])
            _serves(broker)
        finally:
            assert broker.command("stop").returncode == 0
        assert process.wait(deadline_s(60)) == 0


def _sets() -> list[str]:
    return [word for name, value in SETTINGS.items() for word in ("--set", f"{name}={value}")]


def _serves(broker: BrokerProcess, value: bytes = b"value") -> None:
    with WireClient(broker.port) as wire:
        create_topic(wire, "orders", 1)
        assert produce(wire, "orders", 0, record_batch([value])).error_code == 0
        assert [each.value for each in read_partition(wire, "orders", 0)] == [value]
