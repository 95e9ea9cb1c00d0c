"""Stack dumps: every process, also a hanging one, writes its stacks as one line in the log.

The interpreter's fault handler writes them: in C, in the signal handler itself, so that a process responds from an
endless loop and from a system call that a signal can end. Each child writes into its own pipe, and the supervisor reads
it and logs the line: so a line is whole and has the format of the log. For a process that does not respond, the
supervisor logs its state in the system. The output of a child after a fault in C, such as SIGSEGV, uses the same pipe.
"""

from __future__ import annotations

import faulthandler
import os
import re
import select
from contextlib import suppress
from pathlib import Path

from rotunda.broker.runtime.signals import DUMP_STACKS

#: A responsive process starts writing within the first time, and continues without pauses longer than the second.
RESPONSE_MS = 500
_PAUSE_MS = 20

_READ_BYTES = 65536
_FRAME = re.compile(r'File "([^"]*)", line (\d+|\?+) in (.*)')

#: Unit of times in /proc.
_TICK_NS = 1_000_000_000 // os.sysconf("SC_CLK_TCK")

#: Names of the states of a process in the system (proc(5)).
_STATES = {
    "T": "stopped by a signal",
    "t": "stopped by a debugger",
    "D": "in an uninterruptible wait in the kernel, usually for a disk",
    "Z": "dead",
}


class StackPipe:
    """The pipe for the stacks of one child and its successors; the supervisor has both ends and reads."""

    def __init__(self) -> None:
        self._reader, self._writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def install(self) -> None:
        """Child: write the stacks of all threads at DUMP_STACKS, and after a fault in C."""
        faulthandler.register(DUMP_STACKS, file=self._writer, all_threads=True, chain=False)
        faulthandler.enable(file=self._writer, all_threads=True)

    def ask(self, pid: int) -> None:
        """Supervisor: request the stacks of the process. Unread output of an earlier one is dropped."""
        self._read(0)
        with suppress(ProcessLookupError):
            os.kill(pid, DUMP_STACKS)

    def answer(self, wait_ms: int = RESPONSE_MS) -> str:
        """Supervisor: return the output as one line, waiting for its start; empty if there was none."""
        written = self._read(wait_ms)
        return on_one_line(written.decode(errors="replace"))

    def close(self) -> None:
        """Close both ends in this process."""
        os.close(self._reader)
        os.close(self._writer)

    def _read(self, wait_ms: int) -> bytes:
        written = b""
        poll = select.poll()
        poll.register(self._reader, select.POLLIN)
        while poll.poll(_PAUSE_MS if written else wait_ms):
            written += os.read(self._reader, _READ_BYTES)
        return written


def on_one_line(dump: str) -> str:
    """Return the fault handler's text with a frame after each bar, innermost first, like tracebacks in the log."""
    lines = (line.strip() for line in dump.splitlines())
    return " | ".join(_FRAME.sub(r"\1:\2 in \3", line) for line in lines if line)


def is_beyond_signals(pid: int) -> bool:
    """Return whether a process waits in the kernel such that even SIGKILL cannot end it before the wait is over."""
    try:
        return _stat(pid)[0] == "D"
    except OSError:
        return False


def run_ns_if_runnable(pid: int) -> int | None:
    """Return the CPU time of a process if it is running or waits for a CPU; else None."""
    try:
        fields = _stat(pid)
    except OSError:
        return None
    return (int(fields[11]) + int(fields[12])) * _TICK_NS if fields[0] == "R" else None


def _stat(pid: int) -> list[str]:
    """Return the fields of proc(5)'s stat from the state on. Raises OSError."""
    return Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()


def kernel_state(pid: int) -> str:
    """Return a possible cause of a missing response: the state of the process, and where in the kernel it waits."""
    try:
        state = _stat(pid)[0]
        where = Path(f"/proc/{pid}/wchan").read_text(encoding="ascii").strip("0\n")
    except OSError:
        return "it has ended"
    known = f"it is {_STATES.get(state, 'running or asleep')} (state {state})"
    return known + (f", in the kernel's {where}" if where else "")
