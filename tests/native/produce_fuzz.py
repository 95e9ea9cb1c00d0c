"""Random Produces through a handler, with a build of the module or with the twins: produce_fuzz LIBRARY SEED CASES.

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
from typing import Any
from unittest import mock

from rotunda.broker import native
from tests.support.native import exactly, load

#: A library, or this: the twins.
TWINS = "-"
native.compiled = None if sys.argv[1] == TWINS else load(Path(sys.argv[1]))
from rotunda.broker.ipc.request_channel import REQUEST  # noqa: E402 - with the chosen module
from rotunda.broker.partitions.produce.ring_produces import RingProduces  # noqa: E402
from rotunda.broker.protocol.crc import crc32c  # noqa: E402
from rotunda.broker.security.session import pack_session  # noqa: E402
from tests.handler.test_fast_path import produce_frame  # noqa: E402
from tests.support.fakes import FakeClock  # noqa: E402
from tests.support.record_batches import TIMESTAMP_MS, record_batch  # noqa: E402
from tests.support.stepped_broker import SteppedBroker  # noqa: E402
from tests.support.wire_messages import PRODUCE  # noqa: E402

if native.compiled is not None:

    class ExactProduces(native.compiled.CachedProduces):  # type: ignore[name-defined,misc]
        """Stages each request in a buffer of exactly its bytes: a sanitizer finds what is read beyond them."""

        def stage(self, recent: dict[int, Any], *rest: Any) -> int:
            ring, processor, frames, first, *times = rest
            whole: memoryview = self.view
            for number, (at, size, end) in enumerate(frames[first:], first):
                view = self.view = exactly(whole[at : at + size])
                is_staged = super().stage(recent, ring, processor, [(0, size, end)], 0, *times)
                self.view = whole
                if not is_staged:
                    return number
                whole[at : at + size] = view
                appends = recent[REQUEST.unpack_from(view)[0]].known.appends
                *entry, dequeued_ns, place = appends[-1]
                entry[3] = at, size, end
                appends[-1] = (*entry, dequeued_ns, at + place)
            return len(frames)

    KINDS = native.compiled.CachedProduces, ExactProduces


STAGED: list[int] = []
_stage = RingProduces.stage


def counted(self: RingProduces, ring: object, frames: object, first: int, now_ns: int) -> int:
    number = _stage(self, ring, frames, first, now_ns)  # type: ignore[arg-type]
    STAGED.append(number - first)
    return number


def with_crc(batch: bytes) -> bytes:
    return batch[:17] + struct.pack(">I", crc32c(batch[21:])) + batch[21:]


def any_frame(numbers: random.Random, version: int, acks: int) -> bytes:
    """Return a request that is mostly valid, and else damaged in its prefix, its batch, its lengths or its end."""
    values = [numbers.randbytes(numbers.choice((0, 5, 300))) for _ in range(numbers.choice((1, 1, 3)))]
    batch = record_batch(values, timestamp_ms=TIMESTAMP_MS + numbers.choice((0,) * 9 + (-(2**40), 10**13)))
    kind = numbers.randrange(20)
    if kind == 0:
        damaged, at = bytearray(batch), numbers.randrange(len(batch))
        damaged[at] = numbers.choice((0, 0x7F, 0x80, 0xFF))
        batch = bytes(damaged) if numbers.random() < 0.4 else with_crc(bytes(damaged))
    elif kind == 1:
        at, form, number = numbers.choice(((8, ">i", 2**31 - 1), (57, ">i", 2**31 - 1), (23, ">i", -1), (57, ">i", 0)))
        batch = with_crc(batch[:at] + struct.pack(form, number) + batch[at + 4 :])
    elif kind == 2:
        batch = batch[: numbers.randrange(len(batch))]
    frame = bytearray(produce_frame(version, batch, acks))
    if kind == 3:
        frame[numbers.randrange(8, len(frame) - len(batch))] ^= 1 << numbers.randrange(8)
    elif kind == 4:
        return bytes(frame[: numbers.randrange(20, len(frame))])
    frame[4:8] = struct.pack(">i", numbers.choice((0, 7, -1, -(2**31))))
    return bytes(frame)


class StoppedClock(FakeClock):
    """Is stopped: responses in another order leave room in a full ring in another round."""

    def advance_ns(self, nanoseconds: int) -> None:
        pass


def run(numbers: random.Random, directory: Path) -> None:
    is_slow = numbers.random() < 0.5
    ring_bytes, clock = (4 * 1024, StoppedClock) if is_slow else (64 * 1024, FakeClock)
    broker = SteppedBroker(directory, handlers=1, ring_bytes=ring_bytes, clock=clock)
    broker.create("topic", 2)
    broker.settle()
    clients = [(broker.client(), version, acks) for version, acks in ((3, 1), (7, -1), (8, 1), (9, -1), (9, 1), (9, 0))]
    clients[0][0].session = clients[3][0].session = pack_session("alice", "192.0.2.1")
    for _ in range(20):
        for _ in range(numbers.randrange(20)):
            client, version, acks = numbers.choice(clients)
            client.send_frame(PRODUCE, version, any_frame(numbers, version, acks), 0)
        broker.clock.advance_ns(numbers.randrange(10**6))
        broker.run_once(0)
        # A slow processor's response ring becomes full.
        if numbers.random() < 0.1 or not is_slow:
            broker.drain()
    broker.settle()
    for client, *_ in clients:
        print([(each.answers, each.envelopes) for each in client.sent.values()])
    for log in sorted((directory / "data").rglob("*.log")):
        print(hashlib.sha256(log.read_bytes()).hexdigest())
    broker.close()


def main(seed: str, cases: str) -> None:
    with mock.patch.object(RingProduces, "stage", counted):
        for case in range(int(cases)):
            if native.compiled is not None:
                native.compiled.CachedProduces = KINDS[case % 2]  # type: ignore[attr-defined]
            with tempfile.TemporaryDirectory() as directory:
                run(random.Random(f"{seed} {case}"), Path(directory))
    assert any(STAGED) == (native.compiled is not None)


if __name__ == "__main__":
    main(*sys.argv[2:])
