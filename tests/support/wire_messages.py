"""Hand-written requests and responses for `WireClient`, in one old and plain version of each API.

Independent of the broker's own codecs: a second opinion on the meaning of the bytes. Versions: Produce 3-8, Fetch 11,
ListOffsets 2, Metadata 4, CreateTopics 2, InitProducerId 0, ApiVersions 0.
"""

import struct
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple

from tests.support.deadline import wait_until
from tests.support.wire_client import WireClient

PRODUCE, FETCH, LIST_OFFSETS, METADATA, FIND_COORDINATOR = 0, 1, 2, 3, 10
SASL_HANDSHAKE, API_VERSIONS, CREATE_TOPICS, INIT_PRODUCER_ID = 17, 18, 19, 22
PRODUCE_VERSION, FETCH_VERSION = 7, 11
LATEST, EARLIEST = -1, -2
BATCH_HEADER_BYTES = 61
FETCH_BYTES = 16 << 20

Parts = Sequence[tuple[str, int, bytes]]


class Produced(NamedTuple):
    """One partition of a Produce response."""

    topic: str
    partition: int
    error_code: int
    base_offset: int


class ProduceErrors(NamedTuple):
    """The errors of one partition of a Produce 8 response; `message` is empty where the response has none."""

    error_code: int
    message: str
    #: Index in the batch, and message.
    records: list[tuple[int, str]]


class Fetched(NamedTuple):
    """One partition of a Fetch response."""

    topic: str
    partition: int
    error_code: int
    high_watermark: int
    records: bytes


class ReadRecord(NamedTuple):
    """One record of an uncompressed batch."""

    offset: int
    producer_id: int
    value: bytes


class Reader:
    """Reads fields from the front of a response."""

    def __init__(self, data: bytes):
        self.data, self.at = data, 0

    def take(self, form: str) -> tuple:
        """Return the fields of one struct format."""
        fields = struct.unpack_from(f">{form}", self.data, self.at)
        self.at += struct.calcsize(f">{form}")
        return fields

    def number(self, form: str) -> int:
        """Return one number."""
        return self.take(form)[0]

    def raw(self, size: int) -> bytes:
        """Return the next bytes; none for a negative size (null)."""
        start, self.at = self.at, self.at + max(size, 0)
        return self.data[start : self.at]

    def string(self) -> str:
        """Return a string with a 2-byte length; null is empty."""
        return self.raw(self.number("h")).decode()

    def varint(self) -> int:
        """Return a zigzag varint."""
        shift = value = 0
        while True:
            byte = self.data[self.at]
            self.at += 1
            value |= (byte & 127) << shift
            if byte < 128:
                return (value >> 1) ^ -(value & 1)
            shift += 7


def string(text: str) -> bytes:
    """Return a string with its 2-byte length as prefix."""
    data = text.encode()
    return struct.pack(">h", len(data)) + data


def produce_body(parts: Parts, acks: int = 1, timeout_ms: int = 30_000) -> bytes:
    """Return the body of Produce 3-8: each part is (topic, partition, records)."""
    body = struct.pack(">hhii", -1, acks, timeout_ms, len(parts))
    for topic, partition, records in parts:
        body += string(topic) + struct.pack(">iii", 1, partition, len(records)) + records
    return body


def read_produce(answer: bytes) -> list[Produced]:
    """Read a Produce 5-7 response that starts after the correlation id."""
    reader, produced = Reader(answer), []
    for _ in range(reader.number("i")):
        topic = reader.string()
        for _ in range(reader.number("i")):
            partition, error_code, base_offset, _, _ = reader.take("ihqqq")
            produced.append(Produced(topic, partition, error_code, base_offset))
    return produced


def produce(client: WireClient, topic: str, partition: int, records: bytes, acks: int = 1) -> Produced:
    """Produce to one partition and return its part of the response."""
    body = produce_body([(topic, partition, records)], acks)
    return read_produce(client.call(PRODUCE, PRODUCE_VERSION, body))[0]


def produce_errors(client: WireClient, topic: str, partition: int, records: bytes) -> ProduceErrors:
    """Produce with acks=all and version 8, the first that has record errors; return the errors."""
    reader = Reader(client.call(PRODUCE, 8, produce_body([(topic, partition, records)], acks=-1)))
    assert reader.number("i") == 1
    assert reader.string() == topic
    assert reader.number("i") == 1
    _, error_code, _, _, _ = reader.take("ihqqq")
    of_records = [(reader.number("i"), reader.string()) for _ in range(reader.number("i"))]
    return ProduceErrors(error_code, reader.string(), of_records)


def fetch_body(
    topic: str,
    partition: int,
    offset: int,
    *,
    max_wait_ms: int = 0,
    min_bytes: int = 1,
    size: int = FETCH_BYTES,
) -> bytes:
    """Return the body of Fetch 11 for one partition, without a session."""
    places = [(topic, partition, offset)]
    return fetch_body_of(places, max_wait_ms=max_wait_ms, min_bytes=min_bytes, max_bytes=size, size=size)


