"""The part of the map of shared memory by which tests inject faults into a broker started for them.

Declarations only, as in `shm.layout`, which prints them with its own. No other broker has such a segment.
"""

from __future__ import annotations

from rotunda.shm.record import Field, Record

#: Most simultaneous faults, and so the number of counts in a target.
MOST_FAULTS = 64

FAULT_TABLE = Record(
    "FAULT_TABLE",
    "Header of the segment, followed by the FAULT_COUNTs of all targets. The active faults are in a file.",
    64,
    (
        Field("version", "q", "count", "tests", "raised after the file of faults was replaced"),
        Field("delays_over_ns", "q", "ns", "tests", "responses delayed before this monotonic time are sent at once"),
    ),
)

FAULT_COUNT = Record(
    "FAULT_COUNT",
    f"Matches of a fault in one target; {MOST_FAULTS} for each target.",
    8,
    (Field("count", "q", "count", "that target", "matched requests; the index is reused after a fault's end"),),
)
