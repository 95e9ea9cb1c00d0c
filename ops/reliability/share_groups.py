"""A share group: members accept, release and reject the records of a topic, and leave or disconnect at random.

A record must never be delivered after its acceptance or rejection was acknowledged, and every other one must be
delivered again until it is. After an acknowledged release its delivery count must be higher. Members send raw
requests: a client's buffer would hide when the broker delivered a record. The topic is one without transactions, so
that its offsets have no gaps.
"""

from __future__ import annotations

import random
import threading
import time
import uuid
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ops.clients.library import Library, text_of
from ops.reliability.chance import source
from ops.reliability.groups import MEAN_STAY_SECONDS, Members
from ops.reliability.ledger import MOST_EVIDENCE, Tally
from ops.reliability.wire import Wire
from ops.reliability.workloads import PAUSE_SECONDS, Topic, TopicWorkload
from rotunda.broker.protocol.api_keys import ApiKey

ACCEPT, RELEASE, REJECT = 1, 2, 3
WEIGHTS = {ACCEPT: 80, RELEASE: 15, REJECT: 5}
SETTINGS = {
    "share.auto.offset.reset": "earliest",
    "share.record.lock.duration.ms": "15000",
    "share.delivery.count.limit": "10",
}
#: From this delivery on a record is accepted: one released too often would end without an acknowledgement.
LATE_DELIVERY = 7
#: States of a record besides its end: not delivered, delivered, sent with an acceptance or rejection.
UNSEEN, DELIVERED, DOUBTFUL = 0, 1, 2
FINAL_EPOCH = -1
GROUP_RESOURCE, SET = 32, 0


@dataclass(frozen=True)
class Release:
    """An acknowledged release: the delivery count of the released delivery, and the time of the response."""

    count: int
    time: float


@dataclass(frozen=True)
class Acquired:
    """A range of delivered records, with the acknowledgement of each."""

    first: int
    last: int
    count: int
    types: list[int]

    def batch(self) -> dict[str, Any]:
        return {"first_offset": self.first, "last_offset": self.last, "acknowledge_types": self.types}


class ShareLedger:
    """The records that a share group's members have got and ended, by partition."""

    def __init__(self, partitions: int) -> None:
        #: By offset, the time at which its acceptance or rejection was acknowledged; 0 before.
        self.ended = [array("d") for _ in range(partitions)]
        self.states = [bytearray() for _ in range(partitions)]
        #: By partition and offset, of the last acknowledged release.
        self.released: dict[tuple[int, int], Release] = {}
        self.read = self.redelivered = self.twice = self.miscounted = 0
        self.evidence: list[str] = []
        self._lock = threading.Lock()

    def deliver(self, partition: int, first: int, last: int, count: int, sent: float) -> None:
        """Note records in the response to a fetch that was sent at that time."""
        with self._lock:
            ended, states = self.ended[partition], self.states[partition]
            missing = last + 1 - len(states)
            if missing > 0:
                ended.extend([0.0] * missing)
                states.extend(bytes(missing))
            for offset in range(first, last + 1):
                self.read += 1
                self.redelivered += states[offset] != UNSEEN
                states[offset] = max(states[offset], DELIVERED)
                if 0 < ended[offset] < sent:
                    self.twice += 1
                    self._note(f"offset {offset} of partition {partition} was delivered after its end")
                release = self.released.get((partition, offset))
                if release and release.time < sent and count <= release.count:
                    self.miscounted += 1
                    self._note(
                        f"offset {offset} of partition {partition} had delivery count {count}, "
                        f"and {release.count} at its release"
                    )

    def doubt(self, partition: int, offset: int) -> None:
        """Note an acceptance or rejection that is about to be sent."""
        with self._lock:
            self.states[partition][offset] = DOUBTFUL

    def end(self, partition: int, offset: int) -> None:
        """Note an acceptance or rejection that the broker has acknowledged now."""
        with self._lock:
            self.ended[partition][offset] = self.ended[partition][offset] or time.monotonic()

    def release(self, partition: int, offset: int, count: int) -> None:
        """Note a release after a delivery of that count that the broker has acknowledged now."""
        with self._lock:
            self.released[partition, offset] = Release(count, time.monotonic())

    def open_below(self, ends: dict[int, int]) -> int:
        """Return the number of records for which no member has sent an acceptance or rejection."""
        with self._lock:
            return sum(end - self.states[partition][:end].count(DOUBTFUL) for partition, end in ends.items())

    def _note(self, evidence: str) -> None:
        if len(self.evidence) < MOST_EVIDENCE:
            self.evidence.append(f"{time.strftime('%H:%M:%S')} {evidence}")


