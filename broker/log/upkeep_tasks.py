"""What the cleaner and the owner of a partition say to each other, in bytes. Both processes use it; it knows neither.

`retain_log`: `RETAIN`, answered with `BYTES`. `swap_segments`: `ROW` and a `SegmentSwap`, answered with nothing.
"""

import struct

RETAIN = struct.Struct(
    ">q"  # row in the partition table
    "q"  # where the log is to begin: at a segment, or at its end
    "qq"  # the retention in bytes and in ms that this follows from
)

ROW = struct.Struct(">q")

#: How many bytes the log lost.
BYTES = struct.Struct(">q")
