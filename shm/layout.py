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

LAYOUT_VERSION = 12
SEGMENT_MAGIC = 0x61646E75746F52  # "Rotunda" read from memory on a little-endian machine
CACHE_LINE_BYTES = 64


def _words(writer: str, unit: str, **texts: str) -> tuple[Field, ...]:
    return tuple(Field(name, "q", unit, writer, text) for name, text in texts.items())


SEGMENT_HEADER = Record(
    "SEGMENT_HEADER",
    "Stands before the usable bytes of every segment.",
    64,
    (
        Field("magic", "q", "-", "creator", "marks a segment of ours"),
        Field("layout_version", "q", "-", "creator", "LAYOUT_VERSION of the creator; any other is refused"),
        Field("owner_pid", "q", "pid", "creator", "process whose death makes the segment stale"),
        Field("owner_start_ticks", "q", "clock ticks", "creator", "start of that process since boot: pids come again"),
        Field("size", "q", "bytes", "creator", "usable bytes after this header"),
        Field("ready", "q", "0/1", "creator", "stored last, after the contents are initialised"),
    ),
)

RING_HEADER = Record(
    "RING_HEADER",
    "Three cache lines before a ring's data. Positions count bytes for ever: place modulo capacity.",
    192,
    (
        Field("capacity", "q", "bytes", "supervisor", "bytes of data, a multiple of 64"),
        Field("tail", "q", "position", "producer", "end of what is published", align=64),
        Field("head", "q", "position", "consumer", "end of what is released", align=64),
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
    "A request on its way from a processor to a target (handler or controller).",
    64,
    (
        Field("connection_id", "q", "id", "processor", "processor << 48 | generation << 32 | counter"),
        Field(
            "sequence",
            "q",
            "count",
            "processor",
            "our own number on the connection: responses leave in this order",
        ),
        Field("received_ns", "q", "ns", "processor", "monotonic time when the request was whole"),
        Field("api_key", "h", "-", "processor", "from the request header"),
        Field("api_version", "h", "-", "processor", "from the request header"),
        Field("correlation_id", "i", "-", "processor", "from the request header"),
        Field("size", "i", "bytes", "processor", "payload bytes, without the 4-byte size prefix"),
        Field("session_bytes", "i", "bytes", "processor", "of the session, which stands last; 0: nobody in particular"),
        Field("address", "q", "bytes", "processor", "-1: payload follows inline; else its offset in the area"),
        Field("listener", "h", "index", "processor", "listener the connection came in by"),
        Field("area", "h", "0/1/2", "processor", "0 inline, 1 arena, 2 spill file"),
        Field("target_generation", "i", "count", "processor", "generation of the target that it was sent to"),
        Field("state", "q", "word", "handler", "the handler's note for its replacement; 0 when published"),
    ),
)

RESPONSE_ENVELOPE = Record(
    "RESPONSE_ENVELOPE",
    "An answer on its way back; FILE_RANGEs follow it, then the inline bytes. From received_ns on it is what the "
    "request log says of the request: the processor copies that part whole.",
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
    "Bytes of a file that leave by sendfile between two inline parts; the paths of all ranges follow the last one.",
    40,
    (
        Field("inline_before", "q", "bytes", "handler", "inline bytes to send before this range"),
        Field("inode", "q", "id", "handler", "file of the range; -1: made for this answer, its reader removes it"),
        Field("position", "q", "bytes", "handler", "first byte in the file"),
        Field("length", "q", "bytes", "handler", "bytes to send"),
        Field("path_bytes", "q", "bytes", "handler", "length of the range's path, which is UTF-8 and not padded"),
    ),
)

PEER_ENVELOPE = Record(
    "PEER_ENVELOPE",
    "A part of a request for another owner, or the answer to one, between two targets.",
    80,
    (
        Field("kind", "h", "-", "sender", "what is asked or answered; its reader notes that it is done with it"),
        Field("error_code", "h", "-", "sender", "Kafka error code of an answer"),
        Field("part", "i", "index", "sender", "which part of the origin's request"),
        Field("token", "q", "id", "sender", "the origin's request; comes back in the answer"),
        Field("area", "q", "0/1/2", "sender", "where the records lie: 0 inline, 1 arena, 2 spill file"),
        Field("address", "q", "bytes", "sender", "offset in that area"),
        Field("size", "q", "bytes", "sender", "bytes there"),
        Field("row", "q", "index", "sender", "row in the partition table"),
        Field("base_offset", "q", "offset", "sender", "of the appended batch, in an answer"),
        Field("time_ms", "q", "ms", "sender", "append time or asked-for timestamp"),
        Field("argument", "q", "-", "sender", "one further number, by kind"),
        Field("guard", "q", "id", "sender", "of transactional records: 0 none, 1 unverified, else the owner's number"),
    ),
)

PARTITION_ROW = Record(
    "PARTITION_ROW",
    "What a partition's owner publishes. log_end_offset is the commit word; two slots say where in the files "
    "an end lies. The owner fills the slot not in use (its sequence is odd meanwhile) and stores "
    "log_end_offset. A reader loads the end, takes the slot with that end and an even sequence, the higher "
    "one if both have it, and checks the sequence again after reading.",
    192,
    (
        *_words(
            "owner",
            "offset",
            log_end_offset="next offset to write; also the high watermark",
            log_start_offset="first offset that may be read",
            last_stable_offset="end of what read_committed may read",
        ),
        Field("state", "q", "0/1/2", "owner", "0 unopened, 1 open, 2 closed"),
        Field("leader_epoch", "q", "epoch", "owner", "current leader epoch"),
        Field("log_bytes", "q", "bytes", "owner", "size of all segments"),
        Field("removals", "q", "count", "owner", "raised after segments were removed or replaced by compacted ones"),
        Field("fault", "q", "error number", "owner", "with which the log went offline: nothing is appended; 0: none"),
        Field("a_end_offset", "q", "offset", "owner", "end this slot speaks of", align=64),
        Field("a_segment_base", "q", "offset", "owner", "base offset of the active segment"),
        Field("a_position", "q", "bytes", "owner", "end of data in the active segment's file"),
        Field("a_sequence", "q", "count", "owner", "odd while the slot is being filled; never comes again"),
        Field("b_end_offset", "q", "offset", "owner", "as above"),
        Field("b_segment_base", "q", "offset", "owner", "as above"),
        Field("b_position", "q", "bytes", "owner", "as above"),
        Field("b_sequence", "q", "count", "owner", "as above"),
        Field("records_in", "q", "count", "owner", "records appended in this run of the broker", align=64),
        Field("bytes_in", "q", "bytes", "owner", "their size as stored"),
    ),
)

WAITER = Record(
    "WAITER",
    "One per row and handler, row by row, after the partition rows.",
    8,
    (Field("waiting", "q", "0/1", "that handler", "1: it has requests parked until the partition grows"),),
)

FETCHED = Record(
    "FETCHED",
    "One per row and handler, row by row, after the WAITERs.",
    8,
    (Field("bytes_out", "q", "bytes", "that handler", "records of the partition in its answers to fetches"),),
)

MOVED_ROWS = Record(
    "MOVED_ROWS",
    "One per owner and waiting handler, owner by owner, after the FETCHEDs: the rows that the owner has moved and for "
    "which that handler had raised its flag. The words behind `noted` hold the last ones: number n stands at n modulo "
    "how many there are.",
    2048,
    (Field("noted", "q", "count", "owner", "rows noted in all, or so many more that every reader is left behind"),),
)

BROKER_WORDS = Record(
    "BROKER_WORDS",
    "What concerns every process.",
    128,
    (
        Field("metadata_version", "q", "count", "controller", "last committed change of the metadata"),
        Field("draining", "q", "0/1", "supervisor", "1: shutting down"),
        Field("storage_state", "q", "0-4", "controller", "of the data directory's disk, as shm/storage.py numbers it"),
        Field("storage_free_bytes", "q", "bytes", "controller", "what is free on that disk"),
        Field("wanted_processors", "q", "count", "controller", "num.network.threads as set; 0: not known yet"),
        Field("processors_made", "q", "count", "supervisor", "processors for which memory is ready; never falls"),
        Field("processors", "q", "count", "supervisor", "processors that get connections: the first so many"),
        Field("wanted_handlers", "q", "count", "controller", "num.io.threads as set; 0: not known yet"),
        Field("handlers_made", "q", "count", "supervisor", "handlers for which memory is ready; never falls"),
        Field("handlers", "q", "count", "supervisor", "handlers that own partitions; changes while none of them lives"),
        Field("hold", "q", "count", "supervisor", "odd: processors send nothing to targets; raised by each change"),
    ),
)

PROCESS_SLOT = Record(
    "PROCESS_SLOT",
    "One per process: supervisor, acceptor, processors, handlers, controller, cleaner, recorder.",
    512,
    (
        Field("role", "i", "index", "supervisor", "index in ROLES"),
        Field("index", "i", "index", "supervisor", "which one of its role"),
        Field("pid", "q", "pid", "supervisor", "0 before the first start"),
        Field("generation", "q", "count", "supervisor", "raised before each fork"),
        Field("restarts", "q", "count", "supervisor", "how often it was replaced"),
        Field("state", "q", "0-4", "supervisor", "0 empty, 1 starting, 2 running, 3 dead, 4 stopped"),
        Field("exit_status", "q", "status", "supervisor", "of the last that ended: exit code, or minus the signal"),
        Field("arena_bytes", "q", "bytes", "supervisor", "of a processor: its part of the arena"),
        Field("ready_generation", "q", "count", "child", "its generation, once it can serve", align=64),
        Field("heartbeat_ns", "q", "ns", "child", "monotonic time of its last turn of the loop"),
        Field("storage_error", "q", "error number", "child", "of a handler whose writes find no room; 0: they do"),
        Field("metadata_version", "q", "count", "child", "the last change of the metadata that it has taken over"),
        Field("confirmed", "q", "count", "child", "what an acceptor has taken over of processors, a processor of hold"),
        Field("last_words_bytes", "q", "bytes", "child", "length of last_words; stored after the text"),
        Field("last_words", "256s", "UTF-8", "child", "why it is about to die; outlives it"),
    ),
)

CURRENT_REQUEST = Record(
    "CURRENT_REQUEST",
    "What a target is doing, for its replacement: one per target, each with its SUSPECTs behind it.",
    64,
    (
        Field("request_at", "q", "bytes", "that target", "offset of the request's envelope in the rings; 0: in none"),
        Field(
            "connection_id",
            "q",
            "id",
            "that target",
            "of a request that it answers later than its turn, or -1 less the peer whose message it takes, or 0",
        ),
        Field("sequence", "q", "count", "that target", "of that request, or the position of that message in its ring"),
        Field("suspects_ever", "q", "count", "that target", "SUSPECTs ever filled: the next one goes round"),
    ),
)

SUSPECT = Record(
    "SUSPECT",
    "A request or a peer's message that a process of this target died in.",
    48,
    (
        Field("connection_id", "q", "id", "that target", "as in CURRENT_REQUEST"),
        Field("sequence", "q", "count", "that target", "as in CURRENT_REQUEST"),
        Field("deaths", "q", "count", "that target", "processes that died in it; 0: nothing stands here"),
        Field("size", "q", "bytes", "that target", "of a request that was dropped: its size; else 0"),
        Field("fingerprint", "q", "hash", "that target", "of that request's bytes: those that come again are dropped"),
        Field("dropped_ns", "q", "ns", "that target", "monotonic time when it was dropped"),
    ),
)

METRICS_PAGE = Record(
    "METRICS_PAGE",
    "Heads a process's page of metrics; its values follow as shm/metrics/process_metrics.py lays them out.",
    64,
    (
        Field("role", "q", "index", "supervisor", "index in ROLES"),
        Field("index", "q", "index", "supervisor", "which one of its role"),
        Field("generation", "q", "count", "that process", "raised by each successor; counters go on"),
        Field("started_ns", "q", "ns", "that process", "monotonic time of its start"),
    ),
)

SNAPSHOTS_HEADER = Record(
    "SNAPSHOTS_HEADER",
    "Until when a reader wants snapshots to be kept up to date; at the start of their segment. Of several command "
    "lines any may store last.",
    128,
    (
        Field("web_wants_until_ns", "q", "ns", "web", "monotonic time up to which the status page looks"),
        Field("command_wants_until_ns", "q", "ns", "command line", "the same of the command line", align=64),
    ),
)

SNAPSHOT = Record(
    "SNAPSHOT",
    "Heads a process's snapshot, a compressed JSON object; two buffers follow. The process fills the "
    "buffer not in use, then stores the sequence, whose lowest bit says which one is in use. A reader copies that "
    "buffer and believes it if the sequence is still the same.",
    64,
    (
        Field("sequence", "q", "count", "that process", "publications ever; even: the first buffer, odd: the second"),
        Field("first_bytes", "q", "bytes", "that process", "length of what is in the first buffer"),
        Field("second_bytes", "q", "bytes", "that process", "length of what is in the second buffer"),
        Field("checked_ns", "q", "ns", "that process", "monotonic time as of which it was true"),
    ),
)

CLIENT_HOST = Record(
    "CLIENT_HOST",
    "Where the client of a connection is: after the snapshots, as many rows for each processor as "
    "shm/tables/client_hosts.py says. A connection's row is its id modulo their number. A reader "
    "believes an address if the id was the same before and after.",
    32,
    (
        Field("connection_id", "q", "id", "processor", "whose row it is; -1 while it is filled; 0 before the first"),
        Field("address", "16s", "-", "processor", "IPv6 address in network order; an IPv4 address in its mapped form"),
        Field("ended_id", "q", "id", "processor", "the last connection of this row that has ended; 0 before the first"),
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
