"""The map of shared memory: every record, field, offset, unit and writer, and nowhere else.

Every process uses it. Offsets follow from the order of the fields, with native order and natural alignment (wire-order
stores tear), and every other module of the package looks them up by name; the request log's records are declared in
`shm.recorder_layout`. A field names the one role that writes it; `shm.layout_page` prints the map as docs/layout.md.
Change a record: raise LAYOUT_VERSION.
"""

from __future__ import annotations

from rotunda.shm.fault_layout import FAULT_COUNT, FAULT_TABLE
from rotunda.shm.quota_layout import QUOTA_SAMPLE, QUOTA_SLOT, QUOTA_TABLE
from rotunda.shm.record import Field, Record
from rotunda.shm.recorder_layout import (
    CONNECTION_EVENT,
    FACTS,
    RECENT_BUFFER,
    RECORDER_FRAME,
    RECORDER_SETTINGS,
    RECORDER_SOURCE,
    RECORDER_TEXT,
    REQUEST_ROW,
)

LAYOUT_VERSION = 14
SEGMENT_MAGIC = 0x61646E75746F52  # "Rotunda" read from memory on a little-endian machine
CACHE_LINE_BYTES = 64


def _words(writer: str, unit: str, **texts: str) -> tuple[Field, ...]:
    return tuple(Field(name, "q", unit, writer, text) for name, text in texts.items())


SEGMENT_HEADER = Record(
    "SEGMENT_HEADER",
    "Header of every segment, before its usable bytes.",
    64,
    (
        Field("magic", "q", "-", "creator", "marks Rotunda's segments"),
        Field("layout_version", "q", "-", "creator", "LAYOUT_VERSION of the creator; any other is rejected"),
        Field("owner_pid", "q", "pid", "creator", "process whose death makes the segment stale"),
        Field("owner_start_ticks", "q", "clock ticks", "creator", "start of that process since boot: pids are reused"),
        Field("size", "q", "bytes", "creator", "usable bytes after this header"),
        Field("ready", "q", "0/1", "creator", "stored last, after the contents are initialised"),
    ),
)

RING_HEADER = Record(
    "RING_HEADER",
    "Three cache lines before a ring's data. Positions only grow; the place is the position modulo the capacity.",
    192,
    (
        Field("capacity", "q", "bytes", "supervisor", "bytes of data, a multiple of 64"),
        Field("tail", "q", "position", "producer", "end of the published bytes", align=64),
        Field("reader_generation", "q", "count", "producer", "of requests: the oldest target generation from here on"),
        Field("generation_at", "q", "position", "producer", "end of the requests to earlier generations"),
        Field("head", "q", "position", "consumer", "end of the released bytes", align=64),
    ),
)

FRAME_HEADER = Record(
    "FRAME_HEADER",
    "One word before every frame's payload; the next frame starts at the next multiple of 8.",
    8,
    (
        Field(
            "length",
            "q",
            "bytes",
            "producer",
            "exact length with this header; negative: padding of that many bytes up to the wrap",
        ),
    ),
)

REQUEST_ENVELOPE = Record(
    "REQUEST_ENVELOPE",
    "Header of a request from a processor to a target (handler or controller).",
    64,
    (
        Field("connection_id", "q", "id", "processor", "processor << 48 | generation << 32 | counter"),
        Field(
            "sequence",
            "q",
            "count",
            "processor",
            "number of the request on its connection: the order of responses",
        ),
        Field("received_ns", "q", "ns", "processor", "monotonic time when the request was whole"),
        Field("api_key", "h", "-", "processor", "from the request header"),
        Field("api_version", "h", "-", "processor", "from the request header"),
        Field("correlation_id", "i", "-", "processor", "from the request header"),
        Field("size", "i", "bytes", "processor", "payload bytes, without the 4-byte size prefix"),
        Field("session_bytes", "i", "bytes", "processor", "size of the session, the last part; 0: not authenticated"),
        Field("address", "q", "bytes", "processor", "-1: the payload is inline; else its offset in the area"),
        Field("listener", "h", "index", "processor", "listener of the connection"),
        Field("area", "h", "0/1/2", "processor", "0 inline, 1 arena, 2 spill file"),
        Field("target_generation", "i", "count", "processor", "generation of the target at the time of sending"),
        Field("state", "q", "word", "handler", "the handler's note for its replacement; 0 when published"),
    ),
)

