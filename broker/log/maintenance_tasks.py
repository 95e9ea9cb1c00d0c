"""The messages to the owner of a partition about work on its log, in bytes. This module knows none of those who ask.

The cleaner asks for `retain_log`: `RETAIN`, answered with `BYTES`, and `swap_segments`: `SWAP` and a `SegmentSwap`,
answered with nothing. Both name the settings that they follow from: an owner by whose settings they would not follow
refuses. Other handlers ask for `delete_records`: `DELETE_RECORDS`, answered with `START_OFFSET`.
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

DELETE_RECORDS = struct.Struct(
    ">q"  # row in the partition table
    "q"  # the offset before which records go
)

#: Where the log begins.
START_OFFSET = struct.Struct(">q")

#: How many bytes the log lost.
BYTES = struct.Struct(">q")
