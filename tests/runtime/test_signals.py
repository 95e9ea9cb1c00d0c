"""Effects of signals on a running broker: only those that stop it end it, and each does as documented."""

import itertools
import json
import os
import select
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from rotunda.broker.runtime import run_dir
from rotunda.broker.runtime.signals import DUMP_STACKS, StopFlag
from rotunda.broker.runtime.stack_dumps import StackPipe
from rotunda.broker.server_log.log_file import LogFile
from tests.support.broker_process import REPOSITORY, BrokerProcess
from tests.support.command_line import command
from tests.support.deadline import deadline_s, wait_until
from tests.support.supervised import Supervised, ask
from tests.support.wire_client import WireClient


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[dict[str, Any]]:
    """Start a broker in the background whose log is full after a few lines, and stop it afterwards."""
    run_path = tmp_path / "run"
    settings = ("listeners=PLAINTEXT://127.0.0.1:0", "status.port=0", "broker.log.max.bytes=16384")
    sets = [word for each in (*settings, "broker.log.kept.files=2") for word in ("--set", each)]
    done = command("start", "--daemon", "--wait", "--json", "--ephemeral", "--run-dir", str(run_path), *sets)
    assert done.returncode == 0, done.stderr
    wait_until(lambda: _all_run(run_path), "every process runs")
    yield json.loads(done.stdout)
    stopped = command("stop", "--run-dir", str(run_path))
    record = run_dir.read(run_path)
    if record is not None and record.is_alive:
        os.kill(record.pid, signal.SIGKILL)
    assert stopped.returncode == 0, stopped.stderr


def _all_run(run_path: Path) -> bool:
    status = json.loads(command("status", "--json", "--run-dir", str(run_path)).stdout)
    return {process["state"] for process in status["processes"]} == {"running"}


def page_status(url: str) -> int:
    """Return the HTTP status of the status page."""
    with urllib.request.urlopen(url, timeout=deadline_s()) as page:  # noqa: S310
        return int(page.status)


def family(pid: int) -> list[int]:
    """Return the process ids of a broker, its supervisor's first."""
    return [pid, *(child.pid for child in psutil.Process(pid).children(recursive=True))]


def outputs(pid: int) -> set[str]:
    """Return the output files of a process; none while it changes them."""
    try:
        return {str(Path(f"/proc/{pid}/fd/{fd}").readlink()) for fd in (1, 2)}
    except FileNotFoundError:
        return set()


@pytest.mark.parametrize("signum", [signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2])
def test_a_signal_that_asks_for_no_stop_ends_nothing(tmp_path: Path, signum: signal.Signals) -> None:
    """Not even when a terminal sends it to every process."""
    with Supervised(tmp_path) as broker:
        broker.complete()
        before = family(broker.process.pid)
        with broker.connect() as client:
            home = ask(client)
            for pid in reversed(before):
                os.kill(pid, signum)
            wait_until(lambda: "INFO supervisor" in broker.log.read_text(), "the log names the request")
            assert ask(client) == home
        assert family(broker.process.pid) == before
        assert broker.terminate() == 0
        assert "replacing" not in broker.log.read_text()


def test_sigquit_writes_where_every_process_stands(tmp_path: Path) -> None:
    with Supervised(tmp_path) as broker:
        broker.complete()
        handler = broker.slot("handler")["pid"]
        os.kill(handler, signal.SIGSTOP)
        try:
            broker.process.send_signal(signal.SIGQUIT)
            wait_until(lambda: "has not written its stacks" in broker.log.read_text(), "the stopped one is named")
        finally:
            os.kill(handler, signal.SIGCONT)
        wait_until(lambda: broker.log.read_text().count("stacks of") == 6, "the others respond")
        lines = broker.log.read_text().splitlines()
        for pid in set(family(broker.process.pid)) - {handler}:
            [line] = [line for line in lines if f"-{pid}: " in line and "stacks of" in line]
            assert "supervisor.py:" in line or "process.py:" in line
        [silent] = [
            line for line in lines if f"handler 0 (pid {handler})" in line and "has not written its stacks" in line
        ]
        assert "stopped by a signal (state T)" in silent
        assert broker.terminate() == 0


