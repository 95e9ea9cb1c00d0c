"""Fetch sessions (KIP-227): incremental requests get incremental responses, and no record is missing (``E22``)."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from itertools import product

import pytest

from rotunda.broker.partitions.fetch import fetch_sessions
from rotunda.broker.partitions.fetch.fetch_sessions import EVICTED_NS, FetchSessions
from rotunda.broker.protocol.messages.fetch import PartFields
from tests.support.fetches import FETCH_VERSIONS, Answer, Answered, append, fetched, send_fetch
from tests.support.results import present
from tests.support.stepped_broker import Client, Sent, SteppedBroker

UNKNOWN_TOPIC, NOT_FOUND, INVALID_EPOCH, ID_MISMATCH = 3, 70, 71, 106
SESSION_VERSIONS = [version for version in FETCH_VERSIONS if version >= 7]


class Consumer:
    """A client with a session, on a connection of its own."""

    def __init__(self, broker: SteppedBroker, version: int = 12) -> None:
        self.broker = broker
        self.version = version
        self.client: Client = broker.client()
        self.session, self.epoch = 0, 0

    def send(self, places: Sequence[tuple[int, int]] = (), forgotten: Sequence[int] = (), **options: object) -> Sent:
        """Send the next request: with these (partition, offset), and without the forgotten ones."""
        topic = self.broker.topic("topic")
        name = {"topic_id": topic.topic_id} if self.version >= 13 else {"topic": "topic"}
        gone = [{**name, "partitions": list(forgotten)}] if forgotten else []
        fields = {"session_id": self.session, "session_epoch": self.epoch, "forgotten_topics_data": gone}
        self.epoch += 1
        return send_fetch(self.broker, self.client, self.version, places, **{**fields, **options})

    def fetch(self, places: Sequence[tuple[int, int]] = (), forgotten: Sequence[int] = (), **options: object) -> Answer:
        """Send the next request and return its response."""
        sent = self.send(places, forgotten, **options)
        self.broker.settle()
        answer = fetched(sent)
        self.session = answer.session
        return answer


@pytest.mark.parametrize("version", SESSION_VERSIONS)
def test_only_changed_partitions_are_sent(stepped: SteppedBroker, version: int) -> None:
    append(stepped, 1, b"a")
    consumer = Consumer(stepped, version)
    begun = consumer.fetch([(0, 0), (1, 0), (2, 0)])
    assert begun.session > 0
    assert begun.parts == [Answered(0, 0, []), Answered(1, 0, [b"a"]), Answered(2, 0, [])]
    assert consumer.fetch([(1, 1)]) == (0, begun.session, [])
    for _ in range(2):
        assert consumer.fetch() == (0, begun.session, [])
    append(stepped, 2, b"b")
    for _ in range(2):
        # Until the client advances its offset, the response has records.
        assert consumer.fetch().parts == [Answered(2, 0, [b"b"])]
    append(stepped, 1, b"c")
    assert consumer.fetch([(2, 1)]).parts == [Answered(1, 0, [b"c"])]
    assert stepped.handler(0).gauges()["fetch_session_partitions"] == 3


def test_partitions_are_added_and_forgotten(stepped: SteppedBroker) -> None:
    consumer = Consumer(stepped)
    for partition in range(4):
        append(stepped, partition, b"%d" % partition)
    consumer.fetch([(0, 1), (1, 1)])
    assert consumer.fetch([(2, 0)], [0]).parts == [Answered(2, 0, [b"2"])]
    assert consumer.fetch([(3, 1), (2, 1)]).parts == [Answered(3, 0, [])], "what is added is told about"
    append(stepped, 0, b"unwanted")
    assert consumer.fetch().parts == []
    assert consumer.fetch([(0, 1)]).parts == [Answered(0, 0, [b"unwanted"])]
    assert consumer.fetch((), [0, 1, 2, 3]).session == 0, "a session without partitions ends"
    assert stepped.handler(0).gauges()["fetch_sessions"] == 0


def test_a_parked_fetch_of_a_session_is_woken_by_any_of_its_partitions(stepped: SteppedBroker) -> None:
    consumer = Consumer(stepped)
    consumer.fetch([(partition, 0) for partition in range(4)])
    for number, partition in enumerate((3, 0)):
        sent = consumer.send(max_wait_ms=60_000)
        stepped.settle()
        assert not sent.answers
        append(stepped, partition, b"new")
        assert fetched(sent).parts == [Answered(partition, 0, [b"new"])], number
        consumer.fetch([(partition, 1)])


def test_a_session_with_a_wrong_id_or_epoch_is_an_error(stepped: SteppedBroker) -> None:
    """Its client starts another one with a full request."""
    consumer = Consumer(stepped)
    begun = consumer.fetch([(0, 0)]).session
    assert consumer.fetch(session_id=begun + 1).error == NOT_FOUND
    consumer.session = begun
    assert consumer.fetch(session_epoch=7).error == INVALID_EPOCH
    consumer.session = begun
    consumer.epoch = 1
    assert consumer.fetch().error == 0
    other = Consumer(stepped, 13)
    other.session, other.epoch = begun, 2
    assert other.fetch().error == ID_MISMATCH


def test_a_resent_request_gets_a_response_with_all_partitions(stepped: SteppedBroker) -> None:
    """Its processor has resent it to the handler: the response has all partitions, in case the client missed some."""
    consumer = Consumer(stepped)
    consumer.fetch([(0, 0), (1, 0)])
    append(stepped, 1, b"a")
    sent = consumer.send()
    stepped.settle()
    for _ in range(2):
        stepped.put(consumer.client, 1)
        stepped.settle()
    again = [fetched(replace(sent, answers=[answer])) for answer in sent.answers]
    assert [answer.parts for answer in again] == [
        [Answered(1, 0, [b"a"])],
        *[[Answered(0, 0, []), Answered(1, 0, [b"a"])]] * 2,
    ]
    assert consumer.fetch([(1, 1)]).error == 0


def test_a_full_fetch_ends_the_session_that_it_names(stepped: SteppedBroker) -> None:
    """Including the last one, with which a client closes; also with a cached request that differs only in its epoch."""
    for epoch, named in product((0, -1), (0, 1)):
        consumer = Consumer(stepped)
        before = consumer.fetch([(0, 0)]).session
        for _ in range(named):
            assert consumer.fetch([(0, 0)]).error == 0
        after = consumer.fetch([(0, 0)], session_epoch=epoch).session
        assert after != before
        assert (after > 0) == (epoch == 0)
        consumer.session, consumer.epoch = before, 1
        assert consumer.fetch().error == NOT_FOUND
    assert stepped.handler(0).gauges()["fetch_sessions"] == 2


def test_an_error_and_its_end_are_both_sent(stepped: SteppedBroker) -> None:
    partitions = len(stepped.topic("topic").partitions)
    consumer = Consumer(stepped)
    consumer.fetch([(0, 0), (partitions, 0)])
    for _ in range(2):
        assert consumer.fetch().parts == [Answered(partitions, UNKNOWN_TOPIC, [])]
    stepped.delete("topic")
    stepped.settle()
    stepped.create("topic", partitions + 1)
    stepped.settle()
    assert Answered(partitions, 0, []) in consumer.fetch().parts
    assert consumer.fetch().parts == []


def test_a_replacement_knows_no_sessions(stepped: SteppedBroker) -> None:
    """E22: requests of its predecessor's sessions get an error that clients recover from."""
    append(stepped, 0, b"a")
    consumer = Consumer(stepped)
    consumer.fetch([(0, 1)])
    waiting = consumer.send(max_wait_ms=60_000)
    stepped.run_once(0)
    assert not waiting.answers
    stepped.kill(0)
    stepped.boot(0)
    stepped.replace(0)
    stepped.settle()
    assert fetched(waiting) == (NOT_FOUND, 0, [])
    consumer.session, consumer.epoch = 0, 0
    assert consumer.fetch([(0, 0)]).parts == [Answered(0, 0, [b"a"])]


