"""Removing the files that owners have taken out of their logs, once readers have had their time.

Runs in the cleaner process, so that no owner spends its time on it: to remove a large file takes a while. The time at
which a file got the suffix `.deleted` is its change time. A file whose removal is cut short by anything is found by
the next look at its directory.
"""

from __future__ import annotations

import os
from pathlib import Path

from rotunda.broker.log.segments.segment_files import DELETED_SUFFIX, remove_if_there

#: Readers are given this long whatever file.delete.delay.ms is: they name a file and open it a moment later.
LEAST_DELAY_MS = 1000

_NS_PER_MS = 1_000_000


def remove_doomed(directory: Path, delay_ms: int, now_ms: int) -> int | None:
    """Remove what was doomed `delay_ms` ago; return in how many ms the next file is due, None if there is none."""
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
