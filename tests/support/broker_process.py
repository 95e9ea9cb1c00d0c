"""A whole broker for a test: real processes on a free port, with everything removed afterwards.

It is used through its commands only, as a user would use it. The broker's output is shown when a test fails.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from tests.support.command_line import command
from tests.support.deadline import deadline_s, wait_until

REPOSITORY = Path(__file__).parents[2]
SHARED_MEMORY = "/dev/shm/"  # noqa: S108 - looked at, never written to
LOG_TAIL_BYTES = 200_000
#: The setting of a broker with a status page.
PAGE = {"status.page.enable": True}


class BrokerProcess:
    """One instance in `directory`: `run` is its run directory, `data` its data directory unless ephemeral.

    Only tests of the status page have one (`PAGE`): it takes as long to start as all other processes.
    """

    def __init__(
        self,
        directory: Path,
        settings: Mapping[str, object] | None = None,
        ephemeral: bool = True,
        module: str = "rotunda",
        environment: Mapping[str, str] | None = None,
        before: Sequence[str] = (),
    ):
        """`environment` is added to the test's own for its processes; `before` is a command that starts it."""
        self._before = before
        self._environment = {**os.environ, **(environment or {})}
        self.run_dir = directory / "run"
        self.data_dir = directory / "data"
        self.ephemeral = ephemeral
        self._module = module
        self.settings = {
            "listeners": "PLAINTEXT://127.0.0.1:0",
            "status.page.enable": False,
            "status.port": 0,
            **(settings or {}),
        }
        self.port = 0
        self._log = directory / "broker.log"
        self._ready = directory / "ready.txt"
        self._process: subprocess.Popen[bytes] | None = None
        self._seen: set[psutil.Process] = set()
        self._shared: set[str] = set()

    @property
    def bootstrap(self) -> str:
        """The address for clients."""
        return f"127.0.0.1:{self.port}"

    def start(self) -> "BrokerProcess":
        """Start; return after the ready line is on standard output and the processes that start later run too."""
        for directory in (self.run_dir, self.data_dir):
            directory.mkdir(parents=True, exist_ok=True)
        where = ["--ephemeral"] if self.ephemeral else ["--data-dir", str(self.data_dir)]
        command = [*self._before, sys.executable, "-m", self._module, "start", "--run-dir", str(self.run_dir), *where]
        for key, value in self.settings.items():
            command += ["--set", f"{key}={value}"]
        with self._log.open("ab") as log, self._ready.open("wb") as ready:
            self._process = subprocess.Popen(
                command, cwd=REPOSITORY, stdin=subprocess.DEVNULL, stdout=ready, stderr=log, env=self._environment
            )
        try:
            wait_until(self._is_ready, "the ready line")
            status = wait_until(self._status_of_all, "every process")
            self.port = int(status["bootstrap"].split(",")[0].rsplit(":", 1)[1])
            self._remember()
        except AssertionError as failure:
            self._process.kill()
            self._process.wait()
            raise AssertionError(f"{failure}\n{self.log_text()}") from None
        return self

    def _is_ready(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, f"ended with exit status {self._process.returncode}"
        return b"\n" in self._ready.read_bytes()

    def _status_of_all(self) -> dict[str, Any] | None:
        status = self.status()
        return status if all(row["state"] == "running" or row["role"] == "web" for row in status["processes"]) else None

    def status(self) -> dict[str, Any]:
        """Return the output of `rotunda status --json`."""
        return status_of(self.run_dir)

    def command(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a command against this instance."""
        return command(*arguments, "--run-dir", str(self.run_dir))

    def ports(self) -> list[int]:
        """Return the advertised port of each listener."""
        return [int(address.rpartition(":")[2]) for address in self.status()["bootstrap"].split(",")]

    def pid(self) -> int:
        """Return the supervisor's process id."""
        assert self._process is not None
        return self._process.pid

    def is_running(self) -> bool:
        """Return whether the supervisor lives."""
        return self._process is not None and self._process.poll() is None

    def processes(self, role: str | None = None) -> list[dict[str, Any]]:
        """Return the rows of `status` (role, index, pid, state, restarts) of one role, or all."""
        return [row for row in self.status()["processes"] if role in (None, row["role"])]

    def kill(self, role: str, index: int | None = None, *, wait: bool = True) -> None:
        """SIGKILL one process of a role, or all at once, and return when others run in their places, or do not wait."""
        victims = {row["index"]: row for row in self.processes(role) if index in (None, row["index"])}
        for row in victims.values():
            # A process that was just killed may have exited already.
            with suppress(ProcessLookupError):
                os.kill(row["pid"], signal.SIGKILL)

        def replaced() -> bool:
            rows = [row for row in self.processes(role) if row["index"] in victims]
            return all(row["pid"] != victims[row["index"]]["pid"] and row["state"] == "running" for row in rows)

        if wait:
            wait_until(replaced, f"{role} replaced")

    def child_pids(self) -> set[int]:
        """Return the process ids of all living children, without asking the broker."""
        self._remember()
        return {child.pid for child in psutil.Process(self.pid()).children(recursive=True)}

    def has_loaded_everything(self) -> bool:
        """Return whether the recorder has imported all modules that it loads at its first request.

        Only then does memory depend on requests alone.
        """
        [recorder] = self.processes("recorder")
        has_begun = "arro3" in Path(f"/proc/{recorder['pid']}/maps").read_text()
        return has_begun and all(psutil.Process(pid).num_threads() == 1 for pid in self.child_pids())

    def memory_bytes(self, *roles: str) -> int:
        """Return the proportional set size of the whole instance, or the private memory of processes of these roles.

        Files are left out: their share depends on how many other processes, such as brokers of other tests, map them as
        well.
        """
        counted = ("Pss_Anon:",) if roles else ("Pss_Anon:", "Pss_Shmem:")
        total_kb = 0
        of_roles = {row["pid"] for role in roles for row in self.processes(role)}
        for pid in of_roles or {self.pid(), *self.child_pids()}:
            for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
                total_kb += int(line.split()[1]) if line.startswith(counted) else 0
        return total_kb * 1024

    def resident_bytes(self, role: str) -> int:
        """Return the resident memory of the first process of a role."""
        return psutil.Process(self.processes(role)[0]["pid"]).memory_info().rss

    def log_text(self) -> str:
        """Return the broker's output, and the end of its log."""
        texts = [path.read_bytes() for path in (self._ready, self._log) if path.exists()]
        texts += [path.read_bytes() for path in sorted(self.run_dir.glob("*.log"))]
        return b"\n".join(text[-LOG_TAIL_BYTES:] for text in texts).decode(errors="replace")

    def log_bytes(self) -> int:
        """Return how much has been logged so far: a position for `log_since`."""
        return self._log.stat().st_size

    def log_since(self, position: int) -> list[str]:
        """Return the lines logged after `position`."""
        with self._log.open("rb") as log:
            log.seek(position)
            return log.read().decode(errors="replace").splitlines()

    def stop(self) -> None:
        """Stop through the command line and assert that nothing is left."""
        assert self._process is not None
        if self._process.poll() is None:
            self._remember()
        try:
            output_of("stop", "--run-dir", str(self.run_dir))
            assert self._process.wait(deadline_s()) == 0, "the supervisor's exit status"
            self.assert_nothing_left()
        except (AssertionError, subprocess.TimeoutExpired) as failure:
            self.kill_everything()
            raise AssertionError(f"{failure}\n{self.log_text()}") from None

    def assert_nothing_left(self) -> None:
        """Assert that no process and no piece of shared memory of this instance exists any more."""
        self.assert_no_process_left()
        left = self.shared_memory()
        assert not left, f"left in shared memory: {sorted(left)}"

    def assert_no_process_left(self) -> None:
        """Assert that every process of this instance ends by itself."""
        assert self._process is not None
        self._process.wait(deadline_s())
        wait_until(lambda: not self._alive(), f"all processes gone: {self._alive()}")

    def shared_memory(self) -> set[str]:
        """Return the pieces of shared memory that this instance has ever had and that still exist."""
        return {name for name in self._shared if Path(name).exists()}

    def kill_everything(self) -> None:
        """SIGKILL every process of the instance at once, as a crash of the machine would."""
        assert self._process is not None
        if self._process.poll() is None:
            # Or it would replace the first ones while others still live.
            self._process.send_signal(signal.SIGSTOP)
            self._remember()
        for process in self._alive():
            with suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)
        self.assert_no_process_left()

    def _alive(self) -> list[psutil.Process]:
        return [process for process in self._seen if is_alive(process)]

    def _remember(self) -> None:
        """Note every process, and all shared memory of this project that it has mapped."""
        try:
            supervisor = psutil.Process(self.pid())
            self._seen |= {supervisor, *supervisor.children(recursive=True)}
            for line in Path(f"/proc/{self.pid()}/maps").read_text().splitlines():
                path = line.split(maxsplit=5)[-1]
                if path.startswith(SHARED_MEMORY) and "rotunda-" in path:
                    self._shared.add(path)
        except (psutil.NoSuchProcess, OSError):
            return


def status_of(run_dir: Path) -> dict[str, Any]:
    """Return the output of `rotunda status --json`."""
    return json.loads(output_of("status", "--json", "--run-dir", str(run_dir)))


def output_of(*arguments: str) -> str:
    """Return the output of a command that succeeds."""
    done = command(*arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def is_alive(process: psutil.Process) -> bool:
    """Return whether it runs; a zombie does not."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
