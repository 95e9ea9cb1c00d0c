"""Producers without a client library that record every acknowledgement, for tests that count records.

A writer never sends a record twice: each of its records must be in its partition exactly once, in order, at the offset
that the acknowledgement named.
"""

import struct
import threading
from collections import defaultdict
from collections.abc import Iterable, Sequence

from tests.support.record_batches import record_batch
from tests.support.wire_client import WireClient, request_frame
from tests.support.wire_messages import PRODUCE, PRODUCE_VERSION, ReadRecord, produce_body, read_produce


class Writer:
    """One connection that produces to the same partitions with every request, `depth` requests in flight.

    `padding_bytes` makes its records larger; `pace_s` is how long it waits after each response.
    """

    def __init__(
        self,
        name: str,
        topic: str,
        partitions: Sequence[int],
        *,
        depth: int = 1,
        padding_bytes: int = 0,
        pace_s: float = 0.0,
    ):
        self.name, self.topic, self.partitions, self.depth = name, topic, partitions, depth
        self.padding, self.pace_s = b"." * padding_bytes, pace_s
        self.sent = 0
        self.acknowledged: dict[int, list[int]] = defaultdict(list)

    def run(self, port: int, stop: threading.Event) -> "Writer":
        """Produce until stopped, then until everything is acknowledged; AssertionError on any error."""
        with WireClient(port) as client:
            received = 0
            while not stop.is_set() or received < self.sent:
                while self.sent - received < self.depth and not stop.is_set():
                    client.send(self._frame(self.sent))
                    self.sent += 1
                if received < self.sent:
                    self._note(received, client.receive_frame())
                    received += 1
                if self.pace_s:
                    stop.wait(self.pace_s)
        return self

    def value(self, number: int) -> bytes:
        """Return the value of the record that the request of this number writes to every partition."""
        return f"{self.name}:{number}:".encode() + self.padding

    def _frame(self, number: int) -> bytes:
        batch = record_batch([self.value(number)])
        parts = [(self.topic, partition, batch) for partition in self.partitions]
        return request_frame(PRODUCE, PRODUCE_VERSION, number, produce_body(parts))

    def _note(self, number: int, answer: bytes) -> None:
        assert answer[:4] == struct.pack(">i", number), f"{self.name}: answer out of order"
        parts = read_produce(answer[4:])
        assert sorted(part.partition for part in parts) == sorted(self.partitions)
        for part in parts:
            assert part.error_code == 0, f"{self.name}: error {part.error_code} for request {number}"
            self.acknowledged[part.partition].append(part.base_offset)


def assert_exact(records: Sequence[ReadRecord], partition: int, writers: Iterable[Writer], spare: int = 0) -> None:
    """Assert that a partition holds every acknowledged record once, where it was promised, and nothing else.

    `spare` is how many records a writer may have in it beyond the acknowledged ones: those that it had in
    flight when everything was killed.
    """
    assert [record.offset for record in records] == list(range(len(records)))
    values = [record.value for record in records]
    found: dict[str, list[int]] = defaultdict(list)
    for value in values:
        name, number, _ = value.split(b":")
        found[name.decode()].append(int(number))
    for writer in writers:
        numbers, offsets = found.pop(writer.name, []), writer.acknowledged[partition]
        assert numbers == list(range(len(numbers))), f"{writer.name} in {partition}: lost, twice or out of order"
        assert len(offsets) <= len(numbers) <= len(offsets) + spare, f"{writer.name} in {partition}"
        for number, offset in enumerate(offsets):
            assert values[offset] == writer.value(number), f"{writer.name} in {partition} at {offset}"
    assert not found, f"records that nobody wrote: {sorted(found)}"
