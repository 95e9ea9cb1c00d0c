"""The programs of a measurement: kload, gload and bare, built here from C, and the broker, started by its CLI.

Knows nothing of the measurements. Every server listens on a free port and is stopped at the end of its `with`.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from ops.benchmarks import processor_time
from ops.benchmarks.processor_time import Spent
from ops.free_ports import free_ports

SOURCES = Path(__file__).parent
REPOSITORY = SOURCES.parent.parent
DEADLINE_SECONDS = 30.0
#: For a whole load, whose length is an option.
DEADLINE_S = 300.0


class MeasurementError(Exception):
    """A program ended with an error; the text names it and has its output."""


def build(directory: Path) -> None:
    """Compile kload, gload and bare into `directory`."""
    for name in ("kload", "gload", "bare"):
        command = ["cc", "-O2", "-o", str(directory / name), str(SOURCES / f"{name}.c")]
        subprocess.run(command, check=True)


def kload(directory: Path, command: str, port: int, arguments: list[str]) -> dict[str, float]:
    """Run one kload and return the key=value pairs of its last line; empty for commands without output."""
    line = [str(directory / "kload"), command, str(port), *arguments]
    done = run(line)
    words = done.stdout.strip().splitlines()[-1:]
    pairs = [word.split("=") for word in " ".join(words).split()]
    return {key: float(value) for key, value in pairs}


def producer_rates(port: int, clients: list[str], records: int, rounds: int) -> dict[str, list[float]]:
    """Run the producers of these client libraries in turns; return the records a second of each turn."""
    load = ["--topic", "producers", "--num-records", str(records), "--turns", str(rounds)]
    done = run(rotunda("bench", "--json", "--bootstrap", f"127.0.0.1:{port}", "--client", ",".join(clients), *load))
    return {name: [figures["records_s"] for figures in found] for name, found in json.loads(done.stdout).items()}


def run(line: list[str]) -> subprocess.CompletedProcess[str]:
    """Run a program to its end. Raises MeasurementError with what it printed, or if it does not end."""
    try:
        done = subprocess.run(line, capture_output=True, text=True, check=False, timeout=DEADLINE_S)
    except subprocess.TimeoutExpired as failure:
        raise MeasurementError(f"{' '.join(line)}: has not ended after {DEADLINE_S:.0f} s") from failure
    if done.returncode:
        raise MeasurementError(f"{' '.join(line)}: {done.stderr.strip()}")
    return done


class Groups:
    """Many groups whose members are silent except inside `busy`."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self._process = process
        self._log = log

    def check(self, *, is_fine: bool) -> None:
        """Raise MeasurementError with the output of the load unless `is_fine`."""
        if not is_fine:
            raise MeasurementError(f"{' '.join(map(str, self._process.args))}: {self._log.read_text().strip()}")

    @contextmanager
    def busy(self) -> Iterator[None]:
        """Have the members send their requests."""
        self._tell(b"g")
        yield
        self._tell(b"p")

    def _tell(self, command: bytes) -> None:
        assert self._process.stdin is not None  # noqa: S101 - it was asked for
        self.check(is_fine=self._process.poll() is None)
        self._process.stdin.write(command)
        self._process.stdin.flush()


@contextmanager
def gload(directory: Path, port: int, arguments: list[str]) -> Iterator[Groups]:
    """Form the groups; when they leave at the end of the `with`, every request must have its response.

    Raises MeasurementError when the broker returned an error or could not keep up.
    """
    line = [str(directory / "gload"), str(port), *arguments]
    log = directory / "gload.log"
    with log.open("wb") as errors:
        process = subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors)
        groups = Groups(process, log)
        try:
            assert process.stdin is not None and process.stdout is not None  # noqa: S101, PT018 - they were asked for
            groups.check(is_fine=process.stdout.readline() == b"ready\n")
            yield groups
            process.stdin.close()
            groups.check(is_fine=process.wait(DEADLINE_SECONDS) == 0)
        finally:
            process.kill()
            process.wait()


class Ruler(NamedTuple):
    """A ruler that listens."""

    port: int
    pid: int


@contextmanager
def bare(directory: Path, kind: str, span_bytes: int) -> Iterator[Ruler]:
    """Run the ruler of one kind (echo, append, file) with files of its own."""
    with tempfile.TemporaryDirectory(prefix=f"bare-{kind}-", dir=directory) as files:
        scratch = Path(files) / "file"
        arguments = [str(directory / "bare"), "0", kind]
        if kind != "echo":
            arguments.append(str(scratch))
        if kind == "file":
            scratch.write_bytes(os.urandom(span_bytes))
            arguments.append(str(span_bytes))
        with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as process:
            try:
                assert process.stdout is not None  # noqa: S101 - it was asked for above
                yield Ruler(int(process.stdout.readline()), process.pid)
            finally:
                process.terminate()


@dataclass(frozen=True)
class RunningBroker:
    """A broker that has printed its ready line."""

    port: int
    run_dir: Path
    ready_seconds: float

    def status(self) -> dict[str, Any]:
        """Return the output of `rotunda status --json`."""
        command = rotunda("status", "--json", "--run-dir", str(self.run_dir))
        done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=REPOSITORY)
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    def roles(self) -> dict[str, list[int]]:
        """Return the process ids by role."""
        status = self.status()
        found = {"supervisor": [int(status["pid"])]}
        for entry in status["processes"]:
            found.setdefault(str(entry["role"]), []).append(int(entry["pid"]))
        return found

    def spent(self, roles: dict[str, list[int]]) -> dict[str, Spent]:
        """Return the processor time of the processes of each role."""
        return {role: processor_time.total(map(processor_time.of_process, pids)) for role, pids in roles.items()}

    def configure(self, setting: str) -> None:
        """Change a setting. Raises MeasurementError."""
        run(rotunda("config", "set", setting, "--run-dir", str(self.run_dir)))

    def pids(self) -> tuple[int, ...]:
        """Return the process ids of the supervisor and all its children."""
        return tuple({pid for pids in self.roles().values() for pid in pids})


def rotunda(*arguments: str) -> list[str]:
    """Return the command line of the broker's own program: the console script, else the module."""
    script = Path(sys.executable).parent / "rotunda"
    return [str(script), *arguments] if script.exists() else [sys.executable, "-m", "rotunda", *arguments]


@contextmanager
def broker(run_dir: Path, settings: list[str]) -> Iterator[RunningBroker]:
    """Start a broker with a temporary data directory and yield it once it is ready."""
    run_dir.mkdir(parents=True)
    (port,) = free_ports(1)
    arguments = ["start", "--ephemeral", "--run-dir", str(run_dir)]
    for pair in [f"listeners=PLAINTEXT://127.0.0.1:{port}", *settings]:
        arguments += ["--set", pair]
    with (run_dir / "stderr.log").open("wb") as log:
        started = time.monotonic()
        process = subprocess.Popen(rotunda(*arguments), stdout=subprocess.PIPE, stderr=log, cwd=REPOSITORY, text=True)
        try:
            assert process.stdout is not None  # noqa: S101 - it was asked for above
            if not process.stdout.readline():
                raise MeasurementError((run_dir / "stderr.log").read_text())
            yield RunningBroker(port, run_dir, time.monotonic() - started)
        finally:
            process.terminate()
            process.wait(DEADLINE_SECONDS)
