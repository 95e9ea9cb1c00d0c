"""The part of the map of shared memory by which tests inject faults into a broker started for them.

Declarations only, as in `shm.layout`, which prints them with its own. No other broker has such a segment.
"""

from __future__ import annotations

from rotunda.shm.record import Field, Record

#: Most simultaneous faults, and so the number of counts in a target.
MOST_FAULTS = 64

FAULT_TABLE = Record(
    "FAULT_TABLE",
    "Heads the segment; the FAULT_COUNTs of all targets follow. Which faults are in force stands in a file.",
    64,
    (
        Field("version", "q", "count", "tests", "raised after the file with the faults has been replaced"),
        Field("delays_over_ns", "q", "ns", "tests", "answers held back before this monotonic time are held no longer"),
    ),
)

FAULT_COUNT = Record(
    "FAULT_COUNT",
    f"How often one target has let one fault strike, ever; {MOST_FAULTS} for each target.",
    8,
    (Field("count", "q", "count", "that target", "requests struck; a fault that ends leaves its place to another"),),
)
