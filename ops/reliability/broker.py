"""The broker under attack: an instance of its own, its processes as the system shows them, and its resource usage.

Uses only an operator's means: the command line, signals, /proc and /dev/shm.
"""

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from ops.free_ports import free_ports

REPOSITORY = Path(__file__).parent.parent.parent
SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - looked at, never written to
START_SECONDS = 60.0
LOG_TAIL_CHARACTERS = 2000
ROLES = ("acceptor", "processor", "handler", "controller", "cleaner", "recorder", "web")
#: The campaign measures the broker and its bystanders, and not how long they wait for a core while the attackers run:
#: they get priority, if the system allows it.
NICENESS = -10
#: Where the kernel groups processes by session, a niceness applies within that session only, and this is the group's.
SESSION = Path("/proc/self/autogroup")
#: Differences from the defaults: groups form at once, and compaction and expiry run within minutes.
SETTINGS = {
    "num.network.threads": "2",
    "num.io.threads": "2",
    "status.port": "0",
    "group.initial.rebalance.delay.ms": "0",
    "log.cleaner.backoff.ms": "1000",
    "log.retention.ms": "-1",
    "request.log.roll.ms": "2000",
}


class BrokerError(Exception):
    """The broker did not start, did not stop, or ended by itself; the text ends with its log."""


class Broker:
    """One instance below `directory`, its data in `data_dir`; always on the same port, so that its clients find it."""

    def __init__(self, directory: Path, data_dir: Path, settings: Mapping[str, str]) -> None:
        self.directory, self.data_dir = directory, data_dir
        [self.port] = free_ports(1)
        self._settings = {**SETTINGS, "listeners": f"PLAINTEXT://127.0.0.1:{self.port}", **settings}
        self._log = directory / "broker.log"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def bootstrap(self) -> str:
        """The bootstrap address of clients."""
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        """The supervisor's process id."""
        return self._process.pid if self._process is not None else 0

    @property
    def is_alive(self) -> bool:
        """Whether the supervisor runs."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start it and return when it has printed its ready line; BrokerError when it does not."""
        run_dir = self.directory / "run"
        command = [
            sys.executable,
            "-m",
            "rotunda",
            "start",
            "--run-dir",
            str(run_dir),
            "--data-dir",
            str(self.data_dir),
        ]
        for key, value in self._settings.items():
            command += ["--set", f"{key}={value}"]
        ready = self.directory / "ready.txt"
        with self._log.open("ab") as log, ready.open("wb") as printed:
            self._process = subprocess.Popen(
                command, cwd=REPOSITORY, stdin=subprocess.DEVNULL, stdout=printed, stderr=log
            )
        if os.geteuid() == 0:
            os.setpriority(os.PRIO_PROCESS, self._process.pid, NICENESS)
            raise_session()
        self._wait(lambda: b"\n" in ready.read_bytes() or not self.is_alive, "its ready line")
        if not self.is_alive:
            raise BrokerError(f"the broker did not start: {self.log_tail()}")

    def terminate(self) -> None:
        """Send SIGTERM and wait for its end. Raises BrokerError on timeout."""
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

    def memory(self) -> Counter[str]:
        """Return the proportional set size in bytes of each role, the supervisor's included."""
        sizes: Counter[str] = Counter(supervisor=proportional_bytes(self.pid))
        for role, pids in self.processes().items():
            sizes[role] += sum(map(proportional_bytes, pids))
        return sizes

    def descriptors(self) -> int:
        """Return how many descriptors all of its processes have open together."""
        pids = [self.pid, *(pid for pids in self.processes().values() for pid in pids)]
        return sum(entries(Path(f"/proc/{pid}/fd")) for pid in pids)

    def shared_files(self) -> list[str]:
        """Return the names of this project's files in /dev/shm, of this instance or of one before."""
        instances = f"rotunda-{self.pid}."
        return sorted(path.name for path in SHARED_MEMORY.glob("rotunda-*") if path.name.startswith(instances))

    def log_lines(self) -> list[str]:
        """Return all that it logged."""
        return self._log.read_text(errors="replace").splitlines() if self._log.exists() else []

    def log_tail(self) -> str:
        """Return the end of its log."""
        return self._log.read_text(errors="replace")[-LOG_TAIL_CHARACTERS:] if self._log.exists() else ""

    def _wait(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + START_SECONDS
        while not condition():
            if time.monotonic() > deadline:
                raise BrokerError(f"{START_SECONDS:.0f} s passed without {what}: {self.log_tail()}")
            time.sleep(0.01)


def raise_session() -> None:
    """Raise the priority of this session's processes over other sessions, as the broker has it within its session.

    Only root may, and only where the kernel groups processes by session: elsewhere nothing changes.
    """
    with suppress(OSError):
        SESSION.write_text(str(NICENESS), encoding="ascii")


def children_of(pid: int) -> list[int]:
    """Return the process ids of a process's children; none when it has ended."""
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def pids_of(supervisor: int, role: str) -> list[int]:
    """Return the process ids of one role of a broker."""
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
