"""The broker under test: one started here, in a temporary directory, or a given address.

A broker started here can be killed process by process while a client runs.
"""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).parent.parent.parent
DEADLINE_SECONDS = 30.0
LOG_TAIL_CHARACTERS = 1000
#: A broker of one's own for tests: groups form at once.
SETTINGS = {
    "listeners": "PLAINTEXT://127.0.0.1:0",
    "num.network.threads": "2",
    "num.io.threads": "2",
    "status.port": "0",
    "group.initial.rebalance.delay.ms": "0",
    "request.log.roll.ms": "1000",
}


class BrokerError(Exception):
    """The broker did not start or stop properly; the text is its log."""


@dataclass(frozen=True)
class Broker:
    """A running broker. A foreign one has no run directory and no data directory."""

    bootstrap: str
    run_dir: Path | None = None
    data_dir: Path | None = None

    def status(self) -> dict[str, object]:
        """Return what `rotunda status --json` prints."""
        return json.loads(rotunda("status", "--json", "--run-dir", str(self.run_dir)))

    def kill_a_handler(self, turn: int) -> None:
        """SIGKILL one handler, another one each turn."""
        rows = [row for row in self.status()["processes"] if row["role"] == "handler"]
        os.kill(int(rows[turn % len(rows)]["pid"]), signal.SIGKILL)


def rotunda(*arguments: str) -> str:
    """Run one subcommand of the broker and return its output."""
    command = [sys.executable, "-m", "rotunda", *arguments]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False, timeout=60)
    if done.returncode:
        raise BrokerError(f"{' '.join(arguments[:2])}: {done.stderr}")
    return done.stdout


@contextmanager
def started(directory: Path, settings: Mapping[str, str]) -> Iterator[Broker]:
    """Start a broker with its data in `directory`, and stop it at the end; the data stays.

    `settings` are appended to those that every client's broker has.
    """
    run_dir, data_dir = directory / "run", directory / "data"
    for path in (run_dir, data_dir):
        path.mkdir(parents=True)
    command = [sys.executable, "-m", "rotunda", "start", "--run-dir", str(run_dir), "--data-dir", str(data_dir)]
    for key, value in {**SETTINGS, **settings}.items():
        command += ["--set", f"{key}={value}"]
    with (directory / "broker.log").open("wb") as log:
        process = subprocess.Popen(
            command, cwd=REPOSITORY, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log
        )
        try:
            assert process.stdout is not None  # noqa: S101 - it was asked for above
            if not process.stdout.readline():
                raise BrokerError((directory / "broker.log").read_text(errors="replace")[-LOG_TAIL_CHARACTERS:])
            bootstrap = Broker("", run_dir).status()["bootstrap"]
            yield Broker(str(bootstrap).split(",")[0], run_dir, data_dir)
        finally:
            process.terminate()
            process.wait(DEADLINE_SECONDS)


@contextmanager
def handlers_dying(broker: Broker, every_seconds: float) -> Iterator[None]:
    """Kill one handler after the other as long as the block runs."""
    ended = threading.Event()

    def kill() -> None:
        turn = 0
        while not ended.wait(every_seconds):
            broker.kill_a_handler(turn)
            turn += 1

    thread = threading.Thread(target=kill)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
