"""The end of a test broker's supervisor: the wait for it, and cleanup if it was killed.

Runs in the process of the tests. A supervisor removes its shared memory and its temporary directory itself, unless it
is killed.
"""

from __future__ import annotations

import os
import select
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from rotunda.broker.cli.instance.start import remove_dead_ephemeral
from rotunda.broker.errors import RotundaError
from rotunda.broker.runtime import run_dir
from rotunda.shm.segment import remove_stale

if TYPE_CHECKING:
    import subprocess

    from rotunda.broker.runtime.run_dir import RunRecord


def has_ended(process: subprocess.Popen[bytes], most_s: float) -> bool:
    """Wait up to `most_s` seconds for a process to end; return whether it has."""
    if process.poll() is not None:
        return True
    fd = os.pidfd_open(process.pid)
    # Not select(): its descriptor limit is too low for large test processes.
    ended = select.poll()
    ended.register(fd, select.POLLIN)
    try:
        return bool(ended.poll(most_s * 1000))
    finally:
        os.close(fd)


def remove_files_of(record: RunRecord | None) -> None:
    """Remove a dead supervisor's files, as the next start of a broker does; `record` is None if it never served."""
    if record is not None:
        with suppress(OSError, RotundaError):
            # Its children die with it, and hold the lock until then.
            os.close(run_dir.outlast_children(Path(record.data_dir)))
    remove_stale()
    remove_dead_ephemeral()
