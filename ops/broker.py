"""A broker that is started for a measurement, a check or an attack, and its processes as the system shows them.

Uses only an operator's means: the command line, signals, /proc and /dev/shm.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from ops.free_ports import free_ports

REPOSITORY = Path(__file__).parent.parent
SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - looked at, never written to
START_SECONDS = 60.0
COMMAND_SECONDS = 300.0
LOG_TAIL_CHARACTERS = 2000
ROLES = ("acceptor", "processor", "handler", "controller", "cleaner", "recorder", "web")
#: Of a broker that comes first, whatever else the machine does.
NICENESS = -10
#: Where the kernel groups processes by session, a niceness applies within that session only, and this is the group's.
SESSION = Path("/proc/self/autogroup")
#: Of brokers that clients check: groups form at once, and nothing depends on the machine.
SETTINGS: Mapping[str, str] = {
    "num.network.threads": "2",
    "num.io.threads": "2",
    "status.port": "0",
    "group.initial.rebalance.delay.ms": "0",
    "request.log.roll.ms": "1000",
}


class ProgramError(Exception):
    """A program did not start, did not end, or failed; the text names it and has its output."""


class Broker:
    """One instance below `directory`, which runs inside its `with`; always on the same port, so that clients find it.

    Its data is in `data_dir`, which stays. One that `comes_first` has priority, if the system allows it.
    """

    def __init__(
        self, directory: Path, settings: Mapping[str, str], data_dir: Path | None = None, *, comes_first: bool = False
    ) -> None:
        self.directory, self.run_dir, self.data_dir = directory, directory / "run", data_dir or directory / "data"
        self._settings = {"listeners": f"PLAINTEXT://127.0.0.1:{free_ports(1)[0]}", **settings}
        #: Of the first listener.
        self.port = int(self._settings["listeners"].split(",")[0].rpartition(":")[2])
        self._comes_first = comes_first
        self._log = directory / "broker.log"
        self._process: subprocess.Popen[bytes] | None = None
        #: Time of the last start until its ready line.
        self.ready_seconds = 0.0

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.kill()
            raise
        return self

    def __exit__(self, *_failure: object) -> None:
        self.terminate()

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        return self._process.pid if self._process is not None else 0

    @property
    def is_alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start it and return when it has printed its ready line; ProgramError when it does not."""
        self.directory.mkdir(parents=True, exist_ok=True)
        command = rotunda("start", "--run-dir", str(self.run_dir), "--data-dir", str(self.data_dir))
        for key, value in self._settings.items():
            command += ["--set", f"{key}={value}"]
        ready, begin = self.directory / "ready.txt", time.monotonic()
        with self._log.open("ab") as log, ready.open("wb") as printed:
            self._process = subprocess.Popen(
                command, cwd=REPOSITORY, stdin=subprocess.DEVNULL, stdout=printed, stderr=log
            )
        if self._comes_first and os.geteuid() == 0:
            prioritise(self._process.pid)
        self._wait(lambda: b"\n" in ready.read_bytes() or not self.is_alive, "its ready line")
        if not self.is_alive:
            raise ProgramError(f"the broker did not start: {self.log_tail()}")
        self.ready_seconds = time.monotonic() - begin

    def rotunda(self, *arguments: str) -> str:
        """Run one of its commands and return the output; ProgramError when it fails."""
        return output_of(rotunda(*arguments, "--run-dir", str(self.run_dir)))

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.rotunda("status", "--json"))
        return found

    def terminate(self) -> None:
        """Send SIGTERM and wait for its end. Raises ProgramError on timeout."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL the supervisor, and wait until its children have died with it."""
        self._end(signal.SIGKILL)

    def _end(self, signum: signal.Signals) -> None:
        if self._process is None:
            return
        children = [pid for pids in self.processes().values() for pid in pids]
        for pid in children:
            send(pid, signal.SIGCONT)
        if self.is_alive:
            self._process.send_signal(signum)
        self._wait(lambda: not self.is_alive and not any(map(is_alive, children)), f"its end after {signum.name}")

    def processes(self) -> dict[str, list[int]]:
        """Return the process ids of each role, of those that live at this moment."""
        found: dict[str, list[int]] = {role: [] for role in ROLES}
        for pid in children_of(self.pid):
            role = role_of(pid)
            if role in found:
                found[role].append(pid)
        return found

    def pids(self) -> tuple[int, ...]:
        return self.pid, *(pid for pids in self.processes().values() for pid in pids)

    def memory(self) -> Counter[str]:
        """Return the proportional set size in bytes of each role, the supervisor's included."""
        sizes: Counter[str] = Counter(supervisor=proportional_bytes(self.pid))
        for role, pids in self.processes().items():
            sizes[role] += sum(map(proportional_bytes, pids))
        return sizes

    def descriptors(self) -> int:
        """Return how many descriptors all of its processes have open together."""
        return sum(entries(Path(f"/proc/{pid}/fd")) for pid in self.pids())

    def shared_files(self) -> list[str]:
        """Return the names of this project's files in /dev/shm, of this instance or of one before."""
        instances = f"rotunda-{self.pid}."
        return sorted(path.name for path in SHARED_MEMORY.glob("rotunda-*") if path.name.startswith(instances))

    def log_lines(self) -> list[str]:
        return self._log.read_text(errors="replace").splitlines() if self._log.exists() else []

    def log_tail(self) -> str:
        return self._log.read_text(errors="replace")[-LOG_TAIL_CHARACTERS:] if self._log.exists() else ""

    def _wait(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + START_SECONDS
        while not condition():
            if time.monotonic() > deadline:
                raise ProgramError(f"{START_SECONDS:.0f} s passed without {what}: {self.log_tail()}")
            time.sleep(0.01)


def rotunda(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "rotunda", *arguments]


def output_of(command: list[str]) -> str:
    """Run a command to its end and return its output; ProgramError with the errors when it fails or does not end."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, cwd=REPOSITORY, timeout=COMMAND_SECONDS
        )
    except subprocess.TimeoutExpired as failure:
        raise ProgramError(f"{' '.join(command)}: has not ended after {COMMAND_SECONDS:.0f} s") from failure
    if done.returncode:
        raise ProgramError(f"{' '.join(command)}: {(done.stdout + done.stderr).strip()}")
    return done.stdout


def prioritise(pid: int) -> None:
    """Raise the priority of a process and its future children, and of this session over others; only root may."""
    os.setpriority(os.PRIO_PROCESS, pid, NICENESS)
    with suppress(OSError):
        SESSION.write_text(str(NICENESS), encoding="ascii")


def children_of(pid: int) -> list[int]:
    """Return the process ids of a process's children; none when it has ended."""
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def pids_of(supervisor: int, role: str) -> list[int]:
    return [pid for pid in children_of(supervisor) if role_of(pid) == role]


def role_of(pid: int) -> str:
    """Return the role in a process's name (`rot-handler-1`); empty when it has ended or has none yet."""
    try:
        words = Path(f"/proc/{pid}/comm").read_text().strip().split("-")
    except OSError:
        return ""
    return words[1] if len(words) > 1 and words[0] == "rot" else ""


def proportional_bytes(pid: int) -> int:
    """Return a process's share of memory; 0 when it has ended."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) * 1024


def entries(directory: Path) -> int:
    """Return how many entries a directory has; 0 when it does not exist."""
    try:
        return len(os.listdir(directory))
    except OSError:
        return 0


def is_alive(pid: int) -> bool:
    """Return whether a process runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def send(pid: int, signum: signal.Signals) -> bool:
    """Send a signal; return whether the process was there."""
    try:
        os.kill(pid, signum)
    except ProcessLookupError:
        return False
    return True