def test_the_log_says_where_a_fault_in_c_has_struck(tmp_path: Path) -> None:
    with Supervised(tmp_path) as broker:
        broker.complete()
        os.kill(broker.slot("handler")["pid"], signal.SIGSEGV)
        wait_until(lambda: "killed by SIGSEGV: Fatal Python error" in broker.log.read_text(), "the line in the log")
        wait_until(lambda: broker.slot("handler")["state"] == "running", "it is replaced")
        assert broker.terminate() == 0


def test_a_process_in_an_endless_loop_of_c_responses_where_it_stands() -> None:
    """Where no handler written in Python would ever run."""
    pipe = StackPipe()
    pid = os.fork()
    if pid == 0:
        pipe.install()
        sum(itertools.repeat(0))
    try:
        wait_until(lambda: _catches(pid, DUMP_STACKS), "it is prepared")
        pipe.ask(pid)
        answer = pipe.answer()
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        pipe.close()
    assert "test_signals.py:" in answer
    assert "\n" not in answer


def _catches(pid: int, signum: int) -> bool:
    [caught] = [line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("SigCgt")]
    return bool(int(caught.split()[1], 16) >> (signum - 1) & 1)


def test_sigusr1_opens_the_log_anew_in_every_process(daemon: dict[str, Any]) -> None:
    """As logrotate does it: rename, then signal. The page has been read, and works as well."""
    pid, log = int(daemon["pid"]), Path(daemon["run_dir"]) / "broker.log"
    port = int(daemon["bootstrap"].rpartition(":")[2])
    assert page_status(daemon["status_url"]) == 200
    with WireClient(port) as client:
        client.call(18, 0)
        before = family(pid)
        log.rename(log.with_name("moved"))
        os.kill(pid, signal.SIGUSR1)
        wait_until(lambda: all(outputs(each) == {str(log)} for each in before), "every process has the new file")
        wait_until(lambda: "reopened the log" in log.read_text(), "the line in the log")
        assert "reopened the log" not in log.with_name("moved").read_text()
        client.call(18, 0)
        assert page_status(daemon["status_url"]) == 200
    assert family(pid) == before


def test_a_full_log_file_gets_successors_and_the_oldest_go(daemon: dict[str, Any]) -> None:
    pid, log = int(daemon["pid"]), Path(daemon["run_dir"]) / "broker.log"
    before = family(pid)
    for _ in range(3):
        first = log.stat()
        while log.stat().st_ino == first.st_ino:
            now = log.stat()
            os.kill(pid, signal.SIGQUIT)
            wait_until(lambda now=now: log.stat()[:7] != now[:7], "the log has grown, or another file begins")
    assert {path.name for path in log.parent.glob("broker.log*")} == {"broker.log", "broker.log.1", "broker.log.2"}
    for older in (1, 2):
        size = log.with_name(f"broker.log.{older}").stat().st_size
        assert 16384 <= size <= 4 * 16384
    assert family(pid) == before
    wait_until(lambda: all(outputs(each) == {str(log)} for each in before), "every process has the new file")


_OPEN_DURING_A_ROTATION = """
import os, sys
from pathlib import Path
from rotunda.broker.server_log.log_file import LogFile

file = LogFile(Path(sys.argv[1]), -1, -1, 1)

def rotate(frame, event, function):
    if event == "c_call" and function is os.dup2:
        sys.setprofile(None)
        file.rotate()

sys.setprofile(rotate)
file.open()
print("a line", flush=True)
"""


def test_a_rotation_that_interrupts_another_is_not_undone(tmp_path: Path) -> None:
    """The handler of its signal may run while that of an earlier one has opened a file and not used it yet."""
    path = tmp_path / "broker.log"
    subprocess.run([sys.executable, "-c", _OPEN_DURING_A_ROTATION, path], check=True)
    assert path.read_text() == "a line\n"


