"""`rotunda produce`: lines of standard input, or of files, as records of a topic.

Reads at the producer's speed: when its buffer is full, reading blocks. The first record that cannot be written ends the
reading, and the error has its place in the input.
"""

from __future__ import annotations

import argparse
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from rotunda.broker.cli.cluster.cluster_client import access, address, explained, properties
from rotunda.broker.cli.held_signals import Signals
from rotunda.broker.cli.records.byte_streams import standard_input, standard_output
from rotunda.broker.cli.records.record_format import unescaped
from rotunda.broker.cli.records.record_input import InputError, Outgoing, Shape, records_of_files, records_of_lines
from rotunda.broker.client.errors import IllegalState, KafkaError, SerializationFailed
from rotunda.broker.client.network.blocking_client import BlockingClient
from rotunda.broker.client.producer.config import KEYS
from rotunda.broker.client.producer.futures import RecordMetadata
from rotunda.broker.client.producer.producer import Producer
from rotunda.broker.client.topic_partition import TopicPartition
from rotunda.broker.errors import RotundaError, UsageError
from rotunda.broker.text_table import counted

_FAILURE_EXIT_CODE: Final = 1
_STDIN: Final = "standard input"
_SAME: Final = "same"
_CLIENT_ID: Final = "rotunda-produce"
_CLOSE_S: Final = 5.0


def run(parsed: argparse.Namespace, environment: Mapping[str, str]) -> int:
    """Write records until the input ends, or until a signal. Raises UsageError, ConfigError and RotundaError."""
    topic = _topic(parsed)
    shape = _shape(parsed)
    settings = _settings(parsed, environment)
    signals = Signals()
    _check_broker(topic, parsed, environment)
    with Producer(settings) as producer:
        sending = _Sending(producer, topic, parsed)
        try:
            if parsed.transactional_id:
                producer.init_transactions()
                producer.begin_transaction()
            sending.send_all(_records(parsed, shape))
            sending.finish()
        except BaseException as failure:
            if signals.has_come:
                sending.give_up(aborts=bool(parsed.transactional_id))
                return signals.exit_code
            if parsed.transactional_id:
                sending.abort()
            if isinstance(failure, KafkaError):
                raise RotundaError(_explained(failure)) from failure
            raise
    return 0


class _Sending:
    """Sends records, and records the first failure."""

    def __init__(self, producer: Producer, topic: str | None, parsed: argparse.Namespace) -> None:
        self._producer = producer
        self._topic = topic
        self._partition = parsed.partition
        self._most = parsed.max_messages
        self._tee = standard_output() if parsed.tee else None
        self._delimiter = unescaped(parsed.delimiter)
        self._is_transaction = bool(parsed.transactional_id)
        self._failed: tuple[str, KafkaError] | None = None
        self._failing = threading.Lock()
        self._written = 0

    def send_all(self, records: Iterator[Outgoing]) -> None:
        """Send records until the end, or until one has failed. In-flight records are not aborted by invalid input.

        Raises InputError, and KafkaError for a record that the producer rejects.
        """
        try:
            for sent, record in enumerate(records, start=1):
                self._send(record)
                if self._failed is not None or sent == self._most:
                    return
        except InputError as failure:
            self._producer.flush()
            self._raise_failed()
            raise InputError(f"{failure}; {self._count()}") from failure

    def finish(self) -> None:
        """Wait until all records are written, and commit. Raises RotundaError for the first that failed."""
        self._producer.flush()
        self._raise_failed()
        if self._is_transaction:
            self._producer.commit_transaction()

    def abort(self) -> None:
        """Abort the transaction; if that fails, the broker aborts it after its timeout."""
        try:
            self._producer.abort_transaction()
        except KafkaError as failure:
            print(f"rotunda: the transaction is aborted by its timeout: {failure}", file=sys.stderr)

    def give_up(self, *, aborts: bool) -> None:
        """After a signal: abort, or wait a moment for in-flight records."""
        if aborts:
            self.abort()
        self._producer.close(_CLOSE_S)

    def _send(self, record: Outgoing) -> None:
        topic = self._topic or record.topic
        if topic is None:
            raise InputError(f"{record.place} has no topic: add one to the line or to the command")
        partition = record.partition if self._partition == _SAME else self._partition
        if self._partition == _SAME and partition is None:
            raise InputError(f"{record.place} has no partition, which `-p same` needs")

        def delivered(_metadata: RecordMetadata, error: KafkaError | None) -> None:
            with self._failing:
                if error is None:
                    self._written += 1
                elif self._failed is None:
                    self._failed = (record.place, error)

        headers = record.headers or None
        try:
            self._producer.send(topic, record.value, record.key, headers, partition, record.timestamp_ms, delivered)
        except (TypeError, ValueError, IllegalState, SerializationFailed) as failure:
            raise InputError(f"{record.place}: invalid record: {failure}") from failure
        if self._tee is not None:
            self._tee.write((record.value or b"") + self._delimiter)

    def _raise_failed(self) -> None:
        if self._failed is not None:
            place, error = self._failed
            raise RotundaError(f"{place} was not written: {_explained(error)}; {self._count()}") from error

    def _count(self) -> str:
        if self._is_transaction:
            return "nothing has been written, as the transaction is aborted"
        return f"{counted(self._written, 'record')} had been written"