RESPONSE_ENVELOPE = Record(
    "RESPONSE_ENVELOPE",
    "Header of a response; FILE_RANGEs follow, then the inline bytes. From received_ns on it is the first part of a "
    "row of the request log, which the processor copies as a whole.",
    136,
    (
        Field("connection_id", "q", "id", "handler", "copied from the request"),
        Field("sequence", "q", "count", "handler", "copied from the request"),
        Field("size", "q", "bytes", "handler", "inline bytes after the ranges"),
        Field("range_count", "i", "count", "handler", "FILE_RANGEs that follow"),
        Field("kind", "h", "0/1/2", "handler", "0 SEND, 1 NO_OP, 2 CLOSE; 4: muted, 8: held back, 16: has an error"),
        *FACTS,
    ),
)

FILE_RANGE = Record(
    "FILE_RANGE",
    "File bytes sent by sendfile between two inline parts; the paths of all ranges follow the last one.",
    40,
    (
        Field("inline_before", "q", "bytes", "handler", "inline bytes to send before this range"),
        Field("inode", "q", "id", "handler", "file of the range; -1: a temporary file that its reader deletes"),
        Field("position", "q", "bytes", "handler", "first byte in the file"),
        Field("length", "q", "bytes", "handler", "bytes to send"),
        Field("path_bytes", "q", "bytes", "handler", "length of the range's path, in UTF-8 without padding"),
    ),
)

PEER_ENVELOPE = Record(
    "PEER_ENVELOPE",
    "Header of a message between two targets: a part of a request for another owner, or its response.",
    80,
    (
        Field("kind", "h", "-", "sender", "kind of the request or response; its reader marks it as handled"),
        Field("error_code", "h", "-", "sender", "Kafka error code of a response"),
        Field("part", "i", "index", "sender", "index of the part in the origin's request"),
        Field("token", "q", "id", "sender", "id of the origin's request, copied to the response"),
        Field("area", "q", "0/1/2", "sender", "place of the records: 0 inline, 1 arena, 2 spill file"),
        Field("address", "q", "bytes", "sender", "offset in that area"),
        Field("size", "q", "bytes", "sender", "bytes there"),
        Field("row", "q", "index", "sender", "row in the partition table"),
        Field("base_offset", "q", "offset", "sender", "of the appended batch, in a response"),
        Field("time_ms", "q", "ms", "sender", "append time or requested timestamp"),
        Field("argument", "q", "-", "sender", "one further number, by kind"),
        Field("guard", "q", "id", "sender", "of transactional records: 0 none, 1 unverified, else the owner's number"),
    ),
)

PARTITION_ROW = Record(
    "PARTITION_ROW",
    "The published state of a partition. log_end_offset is the commit word; two slots map an end to its place in the "
    "files. The owner fills the unused slot (with an odd sequence meanwhile), then stores log_end_offset. A reader "
    "loads the end, reads the slot with that end and the higher even sequence, and checks the sequence again "
    "afterwards.",
    192,
    (
        *_words(
            "owner",
            "offset",
            log_end_offset="next offset to write; also the high watermark",
            log_start_offset="first offset that may be read",
            last_stable_offset="end of the records visible to read_committed",
        ),
        Field("state", "q", "0/1/2", "owner", "0 unopened, 1 open, 2 closed"),
        Field("leader_epoch", "q", "epoch", "owner", "current leader epoch"),
        Field("log_bytes", "q", "bytes", "owner", "size of all segments"),
        Field("removals", "q", "count", "owner", "raised after segments were removed or replaced by compacted ones"),
        Field("fault", "q", "error number", "owner", "errno with which the log went offline; 0: online"),
        Field("a_end_offset", "q", "offset", "owner", "end that this slot describes", align=64),
        Field("a_segment_base", "q", "offset", "owner", "base offset of the active segment"),
        Field("a_position", "q", "bytes", "owner", "end of data in the active segment's file"),
        Field("a_sequence", "q", "count", "owner", "odd while the slot is being filled; never reused"),
        Field("b_end_offset", "q", "offset", "owner", "as above"),
        Field("b_segment_base", "q", "offset", "owner", "as above"),
        Field("b_position", "q", "bytes", "owner", "as above"),
        Field("b_sequence", "q", "count", "owner", "as above"),
        Field("records_in", "q", "count", "owner", "records appended since the broker's start", align=64),
        Field("bytes_in", "q", "bytes", "owner", "their size as stored"),
    ),
)

