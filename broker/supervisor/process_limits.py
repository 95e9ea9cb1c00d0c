"""Checks the system's limits per process before the start: descriptors and address space.

Runs in the supervisor. Every child inherits its descriptors and mappings. Connections and segment files need more: if
that runs short, the broker serves with fewer (`A24`, `broker/log/descriptor_limit.py`).
"""

from __future__ import annotations

import contextlib
import os
import resource
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rotunda.broker.errors import BootFailed
from rotunda.broker.runtime.boot_failures import few_descriptors, little_address_space, soft_limit

if TYPE_CHECKING:
    from rotunda.broker.ipc.process_context import ProcessContext

#: With fewer no broker can even compute its needs.
FEWEST_DESCRIPTORS: Final = 64

#: The supervisor's descriptors per child: both ends of the pipe for its stacks, its sentinel and the other end of that.
_A_CHILD: Final = 4
#: Acceptor, controller, cleaner, recorder, status page.
_OTHER_CHILDREN: Final = 5
#: Other descriptors of a process: signals, the metadata, temporary files, and a first client.
_OWN: Final = 24

#: Other mappings of a process after the start: libraries above all, and stacks of threads.
_LIBRARIES_BYTES: Final = 128 << 20


def check_descriptor_limit(least: int) -> None:
    """Raise the soft limit to the hard one. Raises BootFailed if that is below `least`."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    limit = soft_limit(resource.RLIMIT_NOFILE)
    if limit is not None and limit < least:
        raise BootFailed(few_descriptors(limit, least))


def descriptors_needed(context: ProcessContext) -> int:
    """Return the descriptors a process has open once all children run; `context` is complete, no child runs yet."""
    children = context.started_processors + context.started_handlers + _OTHER_CHILDREN
    return len(os.listdir("/proc/self/fd")) + _A_CHILD * children + _OWN


def check_address_space(segments_bytes: int) -> None:
    """Raise BootFailed if this process's limit is too small for segments of this size and its other mappings.

    Near the limit failures are not reliable: threads, imports and even the compiler fail in their own ways.
    """
    limit = soft_limit(resource.RLIMIT_AS)
    if limit is None:
        return
    mapped_pages, *_ = Path("/proc/self/statm").read_text(encoding="ascii").split()
    needed = int(mapped_pages) * resource.getpagesize() + segments_bytes + _LIBRARIES_BYTES
    if limit < needed:
        raise BootFailed(little_address_space(limit, f", and this broker needs {needed}"))