def _records(parsed: argparse.Namespace, shape: Shape) -> Iterator[Outgoing]:
    if parsed.whole_files:
        yield from records_of_files(parsed.whole_files, shape)
        return
    if not parsed.files:
        yield from records_of_lines(standard_input(), _STDIN, shape)
    for path in parsed.files:
        try:
            with Path(path).open("rb") as source:
                yield from records_of_lines(source, str(path), shape)
        except OSError as failure:
            raise InputError(f"cannot read {path}: {failure.strerror}") from failure


def _check_broker(topic: str | None, parsed: argparse.Namespace, environment: Mapping[str, str]) -> None:
    """Check the broker before reading: one that is unreachable or rejects the client is reported at once.

    Raises RotundaError, also when the topic exists and the partition does not.
    """
    ours = access(parsed, environment)
    with explained(ours), BlockingClient(address(parsed, environment, ours), ours, client_id=_CLIENT_ID) as client:
        problems = client.look([] if topic is None else [topic])
    if topic is None or problems.get(topic) is not None or not isinstance(parsed.partition, int):
        return
    if TopicPartition(topic, parsed.partition) not in client.leaders:
        highest = len(client.leaders) - 1
        raise RotundaError(f"topic {topic} has no partition {parsed.partition}: it has 0 to {highest}")


def _topic(parsed: argparse.Namespace) -> str | None:
    if parsed.topic and parsed.named_topic:
        raise UsageError(f"two topics: {parsed.topic} and {parsed.named_topic}; name one")
    topic: str | None = parsed.topic or parsed.named_topic
    if topic is None and not parsed.json:
        raise UsageError("missing topic; only --json lines can have their own")
    if parsed.partition == _SAME and not parsed.json:
        raise UsageError("-p same needs --json")
    if parsed.json and (parsed.key_separator is not None or parsed.whole_files or parsed.Z or parsed.null is not None):
        raise UsageError("--json excludes -K, -Z, --null and --whole-file")
    if not unescaped(parsed.delimiter) or parsed.key_separator == "":
        raise UsageError("invalid -D or -K: empty")
    return topic


def _shape(parsed: argparse.Namespace) -> Shape:
    nulls = {unescaped(parsed.null)} if parsed.null is not None else set()
    return Shape(
        delimiter=b"\n" if parsed.json else unescaped(parsed.delimiter),
        key_separator=None if parsed.key_separator is None else unescaped(parsed.key_separator),
        key=None if parsed.key is None else parsed.key.encode("utf-8", "surrogateescape"),
        headers=tuple(_header(each) for each in parsed.headers),
        nulls=frozenset(nulls | ({b""} if parsed.Z else set())),
        is_json=parsed.json,
    )


def _header(text: str) -> tuple[str, bytes | None]:
    name, equals, value = text.partition("=")
    return name, value.encode("utf-8", "surrogateescape") if equals else None


def _settings(parsed: argparse.Namespace, environment: Mapping[str, str]) -> dict[str, Any]:
    """Return the producer's settings: from the file's known properties, --property, and options."""
    ours = access(parsed, environment)
    settings: dict[str, Any] = properties(parsed, environment, KEYS)
    options = {
        "compression.type": parsed.compression,
        "acks": parsed.acks,
        "transactional.id": parsed.transactional_id,
        "client.id": settings.get("client.id", _CLIENT_ID),
    }
    settings |= {name: value for name, value in options.items() if value is not None}
    settings["bootstrap.servers"] = address(parsed, environment, ours)
    return settings


def _explained(error: KafkaError) -> str:
    text = str(error)
    name = error.kafka_name
    return text if not name or text.startswith(name) else f"{name}: {text}"