WAITER = Record(
    "WAITER",
    "One per row and handler, row by row, after the partition rows.",
    8,
    (Field("waiting", "q", "0/1", "that handler", "1: it has requests waiting for records of the partition"),),
)

FETCHED = Record(
    "FETCHED",
    "One per row and handler, row by row, after the WAITERs.",
    8,
    (Field("bytes_out", "q", "bytes", "that handler", "records of the partition in its Fetch responses"),),
)

MOVED_ROWS = Record(
    "MOVED_ROWS",
    "One per owner and waiting handler, owner by owner, after the FETCHEDs: the rows that the owner has moved while "
    "that handler's flag was raised. A ring of row numbers follows `noted`: the n-th is at index n modulo its length.",
    2048,
    (
        Field(
            "noted",
            "q",
            "count",
            "owner",
            "rows noted in total, or a much higher number that makes every reader start over",
        ),
    ),
)

BROKER_WORDS = Record(
    "BROKER_WORDS",
    "State shared by all processes.",
    128,
    (
        Field("metadata_version", "q", "count", "controller", "last committed metadata change"),
        Field("draining", "q", "0/1", "supervisor", "1: shutting down"),
        Field("storage_state", "q", "0-4", "controller", "of the data directory's disk, as shm/storage.py numbers it"),
        Field("storage_free_bytes", "q", "bytes", "controller", "free space of that disk"),
        Field("wanted_processors", "q", "count", "controller", "the current num.network.threads; 0: not known yet"),
        Field("processors_made", "q", "count", "supervisor", "processors with allocated memory; never falls"),
        Field("processors", "q", "count", "supervisor", "number of processors that get connections"),
        Field("wanted_handlers", "q", "count", "controller", "the current num.io.threads; 0: not known yet"),
        Field("handlers_made", "q", "count", "supervisor", "handlers with allocated memory; never falls"),
        Field(
            "handlers", "q", "count", "supervisor", "handlers that own partitions; changes only while none of them runs"
        ),
        Field("hold", "q", "count", "supervisor", "odd: processors send nothing to targets; raised by each change"),
    ),
)

PROCESS_SLOT = Record(
    "PROCESS_SLOT",
    "One per process: supervisor, acceptor, processors, handlers, controller, cleaner, recorder.",
    512,
    (
        Field("role", "i", "index", "supervisor", "index in ROLES"),
        Field("index", "i", "index", "supervisor", "index within its role"),
        Field("pid", "q", "pid", "supervisor", "0 before the first start"),
        Field("generation", "q", "count", "supervisor", "raised before each fork"),
        Field("restarts", "q", "count", "supervisor", "number of replacements"),
        Field("state", "q", "0-4", "supervisor", "0 empty, 1 starting, 2 running, 3 dead, 4 stopped"),
        Field("exit_status", "q", "status", "supervisor", "of the last process: exit code, or minus the signal"),
        Field("arena_bytes", "q", "bytes", "supervisor", "of a processor: its share of the arena"),
        Field("ready_generation", "q", "count", "child", "its generation, once it is ready", align=64),
        Field("heartbeat_ns", "q", "ns", "child", "monotonic time of the last pass of its loop"),
        Field(
            "storage_error",
            "q",
            "error number",
            "child",
            "errno of a handler whose writes fail for lack of space; 0: none",
        ),
        Field("metadata_version", "q", "count", "child", "the last metadata change that it has applied"),
        Field(
            "confirmed",
            "q",
            "count",
            "child",
            "the value of `processors` applied by the acceptor, of `hold` by a processor",
        ),
        Field("last_error_bytes", "q", "bytes", "child", "length of last_error; stored after the text"),
        Field("last_error", "256s", "UTF-8", "child", "reason of its coming exit; kept after it"),
    ),
)

CURRENT_REQUEST = Record(
    "CURRENT_REQUEST",
    "The current request of a target, for its replacement: one per target, followed by its SUSPECTs.",
    64,
    (
        Field("request_at", "q", "bytes", "that target", "offset of the request's envelope in the rings; 0: in none"),
        Field(
            "connection_id",
            "q",
            "id",
            "that target",
            "of a request completed in a later pass; of a peer's message -1 less the peer; or 0",
        ),
        Field("sequence", "q", "count", "that target", "of that request, or the position of the message in its ring"),
        Field("suspects_ever", "q", "count", "that target", "SUSPECTs ever filled, modulo their number the next one"),
    ),
)

