"""What a broker needs to start of what the system limits for each process: descriptors and address space.

Every child inherits the supervisor's descriptors and mappings. What connections and segments need comes on top: where
that is short, the broker serves with what it has (`A24`, `broker/log/descriptor_limit.py`).
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

#: With fewer no broker gets as far as to know what it needs.
FEWEST_DESCRIPTORS: Final = 64

#: Of the supervisor for each child: both ends of the pipe for its stacks, its sentinel and the other end of that.
_A_CHILD: Final = 4
#: Acceptor, controller, cleaner, recorder, status page.
_OTHER_CHILDREN: Final = 5
#: What a process opens besides: signals, the metadata, files while it works, and a first client.
_OWN: Final = 24

#: What a process maps besides shared memory after the start: libraries above all, and stacks of threads.
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
    """Return how many a process of this broker has open once all children run; `context` is complete, none runs yet."""
    children = context.started_processors + context.started_handlers + _OTHER_CHILDREN
    return len(os.listdir("/proc/self/fd")) + _A_CHILD * children + _OWN


def check_address_space(segments_bytes: int) -> None:
    """Raise BootFailed if the limit of this process is too small for segments of this size and what else it maps.

    Near the limit no failure is to be relied on: threads, imports and even the compiler fail in their own ways.
    """
    limit = soft_limit(resource.RLIMIT_AS)
    if limit is None:
        return
    mapped_pages, *_ = Path("/proc/self/statm").read_text(encoding="ascii").split()
    needed = int(mapped_pages) * resource.getpagesize() + segments_bytes + _LIBRARIES_BYTES
    if limit < needed:
        raise BootFailed(little_address_space(limit, f", and this broker needs {needed}"))