def test_partitions_rotate_when_a_response_has_not_room_for_all(stepped: SteppedBroker) -> None:
    for partition in range(4):
        append(stepped, partition, b"%d" % partition)
    consumer = Consumer(stepped)
    answers = [consumer.fetch([(partition, 0) for partition in range(4)], max_bytes=1)]
    answers += [consumer.fetch(max_bytes=1) for _ in range(7)]
    served = [part.partition for answer in answers for part in answer.parts if part.values]
    assert served == [0, 1, 2, 3] * 2


def test_whatever_happens_a_session_leads_to_the_same_records(stepped: SteppedBroker) -> None:
    """Compared with a model: a client that applies the responses gets every record of its partitions, once."""
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    consumer = Consumer(stepped, rng.choice(SESSION_VERSIONS))
    logs: list[list[bytes]] = [[] for _ in range(4)]
    read: list[list[bytes]] = [[] for _ in range(4)]
    named: dict[int, int] = {}
    for step in range(60):
        for partition in rng.sample(range(4), rng.randrange(3)):
            logs[partition].append(b"%d" % step)
            append(stepped, partition, logs[partition][-1])
        wanted = set(rng.sample(range(4), rng.randrange(1, 5))) if step < 50 else {0, 1, 2, 3}
        new = [(each, len(read[each])) for each in wanted if named.get(each) != len(read[each])]
        gone = [each for each in named if each not in wanted]
        answer = consumer.fetch(new, gone, max_bytes=rng.choice([1, 200, 1 << 20]))
        named = {each: len(read[each]) for each in wanted}
        assert answer.error == 0
        for part in answer.parts:
            assert part.partition in wanted
            read[part.partition] += part.values
    for _ in range(40):
        new = [(each, len(read[each])) for each in named if named[each] != len(read[each])]
        named |= dict(new)
        for part in consumer.fetch(new).parts:
            read[part.partition] += part.values
    assert read == logs


