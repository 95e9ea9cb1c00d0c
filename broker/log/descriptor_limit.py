"""Checks the limit of open files against the partitions of a data directory, and warns operators of a low limit.

Used by a starting broker and by `rotunda doctor`. With too few descriptors a broker works, but more slowly: idle
segments are closed (`segments/open_segments.py`).
"""

import os
from pathlib import Path

from rotunda.broker.log.segments.open_segments import FILES_A_SEGMENT, OTHERS, most_segments
from rotunda.broker.text_table import counted

#: The limit that Kafka's documentation recommends for each broker.
ADVISED = 100_000


def partitions_in(data_dir: Path) -> int:
    """Return the number of partition directories in `data_dir`. Raises OSError."""
    names = [name.rpartition("-") for name in os.listdir(data_dir)]
    return sum(1 for topic, _, partition in names if topic and partition.isdecimal())


def want_of_descriptors(data_dir: Path, handlers: int, limit: int) -> str | None:
    """Return a warning with the shortage and the remedy; None if the handlers have enough descriptors.

    `limit` applies to each process, -1 for none. Raises OSError.
    """
    partitions = partitions_in(data_dir)
    each = -(-partitions // handlers)
    if each <= most_segments(limit):
        return None
    wanted = max(ADVISED, each * FILES_A_SEGMENT + OTHERS)
    return (
        f"{counted(partitions, 'partition')} in {data_dir}, and a limit of {limit:,} open files: each of "
        f"{counted(handlers, 'handler')} has descriptors for {most_segments(limit):,} that are written to, "
        f"of {each:,}; "
        "those idle longest are closed, and opened again with their next write. Raise the limit (ulimit -n, "
        f"LimitNOFILE in systemd) to {wanted:,} to spare that, and start the broker again"
    )
