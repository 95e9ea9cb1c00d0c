"""The end of a test broker's first process: waited for, and what it leaves when it is killed.

Runs in the process of the tests. A supervisor removes its shared memory and its temporary directory itself; one that
is killed cannot.
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
    """Return whether a process has ended, as soon as it has, or after a time."""
    if process.poll() is not None:
        return True
    fd = os.pidfd_open(process.pid)
    # Not select(): a process of tests may have more descriptors than that takes.
    ended = select.poll()
    ended.register(fd, select.POLLIN)
    try:
        return bool(ended.poll(most_s * 1000))
    finally:
        os.close(fd)


def remove_what_a_killed_one_leaves(record: RunRecord | None) -> None:
    """Remove what a dead supervisor would have removed, as the next start anywhere does; `record`: if it served."""
    if record is not None:
        with suppress(OSError, RotundaError):
            # Its children die with it, and hold the lock until then.
            os.close(run_dir.outlast_children(Path(record.data_dir)))
    remove_stale()
    remove_dead_ephemeral()
