"""A transactional producer without a client library, for brokers that are turned by hand, and a committed reader.

Requests are made by kio, separately from the broker's own codecs where it has them. The reader reads the files below
the published offsets and filters them as a read_committed consumer does.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any

from rotunda.broker.log.indexes.transaction_index import TransactionIndex
from rotunda.broker.protocol import codec
from tests.support.record_batches import record_batch
from tests.support.stepped_broker import OURS, Client, Killed, Sent, SteppedBroker, may_die_in
from tests.support.wire_messages import Reader, read_record

PRODUCE, INIT_PRODUCER_ID, ADD_PARTITIONS, ADD_OFFSETS, END_TXN = 0, 22, 24, 25, 26
OFFSET_FETCH, FIND_COORDINATOR, TXN_OFFSET_COMMIT = 9, 10, 28
TRANSACTIONAL = 0x10
_CONTROL = 0x20
TIMEOUT_MS = 60_000


def send(client: Client, api_key: int, version: int, values: dict[str, Any]) -> Sent:
    """Put a request of any API into its target's ring."""
    frame = codec.encode_request(api_key, version, len(client.sent), "test", values)
    return client.send_frame(api_key, version, frame[4:])


def answer_of(sent: Sent) -> Any:
    """Return the response that counts, decoded by kio."""
    payload = sent.answer.payload
    return codec.decode_response(sent.api_key, sent.version, payload, 4, len(payload))


class TransactionalProducer:
    """One transactional id on one connection. ``newest``: transaction version 2 (KIP-890); else as librdkafka does."""

    def __init__(self, broker: SteppedBroker, transactional_id: str, *, newest: bool) -> None:
        self.broker = broker
        self.transactional_id = transactional_id
        self.newest = newest
        self.client = broker.client()
        self.producer_id = self.epoch = -1
        self.sequences: dict[tuple[str, int], int] = {}

    def init(self, timeout_ms: int = TIMEOUT_MS, *, again: bool = False) -> Sent:
        """Send InitProducerId; ``again``: with the producer id and epoch that it has (KIP-360)."""
        values = {"transactional_id": self.transactional_id, "transaction_timeout_ms": timeout_ms}
        if again:
            values |= {"producer_id": self.producer_id, "producer_epoch": self.epoch}
        return send(self.client, INIT_PRODUCER_ID, 4 if self.newest else 3, values)

    def take(self, sent: Sent) -> int:
        """Apply producer id and epoch of a response. Return its error code."""
        answer = answer_of(sent)
        if not answer.error_code and getattr(answer, "producer_epoch", -1) >= 0:
            if answer.producer_epoch != self.epoch:
                self.sequences.clear()
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
        return int(answer.error_code)

    def add(self, places: Sequence[tuple[str, int]]) -> Sent:
        """Send AddPartitionsToTxn 0."""
        topics: dict[str, list[int]] = {}
        for topic, partition in places:
            topics.setdefault(topic, []).append(partition)
        values = {
            "v3_and_below_transactional_id": self.transactional_id,
            "v3_and_below_producer_id": self.producer_id,
            "v3_and_below_producer_epoch": self.epoch,
            "v3_and_below_topics": [{"name": name, "partitions": indexes} for name, indexes in topics.items()],
        }
        return send(self.client, ADD_PARTITIONS, 0, values)

    def produce(self, parts: Sequence[tuple[str, int, bytes]], version: int | None = None) -> Sent:
        """Send a Produce with one record for each (topic, partition)."""
        topics: dict[str, list[dict[str, Any]]] = {}
        for topic, partition, value in parts:
            sequence = self.sequences.get((topic, partition), 0)
            self.sequences[topic, partition] = sequence + 1
            batch = record_batch(
                [value],
                producer_id=self.producer_id,
                producer_epoch=self.epoch,
                base_sequence=sequence,
                attributes=TRANSACTIONAL,
            )
            topics.setdefault(topic, []).append({"index": partition, "records": batch})
        values = {
            "transactional_id": self.transactional_id,
            "acks": -1,
            "timeout_ms": 30_000,
            "topic_data": [{"name": name, "partition_data": data} for name, data in topics.items()],
        }
        return send(self.client, PRODUCE, version or (12 if self.newest else 7), values)

    def add_offsets(self, group_id: str) -> Sent:
        """Send AddOffsetsToTxn 0."""
        return send(self.client, ADD_OFFSETS, 0, {**self._identity(), "group_id": group_id})

    def commit_offset(self, group_id: str, topic: str, offset: int) -> Sent:
        """Send TxnOffsetCommit for partition 0 of a topic."""
        partitions = [{"partition_index": 0, "committed_offset": offset, "committed_leader_epoch": -1}]
        values = {"group_id": group_id, "topics": [{"name": topic, "partitions": partitions}]}
        if self.newest:
            values |= {"generation_id_or_member_epoch": -1, "member_id": "", "group_instance_id": None}
        return send(self.client, TXN_OFFSET_COMMIT, 5 if self.newest else 2, {**self._identity(), **values})

    def _identity(self) -> dict[str, Any]:
        return {
            "transactional_id": self.transactional_id,
            "producer_id": self.producer_id,
            "producer_epoch": self.epoch,
        }

    def end(self, *, commit: bool) -> Sent:
        """Send EndTxn."""
        return send(self.client, END_TXN, 5 if self.newest else 1, {**self._identity(), "committed": commit})


