"""Removes the files that owners have marked as deleted, after a delay for readers.

Runs in the cleaner process, so that no owner is blocked: removing a large file is slow. The change time of a file is
the time at which it was renamed to `.deleted`. After an interruption, the next scan of the directory finds the file
again.
"""

from __future__ import annotations

import os
from pathlib import Path

from rotunda.broker.log.segments.segment_files import DELETED_SUFFIX, remove_if_there

#: Minimum delay, whatever file.delete.delay.ms is: readers open a file a moment after they have its name.
LEAST_DELAY_MS = 1000

_NS_PER_MS = 1_000_000


def remove_doomed(directory: Path, delay_ms: int, now_ms: int) -> int | None:
    """Remove files marked `delay_ms` ago; return the ms until the next one is due, None if there is none."""
    delay_ms = max(delay_ms, LEAST_DELAY_MS)
    waits_ms = []
    try:
        names = [name for name in os.listdir(directory) if name.endswith(DELETED_SUFFIX)]
    except FileNotFoundError:
        return None
    for name in names:
        path = directory / name
        try:
            doomed_ms = path.stat().st_ctime_ns // _NS_PER_MS
        except FileNotFoundError:
            continue
        left_ms = doomed_ms + delay_ms - now_ms
        if left_ms > 0:
            waits_ms.append(left_ms)
        else:
            remove_if_there(path)
    return min(waits_ms, default=None)
