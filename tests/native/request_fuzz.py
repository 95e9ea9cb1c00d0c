"""Random requests through a handler, with a build of the module or with the twins: request_fuzz LIBRARY SEED CASES.

Prints all responses with their envelopes, and the logs; a test compares both. Responses may be in another order in
their ring.
"""

from __future__ import annotations

import hashlib
import random
import struct
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

from rotunda.broker import native
from tests.support.native import exactly, load

#: A library, or this: the twins.
TWINS = "-"
native.compiled = None if sys.argv[1] == TWINS else load(Path(sys.argv[1]))
# ruff: noqa: E402 - the other modules use the chosen one
from rotunda.broker.config.settings.authorization import STANDARD_AUTHORIZER
from rotunda.broker.errors import InvalidReceive
from rotunda.broker.handler.ring_requests import RingRequests
from rotunda.broker.ipc.request_channel import REQUEST
from rotunda.broker.metadata.configs.config_changes import TOPIC, Alteration, ConfigChange
from rotunda.broker.metadata.configs.config_changes import Operation as Change
from rotunda.broker.metadata.configs.quota_entities import USER, QuotaOp
from rotunda.broker.protocol import codec
from rotunda.broker.protocol.api_keys import ApiKey
from rotunda.broker.records.crc import crc32c
from rotunda.broker.security.acl.acls import Acl, AclFilter, Operation, PatternType, Permission, ResourceType
from rotunda.broker.security.session import pack_session
from rotunda.broker.steps import finished
from rotunda.shm.layout import RESPONSE_ENVELOPE
from tests.support.fakes import FakeClock
from tests.support.groups.requests import Member, groups_of
from tests.support.record_batches import TIMESTAMP_MS, record_batch
from tests.support.stepped_broker import Client, SteppedBroker
from tests.support.transactional import open_coordinator_topics
from tests.support.wire_messages import PRODUCE

if native.compiled is not None:

    class ExactRequests(native.compiled.CachedRequests):  # type: ignore[name-defined,misc]
        """Handles each request in a buffer of exactly its bytes: a sanitizer finds what is read beyond them."""

        def handle(self, ring: object, processor: int, frames: list[Any], first: int, *times: int) -> int:
            whole: memoryview = self.view
            for number, (at, size, end) in enumerate(frames[first:], first):
                view = self.view = exactly(whole[at : at + size])
                is_done = super().handle(ring, processor, [(0, size, end)], 0, *times)
                self.view = whole
                if not is_done:
                    return number
                whole[at : at + size] = view
                connection, _, _, api_key, *_ = REQUEST.unpack_from(view)
                if api_key != PRODUCE:
                    continue
                appends = self.recent[PRODUCE][connection].known.appends
                *entry, dequeued_ns, place = appends[-1]
                entry[3] = at, size, end
                appends[-1] = (*entry, dequeued_ns, at + place)
            return len(frames)

    KINDS = native.compiled.CachedRequests, ExactRequests


#: API keys of the requests that compiled code has handled.
HANDLED: set[int] = set()
#: Exceptions in compiled code, which leaves the request to its twin.
FAILED: list[object] = []
sys.unraisablehook = FAILED.append
_handle = RingRequests.handle


def counted(self: RingRequests, ring: Any, frames: Any, first: int, *times: int) -> int:
    number = _handle(self, ring, frames, first, *times)
    HANDLED.update(REQUEST.unpack_from(self._responses.view, at)[3] for at, _, _ in frames[first:number])
    return number


def with_crc(batch: bytes) -> bytes:
    return batch[:17] + struct.pack(">I", crc32c(batch[21:])) + batch[21:]


VERSIONS = 3, 7, 8, 9, 11
SETTINGS = {"authorizer.class.name": STANDARD_AUTHORIZER, "allow.everyone.if.no.acl.found": "true"}
DENIAL = Acl(ResourceType.TOPIC, "a", PatternType.LITERAL, "User:alice", "*", Operation.WRITE, Permission.DENY)
DENIAL_AT = RESPONSE_ENVELOPE.offset("denial")
CONFIGS = (
    {},
    {},
    {"max.message.bytes": "150"},
    {"message.timestamp.type": "LogAppendTime"},
    {"message.timestamp.after.max.ms": "1000"},
    {"compression.type": "lz4"},
    {"cleanup.policy": "compact"},
    {"segment.bytes": "1048576"},
)


class Asked(NamedTuple):
    """A request by its fields."""

    api_key: ApiKey
    version: int
    fields: dict[str, Any]