# ---- the cache ------------------------------------------------------------------------------------------------------


class Clock:
    """A clock advanced by the test."""

    now_ns = 0

    def __call__(self) -> int:
        return self.now_ns


def parts(count: int) -> list[PartFields]:
    return [("topic", None, index, -1, 0, -1, -1, 1) for index in range(count)]


def test_a_session_makes_room_when_it_is_stale_or_old_and_smaller(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    sessions = FetchSessions(2, clock)
    small, large = sessions.begin(parts(1), (1, 0)), sessions.begin(parts(5), (2, 0))
    assert small is not None
    assert large is not None
    assert sessions.begin(parts(9), (3, 0)) is None, "nobody's was there long enough"
    clock.now_ns = EVICTED_NS + 1
    for session in (small, large):
        assert sessions.advance(session, [], [], [], (0, 0))
    assert sessions.begin(parts(1), (3, 0)) is None, "nor has anybody fewer partitions"
    assert sessions.begin(parts(2), (3, 0)) is not None
    assert sessions.find(small.number) is None
    clock.now_ns += EVICTED_NS + 1
    assert sessions.begin(parts(1), (4, 0)) is not None, "stale"
    assert sessions.find(large.number) is None
    assert (len(sessions), sessions.partitions, sessions.evicted) == (2, 3, 2)
    monkeypatch.setattr(fetch_sessions, "MOST_PARTITIONS", 4)
    assert sessions.begin(parts(4), (5, 0)) is None
    assert FetchSessions(0, clock).begin(parts(1), (1, 0)) is None


def test_a_session_that_grows_too_large_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch_sessions, "MOST_PARTITIONS", 4)
    sessions = FetchSessions(2, Clock())
    assert not sessions.advance(present(sessions.begin(parts(3), (1, 0))), parts(5), [0] * 5, [], (1, 1))
    assert (len(sessions), sessions.partitions) == (0, 0)