SUSPECT = Record(
    "SUSPECT",
    "A request or peer message in which a process of this target died.",
    48,
    (
        Field("connection_id", "q", "id", "that target", "as in CURRENT_REQUEST"),
        Field("sequence", "q", "count", "that target", "as in CURRENT_REQUEST"),
        Field("deaths", "q", "count", "that target", "processes that died in it; 0: unused"),
        Field("size", "q", "bytes", "that target", "of a request that was dropped: its size; else 0"),
        Field("fingerprint", "q", "hash", "that target", "of that request's bytes; equal requests are dropped"),
        Field("dropped_ns", "q", "ns", "that target", "monotonic time when it was dropped"),
    ),
)

METRICS_PAGE = Record(
    "METRICS_PAGE",
    "Header of a process's page of metrics, followed by the values, in the order of shm/metrics/process_metrics.py.",
    64,
    (
        Field("role", "q", "index", "supervisor", "index in ROLES"),
        Field("index", "q", "index", "supervisor", "index within its role"),
        Field("generation", "q", "count", "that process", "raised by each successor; counters continue"),
        Field("started_ns", "q", "ns", "that process", "monotonic time of its start"),
    ),
)

SNAPSHOTS_HEADER = Record(
    "SNAPSHOTS_HEADER",
    "Times until which readers need current snapshots, at the start of their segment. Several command lines may write "
    "the same field.",
    128,
    (
        Field("web_wants_until_ns", "q", "ns", "web", "monotonic end of the status page's interest"),
        Field(
            "command_wants_until_ns",
            "q",
            "ns",
            "command line",
            "monotonic end of the command line's interest",
            align=64,
        ),
    ),
)

SNAPSHOT = Record(
    "SNAPSHOT",
    "Header of a process's snapshot, a compressed JSON object, followed by two buffers. The process fills the unused "
    "buffer, then stores the sequence, whose lowest bit selects the buffer. A reader's copy is valid if the sequence "
    "is the same afterwards.",
    64,
    (
        Field("sequence", "q", "count", "that process", "publications; even: the first buffer, odd: the second"),
        Field("first_bytes", "q", "bytes", "that process", "used bytes of the first buffer"),
        Field("second_bytes", "q", "bytes", "that process", "used bytes of the second buffer"),
        Field("checked_ns", "q", "ns", "that process", "monotonic time of the snapshot's state"),
    ),
)

CLIENT_HOST = Record(
    "CLIENT_HOST",
    "The address and the software of a connection's client: after the snapshots, a table for each processor, of the "
    "size in shm/tables/client_hosts.py. A connection's row is its id modulo that size. A read is valid if the id was "
    "the same before and after.",
    96,
    (
        Field("connection_id", "q", "id", "processor", "connection of the row; -1 while it is being filled; 0: unused"),
        Field("address", "16s", "-", "processor", "IPv6 address in network order; an IPv4 address in its mapped form"),
        Field("ended_id", "q", "id", "processor", "the last closed connection of this row; 0: none"),
        Field("software", "64s", "-", "processor", "name, zero byte and version from ApiVersions; zeros: unknown"),
    ),
)

RECORDS: tuple[Record, ...] = (
    SEGMENT_HEADER,
    RING_HEADER,
    FRAME_HEADER,
    REQUEST_ENVELOPE,
    RESPONSE_ENVELOPE,
    FILE_RANGE,
    PEER_ENVELOPE,
    BROKER_WORDS,
    PROCESS_SLOT,
    CURRENT_REQUEST,
    SUSPECT,
    PARTITION_ROW,
    WAITER,
    FETCHED,
    MOVED_ROWS,
    METRICS_PAGE,
    SNAPSHOTS_HEADER,
    SNAPSHOT,
    CLIENT_HOST,
    QUOTA_TABLE,
    QUOTA_SLOT,
    QUOTA_SAMPLE,
    RECORDER_SETTINGS,
    RECORDER_SOURCE,
    RECORDER_FRAME,
    REQUEST_ROW,
    CONNECTION_EVENT,
    RECORDER_TEXT,
    RECENT_BUFFER,
    FAULT_TABLE,
    FAULT_COUNT,
)