class ShareMember:
    """One member with a connection of its own. Raises OSError for every error."""

    def __init__(self, port: int, group: str, member_id: str, topic: Topic) -> None:
        self._wire = Wire(port)
        self._group, self._member, self._topic = group, member_id, topic
        self._epoch = 0
        self._topic_id = b""

    def join(self, ended: threading.Event) -> None:
        """Configure the group, and send heartbeats until partitions are assigned."""
        [found] = self._ask(ApiKey.METADATA, 12, {"topics": [{"name": self._topic.name}]}).topics
        self._topic_id = bytes(found.topic_id)
        configs = [{"name": name, "config_operation": SET, "value": value} for name, value in SETTINGS.items()]
        resource = {"resource_type": GROUP_RESOURCE, "resource_name": self._group, "configs": configs}
        for response in self._ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, {"resources": [resource]}).responses:
            check(response, ApiKey.INCREMENTAL_ALTER_CONFIGS)
        epoch, assignment = 0, None
        while not ended.is_set() and not (assignment and assignment.topic_partitions):
            response = self._heartbeat(epoch, [self._topic.name])
            epoch, assignment = response.member_epoch, response.assignment
            ended.wait(PAUSE_SECONDS / 4)

    def fetch(self, acknowledgements: dict[int, list[Acquired]], *, last: bool = False) -> Any:
        """Acknowledge by partition, and return the response with further records; the ``last`` one closes."""
        named = range(self._topic.partitions) if self._epoch == 0 else acknowledgements
        partitions = [
            {
                "partition_index": each,
                "acknowledgement_batches": [acquired.batch() for acquired in acknowledgements.get(each, [])],
            }
            for each in named
        ]
        response = self._ask(
            ApiKey.SHARE_FETCH,
            2,
            {
                "group_id": self._group,
                "member_id": self._member,
                "share_session_epoch": FINAL_EPOCH if last else self._epoch,
                "max_wait_ms": 200,
                "min_bytes": 1,
                "max_bytes": 1 << 20,
                "max_records": 200,
                "batch_size": 200,
                "topics": [{"topic_id": self._topic_id, "partitions": partitions}] if partitions else [],
            },
        )
        self._epoch += 1
        return response

    def leave(self) -> None:
        self._heartbeat(FINAL_EPOCH, None)

    def close(self) -> None:
        self._wire.close()

    def _heartbeat(self, epoch: int, names: list[str] | None) -> Any:
        body = {"group_id": self._group, "member_id": self._member, "member_epoch": epoch}
        return self._ask(ApiKey.SHARE_GROUP_HEARTBEAT, 1, {**body, "subscribed_topic_names": names})

    def _ask(self, api_key: ApiKey, version: int, fields: dict[str, Any]) -> Any:
        return check(self._wire.ask(api_key, version, fields), api_key)


class ShareWorkload(Members):
    """A share group that reads the records of an idempotent producer."""

    def __init__(self, library: Library, port: int, written: TopicWorkload, chance: random.Random) -> None:
        self._port, self._group, self._chance = port, f"campaign-{library.name}-share", chance
        self._ledger = ShareLedger(written.topic.partitions)
        super().__init__(library, "share", written, self._ledger)

    def tally(self, at_end: bool) -> Tally:
        tally = super().tally(at_end)
        tally.redelivered, tally.miscounted = self._ledger.redelivered, self._ledger.miscounted
        return tally

    def missing(self, ends: dict[int, int]) -> int:
        """Return the number of records for which no member has sent an acceptance or rejection."""
        return self._ledger.open_below(ends)

    def _run_members(self) -> None:
        """Be one member after the other; one that has not left returns on its next connection."""
        member_id, chance = str(uuid.uuid4()), source(self._chance.getrandbits(32), self.name)
        while not self._ended.is_set():
            try:
                member = ShareMember(self._port, self._group, member_id, self._source.topic)
                try:
                    if self._run_member(member, chance):
                        member_id = str(uuid.uuid4())
                finally:
                    member.close()
            except OSError as failure:
                self._errors[text_of(failure)] += 1
                self._ended.wait(PAUSE_SECONDS)

    def _run_member(self, member: ShareMember, chance: random.Random) -> bool:
        """Be a member for some time; return whether it has left."""
        member.join(self._ended)
        end = time.monotonic() + chance.expovariate(1 / MEAN_STAY_SECONDS)
        pending: dict[int, list[Acquired]] = {}
        while not self._ended.is_set() and time.monotonic() < end:
            sent = time.monotonic()
            response = member.fetch(pending)
            self._end(pending, response)
            pending = self._take(response, sent, chance)
        # Another half disconnects with the records that it has.
        if chance.random() < 0.5:
            self._end(pending, member.fetch(pending, last=True))
            member.leave()
            return True
        return False

    def _take(self, response: Any, sent: float, chance: random.Random) -> dict[int, list[Acquired]]:
        """Note the delivered records, and return their acknowledgements."""
        pending: dict[int, list[Acquired]] = {}
        for partition, found in partitions_of(response):
            for each in found.acquired_records:
                first, last = each.first_offset, each.last_offset
                self._ledger.deliver(partition, first, last, each.delivery_count, sent)
                weights = {ACCEPT: 1} if each.delivery_count >= LATE_DELIVERY else WEIGHTS
                types = chance.choices(list(weights), list(weights.values()), k=last - first + 1)
                pending.setdefault(partition, []).append(Acquired(first, last, each.delivery_count, types))
                for offset, kind in enumerate(types, first):
                    if kind != RELEASE:
                        self._ledger.doubt(partition, offset)
        return pending

    def _end(self, pending: dict[int, list[Acquired]], response: Any) -> None:
        """Note the acknowledgements that a response confirms."""
        for partition, found in partitions_of(response):
            if found.acknowledge_error_code:
                self._errors[f"acknowledgement: error {found.acknowledge_error_code}"] += 1
                continue
            for acquired in pending.get(partition, []):
                self._stopwatch.progress()
                for offset, kind in enumerate(acquired.types, acquired.first):
                    if kind == RELEASE:
                        self._ledger.release(partition, offset, acquired.count)
                    else:
                        self._ledger.end(partition, offset)


def partitions_of(response: Any) -> Iterator[tuple[int, Any]]:
    """Yield the partitions of a ShareFetch response; the campaign's groups read one topic."""
    for topic in response.responses:
        for partition in topic.partitions:
            yield partition.partition_index, partition


def check(response: Any, api_key: ApiKey) -> Any:
    """Return a response without an error. Raises OSError for one with an error."""
    code = getattr(response, "error_code", 0)
    if code:
        raise OSError(f"{api_key.name}: error {code}")
    return response