class Producer:
    """A client that sends mostly to one partition, in one version.

    Alone, it sends to that one only, and no other does: beside a full ring, requests of several connections are handled
    in another order.
    """

    def __init__(self, client: Client, number: int, numbers: random.Random, *, is_alone: bool) -> None:
        self.client, self.id, self.sequence = client, numbers.choice((-1, -1, -1, number)), 0
        self.version, self.acks = numbers.choice(VERSIONS), numbers.choice((1, 1, -1, 0))
        self.is_alone = is_alone
        self.place = ("ab"[number % 2], number // 2) if is_alone else (numbers.choice("ab"), numbers.randrange(2))
        client.session = pack_session("alice", "192.0.2.1") if numbers.random() < 0.3 else b""

    def send(self, numbers: random.Random) -> None:
        place = self.place
        if not self.is_alone and numbers.random() < 0.05:
            place = numbers.choice("abc"), numbers.randrange(3)
        batches = [(*place, self.any_batch(numbers))]
        if not self.is_alone and numbers.random() < 0.05:
            batches.append((numbers.choice("ab"), numbers.randrange(2), self.any_batch(numbers)))
        frame = any_frame(numbers, self.version, self.acks, batches, 0 if self.is_alone else 0.04)
        try:
            self.client.send_frame(PRODUCE, self.version, frame)
        except InvalidReceive:
            self.client.send_frame(PRODUCE, self.version, frame, 0)

    def send_any(self, numbers: random.Random, others: list[Asked]) -> None:
        """Send a Produce or another request."""
        if numbers.random() < 0.5:
            self.ask(numbers, others)
        else:
            self.send(numbers)

    def ask(self, numbers: random.Random, others: list[Asked]) -> None:
        """Send a request with a cached response, mostly in the same bytes."""
        key, version, fields = numbers.choice(others)
        frame = bytearray(codec.encode_request(key, version, 0, "test", fields)[4:])
        frame[4:8] = struct.pack(">i", numbers.choice((0, 7, -1)))
        if numbers.random() < 0.05:
            frame[numbers.randrange(8, len(frame))] ^= 1 << numbers.randrange(8)
        if numbers.random() < 0.05:
            del frame[numbers.randrange(8, len(frame)) :]
        try:
            self.client.send_frame(key, version, bytes(frame))
        except InvalidReceive:
            self.client.send_frame(key, version, bytes(frame), 0)

    def any_batch(self, numbers: random.Random) -> bytes:
        values = [numbers.randbytes(numbers.choice((0, 5, 300))) for _ in range(numbers.choice((1, 1, 3)))]
        producer = {"producer_id": self.id, "producer_epoch": 0, "base_sequence": self.sequence} if self.id > 0 else {}
        if numbers.random() < 0.97:
            self.sequence += len(values)
        return damaged(
            numbers,
            record_batch(
                values,
                keys=numbers.choice((None, [b"key"] * len(values))),
                timestamp_ms=TIMESTAMP_MS + numbers.choice((0,) * 9 + (-(2**40), 10**13)),
                timestamp_step_ms=numbers.choice((0, 0, 7, -7)),
                codec=numbers.choice((0,) * 16 + (1, 2, 3, 4)),
                **producer,
            ),
        )


def others_of(member: Member) -> list[Asked]:
    """Return requests other than Produce that compiled code may handle; their responses have no random ids."""
    parts = [{"partition_index": at, "timestamp": each} for at in (0, 1) for each in (-1, -2)]
    heartbeat = {"group_id": member.group_id, "member_id": member.member_id}
    return [
        *(Asked(ApiKey.API_VERSIONS, version, {}) for version in (0, 2)),
        *(Asked(ApiKey.METADATA, 1, {"topics": [{"name": name}]}) for name in "ac"),
        *(
            Asked(ApiKey.LIST_OFFSETS, version, {"topics": [{"name": "a", "partitions": some}], "isolation_level": 1})
            for version in (3, 7)
            for some in (parts[:1], parts[1:2], parts[::2])
        ),
        *(
            Asked(ApiKey.HEARTBEAT, 4, {**heartbeat, "generation_id": each})
            for each in (member.generation, member.generation, 99)
        ),
    ]


def damaged(numbers: random.Random, batch: bytes) -> bytes:
    """Return a batch that is mostly as it was."""
    kind = numbers.randrange(25)
    if kind == 0:
        changed, at = bytearray(batch), numbers.randrange(len(batch))
        changed[at] = numbers.choice((0, 0x7F, 0x80, 0xFF))
        return bytes(changed) if numbers.random() < 0.4 else with_crc(bytes(changed))
    if kind == 1:
        at, form, number = numbers.choice(((8, ">i", 2**31 - 1), (57, ">i", 2**31 - 1), (23, ">i", -1), (57, ">i", 0)))
        return with_crc(batch[:at] + struct.pack(form, number) + batch[at + 4 :])
    return batch[: numbers.randrange(len(batch))] if kind == 2 else batch


def any_frame(
    numbers: random.Random, version: int, acks: int, batches: list[tuple[str, int, bytes]], damaged_share: float
) -> bytes:
    """Return a request that is mostly whole; a share is damaged before its records, so that they may go elsewhere."""
    topics = [{"name": name, "partition_data": [{"index": at, "records": data}]} for name, at, data in batches]
    body = {"acks": acks, "timeout_ms": 1000, "topic_data": topics}
    frame = bytearray(codec.encode_request(PRODUCE, version, 0, "test", body)[4:])
    frame[4:8] = struct.pack(">i", numbers.choice((0, 7, -1, -(2**31))))
    if numbers.random() < damaged_share:
        frame[numbers.randrange(8, len(frame) - len(batches[-1][2]))] ^= 1 << numbers.randrange(8)
    return bytes(frame[: numbers.randrange(20, len(frame))] if numbers.random() < 0.04 else frame)


class StoppedClock(FakeClock):
    """Is stopped: responses in another order leave room in a full ring in another round."""

    def advance_ns(self, nanoseconds: int) -> None:
        pass


def change(broker: SteppedBroker, numbers: random.Random, kinds: str) -> None:
    """Change settings, topics, rights or quotas, or replace a target."""
    kind, name = numbers.choice(kinds), numbers.choice("ab")
    controller, exists = broker.controller, broker.parts(0).metadata.topic(name) is not None
    if not exists:
        broker.create(name, 2, numbers.choice(CONFIGS))
    elif kind == "s":
        settings = tuple(ConfigChange(key, Change.SET, value) for key, value in numbers.choice(CONFIGS).items())
        controller.alter_configs(TOPIC, name, Alteration(settings, replaces=True), validate_only=False)
    elif kind == "n":
        broker.delete(name)
    elif kind == "r":
        finished(controller.acls.create([DENIAL]))
    elif kind == "d":
        finished(controller.acls.delete([AclFilter(*DENIAL)], str(numbers.random())))
    elif kind == "q":
        operation = QuotaOp("producer_byte_rate", numbers.choice((None, None, 1000.0)))
        controller.alter_client_quotas(((USER, "alice"),), [operation], validate_only=False)
    elif kind == "e":
        broker.replace(numbers.randrange(len(broker.handlers)))
    broker.announce_metadata()


def warm_up(broker: SteppedBroker, client: Client, others: list[Asked]) -> None:
    """Send each request again until compiled code handles it."""
    for key, version, fields in others:
        for _ in range(4):
            client.send_frame(key, version, codec.encode_request(key, version, 0, "test", fields)[4:])
            broker.settle()


def steady(others: list[Asked]) -> list[Asked]:
    """Return those that have the same response in any round: in a full ring they wait in one of the two runs only."""
    return [each for each in others if each.api_key != ApiKey.LIST_OFFSETS]


def run(numbers: random.Random, directory: Path) -> None:
    is_slow = numbers.random() < 0.5
    ring_bytes, clock = (4 * 1024, StoppedClock) if is_slow else (64 * 1024, FakeClock)
    handlers, processors = numbers.choice(((1, 1), (1, 2), (3, 2)))
    broker = SteppedBroker(directory, handlers, processors, ring_bytes, SETTINGS, clock=clock)
    # A replacement repeats a response without its append time.
    configs = [each for each in CONFIGS if not (is_slow and "message.timestamp.type" in each)]
    for name in "ab":
        broker.create(name, 4, numbers.choice(configs))
    open_coordinator_topics(broker)
    member = Member(broker, groups_of(broker, 0, 1)[0])
    # Of damaged requests, each bit of the member id may decide.
    with mock.patch("uuid.uuid4", return_value="member"):
        member.join()
    others = others_of(member)
    producers = [Producer(broker.client(each % processors), each, numbers, is_alone=is_slow) for each in range(8)]
    warm_up(broker, producers[0].client, others)
    others = steady(others) if is_slow else others
    for _ in range(30):
        for _ in range(numbers.randrange(20)):
            numbers.choice(producers).send_any(numbers, others)
        if numbers.random() < 0.15:
            change(broker, numbers, "e" if is_slow else "snrddqqe")
        broker.clock.advance_ns(numbers.randrange(10**6))
        for index in range(handlers):
            broker.run_once(index)
        # A slow processor's response ring becomes full.
        if numbers.random() < 0.1 or not is_slow:
            broker.drain()
    broker.settle(400)
    for producer in producers:
        for sent in producer.client.sent.values():
            # The number of a denial is random; a replacement repeats the responses that a full ring had room for.
            print(
                dict.fromkeys(sent.answers), {each[:DENIAL_AT] + each[DENIAL_AT + 8 :]: None for each in sent.envelopes}
            )
    for log in sorted((directory / "data").glob("[abc]-*/*.log")):
        print(log.parent.name, log.name, hashlib.sha256(log.read_bytes()).hexdigest())
    broker.close()


def main(seed: str, cases: str) -> None:
    with mock.patch.object(RingRequests, "handle", counted):
        for case in range(int(cases)):
            if native.compiled is not None:
                native.compiled.CachedRequests = KINDS[case % 2]  # type: ignore[attr-defined]
            with tempfile.TemporaryDirectory() as directory:
                run(random.Random(f"{seed} {case}"), Path(directory))
    assert not FAILED, FAILED
    assert sorted(HANDLED) == ([] if native.compiled is None else [0, 2, 3, 12, 18])


if __name__ == "__main__":
    main(*sys.argv[2:])
