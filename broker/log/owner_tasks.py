"""The binary messages to the owner of a partition about tasks on its log. Independent of the senders.

The cleaner sends `retain_log`: `RETAIN`, response `BYTES`, and `swap_segments`: `SWAP` and a `SegmentSwap`, with an
empty response. Both carry the settings on which they are based: an owner with other settings rejects the task. Other
handlers send `delete_records`: `DELETE_RECORDS`, response `START_OFFSET`.
"""

import struct

RETAIN = struct.Struct(
    ">q"  # row in the partition table
    "q"  # the new log start: the base offset of a segment, or the log end
    "qq"  # the retention in bytes and in ms on which this is based
)

SWAP = struct.Struct(
    ">q"  # row in the partition table
    "qq"  # the `LogConfig.compaction` by which the segment was cleaned
)

DELETE_RECORDS = struct.Struct(
    ">q"  # row in the partition table
    "q"  # the offset before which records are deleted
)

#: The log start offset.
START_OFFSET = struct.Struct(">q")

#: The number of bytes removed from the log.
BYTES = struct.Struct(">q")
