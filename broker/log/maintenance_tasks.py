"""The messages between the cleaner and the owner of a partition, in bytes. Both use them; this module knows neither.

`retain_log`: `RETAIN`, answered with `BYTES`. `swap_segments`: `SWAP` and a `SegmentSwap`, answered with nothing. Both
name the settings that they follow from: an owner by whose settings they would not follow refuses.
"""

import struct

RETAIN = struct.Struct(
    ">q"  # row in the partition table
    "q"  # where the log is to begin: at a segment, or at its end
    "qq"  # the retention in bytes and in ms that this follows from
)

SWAP = struct.Struct(
    ">q"  # row in the partition table
    "qq"  # the `LogConfig.compaction` by which the segment was cleaned
)

#: How many bytes the log lost.
BYTES = struct.Struct(">q")
