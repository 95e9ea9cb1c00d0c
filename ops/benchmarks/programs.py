"""The programs of a measurement: kload, gload and bare, built here from C, and `rotunda bench`.

Knows nothing of the measurements. Every server listens on a free port and is stopped at the end of its `with`.
"""

import json
import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from ops.broker import ProgramError, output_of, rotunda

SOURCES = Path(__file__).parent
DEADLINE_SECONDS = 30.0


def build(directory: Path) -> None:
    for name in ("kload", "gload", "bare"):
        command = ["cc", "-O2", "-o", str(directory / name), str(SOURCES / f"{name}.c")]
        subprocess.run(command, check=True)


def kload(directory: Path, command: str, port: int, arguments: list[str]) -> dict[str, float]:
    """Run one kload and return the key=value pairs of its last line; empty for commands without output."""
    words = output_of([str(directory / "kload"), command, str(port), *arguments]).strip().splitlines()[-1:]
    pairs = [word.split("=") for word in " ".join(words).split()]
    return {key: float(value) for key, value in pairs}


def producer_rates(port: int, clients: list[str], records: int, rounds: int) -> dict[str, list[float]]:
    """Run the producers of these client libraries in turns; return the records a second of each turn."""
    load = ["--topic", "producers", "--num-records", str(records), "--turns", str(rounds)]
    command = rotunda("bench", "--json", "--bootstrap", f"127.0.0.1:{port}", "--client", ",".join(clients), *load)
    found = json.loads(output_of(command))
    return {name: [figures["records_s"] for figures in turns] for name, turns in found.items()}


class Groups:
    """Many groups whose members are silent except inside `busy`."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self._process = process
        self._log = log

    def check(self, *, is_fine: bool) -> None:
        """Raise ProgramError with the output of the load unless `is_fine`."""
        if not is_fine:
            raise ProgramError(f"{' '.join(map(str, self._process.args))}: {self._log.read_text().strip()}")

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

    Raises ProgramError when the broker returned an error or could not keep up.
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