def settled(broker: SteppedBroker, sent: Sent) -> Sent:
    """Turn all targets until a request has its response."""
    broker.settle()
    return sent


def started(broker: SteppedBroker, transactional_id: str = "id", *, newest: bool = True) -> TransactionalProducer:
    """Return an initialized producer with an epoch."""
    producer = TransactionalProducer(broker, transactional_id, newest=newest)
    assert producer.take(settled(broker, producer.init())) == 0
    return producer


def produce_errors(sent: Sent) -> list[int]:
    """Return the error codes of a Produce response, in order."""
    answer = answer_of(sent)
    return [int(part.error_code) for topic in answer.responses for part in topic.partition_responses]


def add_errors(sent: Sent) -> list[int]:
    """Return the error codes of an AddPartitionsToTxn 0-3 response, in order."""
    answer = answer_of(sent)
    topics = answer.results_by_topic_v3_and_below
    return [int(part.partition_error_code) for topic in topics for part in topic.results_by_partition]


def offset_errors(sent: Sent) -> list[int]:
    """Return the error codes of a TxnOffsetCommit response, in order."""
    return [int(part.error_code) for topic in answer_of(sent).topics for part in topic.partitions]


def committed_offset(broker: SteppedBroker, group_id: str, topic: str) -> int:
    """Return the committed offset of a group in partition 0, once no transaction is open there; -1 for none."""
    values = {
        "group_id": group_id,
        "topics": [{"name": topic, "partition_indexes": [0]}],
        "require_stable": True,
    }
    sent = send(broker.client(), OFFSET_FETCH, 7, values)
    broker.settle()
    part = answer_of(sent).topics[0].partitions[0]
    assert int(part.error_code) == 0
    return int(part.committed_offset)


def open_coordinator_topics(broker: SteppedBroker) -> None:
    """Have the internal topics created, as the first FindCoordinator of each kind does."""
    for key_type in (0, 1):
        send(broker.client(), FIND_COORDINATOR, 2, {"key": "any", "key_type": key_type})
    broker.settle()
    broker.forget_clients()


def committed_values(broker: SteppedBroker, topic: str, partition: int) -> list[bytes]:
    """Return the records that a read_committed consumer reads from a partition that has one segment."""
    row = broker.partition(topic, partition).row
    _, base, position = broker.context.partitions.read_position(row)
    stable = broker.context.partitions.read_stable(row)
    directory = broker.config.data_dir / f"{topic}-{partition}"
    data = (directory / f"{base:020d}.log").read_bytes()[:position]
    index = TransactionIndex(directory, base)
    aborted = index.entries()
    index.file.close()
    found: list[bytes] = []
    at = 0
    while at < len(data):
        base_offset, length = struct.unpack_from(">qi", data, at)
        attributes, _, _, _, producer_id = struct.unpack_from(">hiqqq", data, at + 21)
        end = at + 12 + length
        is_aborted = any(
            entry.producer_id == producer_id and entry.first_offset <= base_offset <= entry.last_offset
            for entry in aborted
        )
        if base_offset < stable and not attributes & _CONTROL and not is_aborted:
            reader = Reader(data[at:end])
            reader.at = 61
            while reader.at < len(reader.data):
                found.append(read_record(reader, base_offset, producer_id).value)
        at = end
    return found


class Fuse:
    """Kills the running target before the ``line``-th line of the broker's code, counted over all its turns."""

    def __init__(self, line: int) -> None:
        self.left = line

    @property
    def burnt(self) -> bool:
        """Whether that line has been reached."""
        return self.left <= 0

    def run(self, do: Callable[[], bool]) -> bool:
        """Call ``do`` and return its result; True, too, if it was killed in it."""
        before = sys.gettrace()
        sys.settrace(self._enter)
        try:
            return do()
        except Killed:
            return True
        finally:
            sys.settrace(before)

    def _line(self, frame: FrameType, event: str, arg: Any) -> Any:
        del frame, arg
        if event == "line":
            self.left -= 1
            if self.left <= 0:
                raise Killed
        return self._line

    def _enter(self, frame: FrameType, event: str, arg: Any) -> Any:
        del event, arg
        return self._line if may_die_in(frame.f_code, OURS) else None
