"""The command `rotunda`: in this process, where it needs a tenth of the time, or in a process of its own."""

import io
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from signal import SIGINT, SIGTERM, getsignal, signal
from typing import NamedTuple
from unittest.mock import patch

from rotunda.broker.cli.main import main
from tests.support.deadline import deadline_s

REPOSITORY = Path(__file__).parents[2]
#: They fork, become another program, or measure their process.
IN_PROCESSES_OF_THEIR_OWN = {"start", "bench", "report"}


class Done(NamedTuple):
    """The result of a command."""

    code: int
    out: bytes
    err: str


def rotunda(*arguments: str, data: bytes = b"", **environment: str) -> Done:
    """Run a command to its end in this process, as main() does in its own."""
    if IN_PROCESSES_OF_THEIR_OWN & set(arguments[:1]):
        assert not data
        done = process(*arguments, **environment)
        return Done(done.returncode, done.stdout.encode(), done.stderr)
    out, err = io.BytesIO(), io.BytesIO()
    printed, complaint = io.TextIOWrapper(out, "utf-8"), io.TextIOWrapper(err, "utf-8", "backslashreplace")
    typed = io.TextIOWrapper(io.BytesIO(data), "utf-8")
    streams = patch.multiple(sys, stdin=typed, stdout=printed, stderr=complaint)
    with streams, patch.dict(os.environ, environment), _unchanged_signals():
        try:
            code = main(arguments)
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 1
        printed.flush()
        complaint.flush()
    return Done(code, out.getvalue(), err.getvalue().decode())


def command(*arguments: str, typed: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a command to its end in this process; its input and output are text."""
    done = rotunda(*arguments, data=typed.encode(), **environment)
    return subprocess.CompletedProcess(arguments, done.code, done.out.decode(), done.err)


def process(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a command to its end in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "rotunda", *arguments], cwd=REPOSITORY, capture_output=True, text=True,
        timeout=deadline_s(60), check=False, env={**os.environ, **environment},
    )  # fmt: skip


@contextmanager
def _unchanged_signals() -> Iterator[None]:
    before = {number: getsignal(number) for number in (SIGINT, SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            if getsignal(number) is not handler:
                signal(number, handler)