def test_a_log_file_is_as_old_as_its_first_line(tmp_path: Path) -> None:
    """So its age counts over restarts."""
    path = tmp_path / "broker.log"
    file = LogFile(path, -1, 60_000, 4)
    noon_ms = 1_772_366_400_000
    assert file.wait_ms(noon_ms) is None
    assert not file.is_old(noon_ms)
    path.write_text("2026-03-01T12:00:00.500Z INFO supervisor-1 broker.x: a line\n")
    assert file.wait_ms(noon_ms + 20_000) == 40_000
    assert not file.is_old(noon_ms + 59_999)
    assert file.is_old(noon_ms + 60_000)
    assert LogFile(path, -1, -1, 4).wait_ms(noon_ms) is None
    path.write_text('{"time": "2026-03-01T12:00:10.000Z"}\n')
    assert LogFile(path, -1, 60_000, 4).wait_ms(noon_ms) == 70_000


def test_another_signal_does_not_look_like_a_stop() -> None:
    """Its byte is removed from the pipe that ends waits, and that of a concurrent stop is not."""
    came: list[int] = []
    before = {signum: signal.getsignal(signum) for signum in (signal.SIGTERM, signal.SIGUSR1)}
    stop = StopFlag()
    try:
        stop.obey_sigterm()
        stop.obey(signal.SIGUSR1, lambda: came.append(1))
        os.kill(os.getpid(), signal.SIGUSR1)
        wait_until(lambda: came, "the task is done")
        assert not _readable(stop)
        signal.pthread_sigmask(signal.SIG_BLOCK, before)
        os.kill(os.getpid(), signal.SIGUSR1)
        os.kill(os.getpid(), signal.SIGTERM)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, before)
        wait_until(stop.is_set, "the stop is noted")
        # Another thread may have received the one signal, and it is this one that handles both.
        wait_until(lambda: len(came) == 2, "the task is done again")
        assert _readable(stop)
    finally:
        signal.set_wakeup_fd(-1)
        for signum, handler in before.items():
            signal.signal(signum, handler)
        stop.close()


def _readable(stop: StopFlag) -> bool:
    poll = select.poll()
    poll.register(stop.fileno(), select.POLLIN)
    return bool(poll.poll(0))


def test_no_signal_but_one_to_stop_ends_a_broker_that_is_starting(tmp_path: Path) -> None:
    """It is still reading its configuration, from a pipe without data."""
    configuration = tmp_path / "server.properties"
    os.mkfifo(configuration)
    command = [sys.executable, "-m", "rotunda", "start", "--ephemeral", "--run-dir", str(tmp_path / "run")]
    command += ["--config", str(configuration)]
    with subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as starting:
        assert starting.stdout is not None
        try:
            # Returns when the other side has opened it as well.
            with configuration.open("w", encoding="utf-8") as pipe:
                for signum in (signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2):
                    starting.send_signal(signum)
                pipe.write("listeners=PLAINTEXT://127.0.0.1:0\nstatus.port=0\n")
            assert starting.stdout.readline().startswith(b"rotunda ready ")
            starting.terminate()
            assert starting.wait(deadline_s()) == 0
        finally:
            starting.kill()


def test_a_whole_broker_says_where_it_stands_and_goes_on(broker_directory: Path) -> None:
    broker = BrokerProcess(broker_directory).start()
    position = broker.log_bytes()
    before = broker.child_pids()
    with WireClient(broker.port) as client:
        client.call(18, 0)
        os.kill(broker.pid(), signal.SIGQUIT)
        wait_until(
            lambda: len([line for line in broker.log_since(position) if "stacks of" in line]) == len(before) + 1,
            "every process has written its stacks",
        )
        client.call(18, 0)
    assert broker.child_pids() == before
    broker.stop()