def fetch_body_of(
    places: Sequence[tuple[str, int, int]],
    *,
    max_wait_ms: int = 0,
    min_bytes: int = 1,
    max_bytes: int = FETCH_BYTES,
    size: int = FETCH_BYTES,
    isolation: int = 0,
) -> bytes:
    """Return the body of Fetch 11 from (topic, partition, offset), without a session; `size` is of each partition."""
    topics = [(topic, list(parts)) for topic, parts in groupby(places, key=itemgetter(0))]
    body = struct.pack(">iiiibiii", -1, max_wait_ms, min_bytes, max_bytes, isolation, 0, -1, len(topics))
    for topic, parts in topics:
        body += string(topic) + struct.pack(">i", len(parts))
        body += b"".join(struct.pack(">iiqqi", partition, -1, offset, -1, size) for _, partition, offset in parts)
    return body + struct.pack(">i", 0) + string("")


def read_fetch(answer: bytes) -> list[Fetched]:
    """Read a Fetch 11 response that starts after the correlation id."""
    reader, fetched = Reader(answer), []
    _, error_code, _, topics = reader.take("ihii")
    assert error_code == 0, error_code
    for _ in range(topics):
        topic = reader.string()
        for _ in range(reader.number("i")):
            partition, error_code, high_watermark, _, _, aborted = reader.take("ihqqqi")
            reader.raw(16 * aborted)
            _, size = reader.take("ii")
            fetched.append(Fetched(topic, partition, error_code, high_watermark, reader.raw(size)))
    return fetched


def fetch(client: WireClient, topic: str, partition: int, offset: int, max_wait_ms: int = 0) -> Fetched:
    """Fetch from one partition."""
    body = fetch_body(topic, partition, offset, max_wait_ms=max_wait_ms)
    return read_fetch(client.call(FETCH, FETCH_VERSION, body))[0]


def read_batches(records: bytes) -> Iterator[ReadRecord]:
    """Yield the records of uncompressed batches; a batch that was cut off at the end is left out."""
    at = 0
    while len(records) - at >= BATCH_HEADER_BYTES:
        base_offset, length = struct.unpack_from(">qi", records, at)
        if at + 12 + length > len(records):
            return
        producer_id = struct.unpack_from(">q", records, at + 43)[0]
        reader = Reader(records[at : at + 12 + length])
        reader.at = BATCH_HEADER_BYTES
        for _ in range(struct.unpack_from(">i", records, at + 57)[0]):
            yield read_record(reader, base_offset, producer_id)
        at += 12 + length


def read_record(reader: Reader, base_offset: int, producer_id: int) -> ReadRecord:
    """Read one record."""
    size = reader.varint()
    end = reader.at + size
    reader.number("b")
    reader.varint()
    offset = base_offset + reader.varint()
    reader.raw(reader.varint())
    value = reader.raw(reader.varint())
    reader.at = end
    return ReadRecord(offset, producer_id, value)


def read_partition(client: WireClient, topic: str, partition: int) -> list[ReadRecord]:
    """Return everything in a partition, from offset 0 to the high watermark."""
    found: list[ReadRecord] = []
    while True:
        next_offset = found[-1].offset + 1 if found else 0
        answer = fetch(client, topic, partition, next_offset)
        assert answer.error_code == 0, answer.error_code
        if next_offset >= answer.high_watermark:
            return found
        more = list(read_batches(answer.records))
        assert more, f"nothing at {next_offset} below the high watermark {answer.high_watermark}"
        found += more


def list_offset(client: WireClient, topic: str, partition: int, timestamp: int = LATEST) -> tuple[int, int]:
    """Return (error code, offset) for a timestamp in milliseconds, or LATEST or EARLIEST."""
    body = struct.pack(">ibi", -1, 0, 1) + string(topic) + struct.pack(">iiq", 1, partition, timestamp)
    reader = Reader(client.call(LIST_OFFSETS, 2, body))
    reader.take("ii")
    reader.string()
    _, _, error_code, _, offset = reader.take("iihqq")
    return error_code, offset


def metadata_body(topics: Sequence[str], auto_create: bool = False) -> bytes:
    """Return the body of Metadata 4."""
    return struct.pack(">i", len(topics)) + b"".join(map(string, topics)) + struct.pack(">?", auto_create)


def create_topic(
    client: WireClient, name: str, partitions: int = 1, configs: Mapping[str, object] | None = None
) -> None:
    """Create a topic, and return once every partition of it can be used.

    By default it never expires records: those of `record_batch` are years old.
    """
    settings = {"retention.ms": -1, **(configs or {})}
    body = struct.pack(">i", 1) + string(name) + struct.pack(">ihii", partitions, 1, 0, len(settings))
    body += b"".join(string(key) + string(str(value)) for key, value in settings.items())
    body += struct.pack(">i?", 30_000, False)
    reader = Reader(client.call(CREATE_TOPICS, 2, body))
    reader.take("ii")
    assert reader.string() == name
    error_code = reader.number("h")
    assert error_code == 0, f"CreateTopics: error {error_code} {reader.string()}"
    wait_until(
        lambda: all(fetch(client, name, index, 0).error_code == 0 for index in range(partitions)),
        f"every partition of {name} open",
    )


def init_producer_id(client: WireClient) -> tuple[int, int]:
    """Return a new producer id and its epoch."""
    answer = client.call(INIT_PRODUCER_ID, 0, struct.pack(">hi", -1, 60_000))
    error_code, producer_id, epoch = struct.unpack_from(">hqh", answer, 4)
    assert error_code == 0, error_code
    return producer_id, epoch
