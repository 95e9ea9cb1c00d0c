"""`rotunda consume`, `rotunda produce` and kcat: bytes in, bytes out."""

import os
import subprocess
import sys
from collections.abc import Sequence

from tests.support import command_line
from tests.support.command_line import REPOSITORY, Done
from tests.support.deadline import deadline_s

#: Everything of a record but its place and time, with lengths, so that nothing is ambiguous.
WHOLE = r"%K,%k,%S,%s,%h|%p|"


def rotunda(bootstrap: str, *arguments: str, data: bytes = b"") -> Done:
    """Run a command against a broker to its end, in this process."""
    return command_line.rotunda(*arguments, "--bootstrap", bootstrap, data=data)


def kcat(bootstrap: str, *arguments: str, data: bytes = b"") -> Done:
    """Run kcat to its end."""
    return ended(["kcat", "-q", "-b", bootstrap, *arguments], data)


def read_by_kcat(bootstrap: str, topic: str, *arguments: str) -> bytes:
    """Return kcat's output of a topic up to its end."""
    done = kcat(bootstrap, "-C", "-t", topic, "-e", *arguments)
    assert done.code == 0, done.err
    return done.out


def consumed(bootstrap: str, topic: str, *arguments: str) -> bytes:
    """Return the output of `rotunda consume`."""
    done = rotunda(bootstrap, "consume", topic, *arguments)
    assert done.code == 0, done.err
    return done.out


def produce(bootstrap: str, topic: str, data: bytes, *arguments: str) -> None:
    """Write records by `rotunda produce`; it must print nothing."""
    done = rotunda(bootstrap, "produce", topic, *arguments, data=data)
    assert done == Done(0, b"", "")


def command(bootstrap: str, name: str, *arguments: str) -> list[str]:
    """Return the command line."""
    return [sys.executable, "-m", "rotunda", name, "--bootstrap", bootstrap, *arguments]


def started(bootstrap: str, *arguments: str, out: int | None = subprocess.PIPE) -> subprocess.Popen[bytes]:
    """Start a command; its standard input stays open."""
    return subprocess.Popen(
        command(bootstrap, *arguments), cwd=REPOSITORY, stdin=subprocess.PIPE, stdout=out, stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )  # fmt: skip


def ended(line: Sequence[str], data: bytes) -> Done:
    """Run a command to its end."""
    done = subprocess.run(line, cwd=REPOSITORY, input=data, capture_output=True, timeout=deadline_s(60), check=False)
    return Done(done.returncode, done.stdout, done.stderr.decode())
