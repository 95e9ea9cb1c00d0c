"""ShareFetch and ShareAcknowledge by raw requests: sessions, redelivery, and the deaths of handlers."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, ResourceType

from rotunda.broker.protocol import codec
from rotunda.broker.protocol.api_keys import ApiKey
from rotunda.broker.protocol.error_codes import ErrorCode
from tests.support.broker_process import BrokerProcess
from tests.support.broker_settings import set_configs
from tests.support.deadline import deadline_s, wait_until
from tests.support.share_consumer import ShareConsumer, topic_id_of

BROKER_SETTINGS = {
    "num.io.threads": 2,
    "process.restart.limit": 1000,
    "group.share.min.record.lock.duration.ms": 1000,
    "share.coordinator.snapshot.update.records.per.snapshot": 20,
    "share.coordinator.state.topic.prune.interval.ms": 500,
    "share.coordinator.cold.partition.snapshot.interval.ms": 500,
}
#: A broker without the groups of other tests.
OWN_SETTINGS = BROKER_SETTINGS
ACCEPT, RELEASE, REJECT, RENEW = 1, 2, 3, 4
PARTITIONS = (0, 1)

Make = Callable[..., ShareConsumer]


class Topic:
    """A topic of a few partitions, and its records."""

    def __init__(self, broker: BrokerProcess, admin: AdminClient, partitions: int = len(PARTITIONS)) -> None:
        self.name = f"topic-{uuid.uuid4().hex[:12]}"
        self.partitions = range(partitions)
        admin.create_topics([NewTopic(self.name, partitions, 1)])[self.name].result(deadline_s())
        self.id = topic_id_of(broker.port, self.name)
        self._producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 5, "enable.idempotence": True})

    def write(self, count: int, partition: int = 0) -> None:
        """Append records as few batches."""
        for number in range(count):
            self._producer.produce(self.name, b"%d" % number, partition=partition)
        assert self._producer.flush(deadline_s()) == 0


@pytest.fixture
def topic(broker: BrokerProcess, admin: AdminClient) -> Topic:
    return Topic(broker, admin)


def configured(admin: AdminClient, **settings: object) -> str:
    """Return a new group that reads from the beginning, with further settings."""
    name = f"share-{uuid.uuid4().hex[:12]}"
    values = {"share.auto.offset.reset": "earliest"} | {
        key if "." in key else f"share.{key.replace('_', '.')}": str(value) for key, value in settings.items()
    }
    set_configs(admin, ResourceType.GROUP, name, values)
    return name


@pytest.fixture
def make(broker: BrokerProcess, topic: Topic) -> Iterator[Make]:
    """Make members of a group, which has state for the topic."""
    made: list[ShareConsumer] = []

    def new(group: str) -> ShareConsumer:
        made.append(ShareConsumer(broker.port, group, topic.id, PARTITIONS).join(topic.name))
        return made[-1]

    yield new
    for each in made:
        each.close()


def first_of(consumer: ShareConsumer, partition: int = 0) -> tuple[int, int, int]:
    """Fetch until a partition has records; return their first range."""

    def found() -> list[tuple[int, int, int]]:
        got = consumer.fetch().get(partition)
        return [] if got is None else got.acquired

    return wait_until(found, "acquired records")[0]


def test_an_epoch_out_of_order_is_rejected_and_a_closed_session_is_unknown(admin: AdminClient, make: Make) -> None:
    """S51, S53, S56."""
    member = make(configured(admin))
    member.fetch(max_wait_ms=0)
    wrong = member.fetch_raw(share_session_epoch=7)
    assert (wrong.error_code, wrong.responses) == (ErrorCode.INVALID_SHARE_SESSION_EPOCH, ())
    member.fetch(share_session_epoch=-1)
    assert member.fetch_raw(share_session_epoch=1).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
    member.epoch = 0
    opened = member.fetch_raw([(0, 0, 0, [ACCEPT])])
    assert opened.error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    "fields",
    [
        {"group_id": None},
        {"member_id": None},
        {"member_id": ""},
        {"member_id": "m" * 37},
        {"is_renew_ack": True},
        {"share_acquire_mode": 2},
    ],
)
def test_an_invalid_fetch_is_rejected_and_its_session_stays(
    admin: AdminClient, make: Make, fields: dict[str, object]
) -> None:
    """S40, S72."""
    member = make(configured(admin))
    member.fetch(max_wait_ms=0)
    rejected = member.fetch_raw(**fields)
    assert (rejected.error_code, rejected.responses) == (ErrorCode.INVALID_REQUEST, ())
    member.fetch(max_wait_ms=0)


def test_an_acknowledgement_needs_a_session_and_its_epoch(admin: AdminClient, make: Make) -> None:
    """S57, S80, S86."""
    member = make(configured(admin))
    accept = [(0, 0, 0, [ACCEPT])]
    errors = [
        member.acknowledge_raw(accept, share_session_epoch=epoch, **fields).error_code
        for epoch, fields in ((0, {}), (1, {}), (-1, {}), (1, {"group_id": None}), (1, {"member_id": ""}))
    ]
    unknown, invalid = ErrorCode.SHARE_SESSION_NOT_FOUND, ErrorCode.INVALID_REQUEST
    assert errors == [ErrorCode.INVALID_SHARE_SESSION_EPOCH, unknown, unknown, invalid, invalid]
    member.fetch(max_wait_ms=0)
    assert member.acknowledge([(7, 0, 0, [ACCEPT])]) == {7: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


def test_errors_of_unknown_partitions_do_not_delay_records(
    broker: BrokerProcess, admin: AdminClient, make: Make, topic: Topic
) -> None:
    """S43, S45: and at once when all are unknown."""
    group = configured(admin)
    make(group)
    topic.write(5)
    with closing(ShareConsumer(broker.port, group, topic.id, (0, 9))) as member:
        found = {part.partition_index: part for part in wait_until(lambda: _parts_with_records(member), "records")}
        assert found[9].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert (found[0].error_code, found[0].current_leader.leader_id) == (0, -1)
    with closing(ShareConsumer(broker.port, group, uuid.uuid4().bytes, (0,))) as member:
        response = member.fetch_raw(max_wait_ms=600_000)
        assert response.acquisition_lock_timeout_ms == 30_000
        [[part]] = [each.partitions for each in response.responses]
        assert part.error_code == ErrorCode.UNKNOWN_TOPIC_ID


def _parts_with_records(member: ShareConsumer) -> list[Any]:
    """Open a session and return the partitions of its first response, if records are among them."""
    member.epoch = 0
    parts = [part for each in member.fetch_raw().responses for part in each.partitions]
    return parts if any(part.acquired_records for part in parts) else []


@pytest.mark.parametrize("limit", ["max_records", "max_bytes"])
def test_a_fetch_of_nothing_completes_at_once(admin: AdminClient, make: Make, topic: Topic, limit: str) -> None:
    """S44."""
    member = make(configured(admin))
    topic.write(5)
    assert not any(got.acquired for got in member.fetch(max_wait_ms=600_000, **{limit: 0}).values())


def test_a_new_session_does_not_release_and_other_groups_get_all(admin: AdminClient, make: Make, topic: Topic) -> None:
    """S46, S47, S50, S7C."""
    group = configured(admin)
    member, other = make(group), make(configured(admin))
    topic.write(5)
    assert first_of(member) == (0, 4, 1)
    member.epoch = 0
    assert not any(got.acquired for got in member.fetch(max_wait_ms=0).values())
    assert member.acknowledge([(0, 0, 4, [ACCEPT])]) == {0: 0}
    assert first_of(other) == (0, 4, 1)


def test_requests_of_a_session_have_its_epochs_in_their_order(admin: AdminClient, make: Make) -> None:
    """S5D: one that waits holds back the responses after it."""
    member = make(configured(admin))
    member.fetch(max_wait_ms=0)
    fields = {"group_id": member.group, "member_id": member.member, "min_bytes": 1, "max_bytes": 1, "max_records": 1}
    for number, (epoch, wait_ms) in enumerate(((1, 300), (2, 0), (2, 0))):
        body = {**fields, "share_session_epoch": epoch, "max_wait_ms": wait_ms}
        member.client.send(codec.encode_request(ApiKey.SHARE_FETCH, 2, number, "share", body))
    frames = member.client.receive_frames(3)
    responses = [codec.decode_response(ApiKey.SHARE_FETCH, 2, frame, 0, len(frame)) for frame in frames]
    assert [int.from_bytes(frame[:4], "big") for frame in frames] == [0, 1, 2]
    assert [each.error_code for each in responses] == [0, 0, ErrorCode.INVALID_SHARE_SESSION_EPOCH]


def test_a_waiting_fetch_is_woken_by_a_release(admin: AdminClient, make: Make, topic: Topic) -> None:
    """S7A, S82."""
    group = configured(admin)
    holder, other = make(group), make(group)
    topic.write(5)
    assert first_of(holder) == (0, 4, 1)
    other.fetch(max_wait_ms=0)
    with ThreadPoolExecutor(1) as executor:
        waiting = executor.submit(other.fetch, max_wait_ms=60_000)
        assert holder.acknowledge([(0, 0, 4, [ACCEPT, RELEASE, RELEASE, ACCEPT, RELEASE])]) == {0: 0}
        assert waiting.result(deadline_s())[0].acquired == [(1, 2, 2), (4, 4, 2)]


def test_a_fetch_that_waits_for_a_full_window_is_woken_by_an_acknowledgement(
    admin: AdminClient, make: Make, topic: Topic
) -> None:
    """S65, S7A."""
    group = configured(admin, partition_max_record_locks=100)
    holder, other = make(group), make(group)
    for _ in range(2):
        topic.write(100)
    assert first_of(holder) == (0, 99, 1)
    other.fetch(max_wait_ms=0)
    with ThreadPoolExecutor(1) as executor:
        waiting = executor.submit(other.fetch, max_wait_ms=60_000)
        assert holder.acknowledge([(0, 0, 99, [ACCEPT])]) == {0: 0}
        assert waiting.result(deadline_s())[0].acquired == [(100, 199, 1)]


def test_a_fetch_of_no_minimum_completes_at_once(admin: AdminClient, make: Make) -> None:
    """S7A."""
    member = make(configured(admin))
    member.fetch(max_wait_ms=0)
    assert member.fetch(max_wait_ms=600_000, min_bytes=0) == {}


def test_a_response_exceeds_its_limit_by_one_batch_at_most(admin: AdminClient, make: Make, topic: Topic) -> None:
    """S54, S76."""
    for partition in PARTITIONS:
        topic.write(10, partition)
    consumer = make(configured(admin))
    found = [consumer.fetch(max_bytes=1) for _ in PARTITIONS]
    assert [[part for part, got in each.items() if got.acquired] for each in found] in ([[0], [1]], [[1], [0]])


def test_the_records_of_a_closed_connection_are_released(admin: AdminClient, make: Make, topic: Topic) -> None:
    """S58, S59, S5C."""
    group = configured(admin)
    holder, other = make(group), make(group)
    topic.write(5)
    first_of(holder)
    holder.close()
    assert first_of(other) == (0, 4, 2)


def test_a_lock_runs_out_unless_it_is_renewed(admin: AdminClient, make: Make, topic: Topic) -> None:
    """S42, S82, S89."""
    group = configured(admin, record_lock_duration_ms=1500)
    holder, other = make(group), make(group)
    topic.write(2)
    first_of(holder)
    stop = threading.Event()

    def renew() -> None:
        while not stop.wait(0.2):
            limits = dict.fromkeys(("max_wait_ms", "min_bytes", "max_bytes", "max_records"), 0)
            assert holder.fetch([(0, 0, 0, [RENEW])], is_renew_ack=True, **limits)[0].acknowledged == 0

    with ThreadPoolExecutor(1) as executor:
        renewing = executor.submit(renew)
        assert first_of(other) == (1, 1, 2)
        stop.set()
        renewing.result(deadline_s())
    assert holder.acknowledge([(0, 0, 0, [ACCEPT])]) == {0: 0}


def test_acknowledgements_of_others_records_are_rejected(admin: AdminClient, make: Make, topic: Topic) -> None:
    """S41, S81, S85."""
    group = configured(admin)
    holder, other = make(group), make(group)
    topic.write(5)
    first_of(holder)
    other.fetch(max_wait_ms=0)
    assert other.acknowledge([(0, 0, 4, [ACCEPT])]) == {0: ErrorCode.INVALID_RECORD_STATE}
    assert other.acknowledge([(0, 4, 3, [ACCEPT])]) == {0: ErrorCode.INVALID_REQUEST}
    assert holder.fetch([(0, 0, 4, [9])], max_wait_ms=0)[0].acknowledged == ErrorCode.INVALID_REQUEST
    assert holder.fetch([(0, 0, 4, [ACCEPT])], max_wait_ms=0)[0].acknowledged == 0


def test_records_delivered_before_a_kill_are_not_skipped(
    admin: AdminClient, broker: BrokerProcess, make: Make, topic: Topic
) -> None:
    """S5B, S62, S97; a fetch waits until the state is loaded again."""
    group = configured(admin, auto_offset_reset="latest")
    topic.write(3)
    member = make(group)
    member.fetch(max_wait_ms=0)
    topic.write(10)
    assert first_of(member) == (3, 12, 1)
    for handler in range(2):
        broker.kill("handler", handler)
    member.epoch = 0
    member.fetch(max_wait_ms=60_000)
    member.fetch(share_session_epoch=-1)
    assert first_of(member)[:2] == (3, 12)


def test_a_group_begins_with_the_records_of_a_duration(admin: AdminClient, make: Make, topic: Topic) -> None:
    """S61."""
    topic.write(5)
    assert first_of(make(configured(admin, auto_offset_reset="by_duration:PT1H"))) == (0, 4, 1)
    later = make(configured(admin, auto_offset_reset="by_duration:PT0S"))
    later.fetch(max_wait_ms=0)
    topic.write(5)
    assert first_of(later) == (5, 9, 1)


def test_sessions_end_when_share_groups_are_disabled(admin: AdminClient, make: Make, topic: Topic) -> None:
    """S07."""
    member = make(configured(admin))
    topic.write(5)
    assert first_of(member) == (0, 4, 1)

    def set_level(level: int, upgrade_type: int) -> None:
        update = {"feature": "share.version", "max_version_level": level, "upgrade_type": upgrade_type}
        response = member.call(ApiKey.UPDATE_FEATURES, {"timeout_ms": 60_000, "feature_updates": [update]}, 2)
        assert response.error_code == 0

    set_level(0, 2)
    wait_until(lambda: member.fetch_raw().error_code == ErrorCode.UNSUPPORTED_VERSION, "the feature is off")
    set_level(2, 1)
    wait_until(lambda: member.fetch_raw().error_code == ErrorCode.SHARE_SESSION_NOT_FOUND, "the feature is on")
    member.epoch = 0
    assert first_of(member) == (0, 4, 1)


def test_rejected_records_become_dead_letters_with_their_content(
    admin: AdminClient, broker: BrokerProcess, make: Make, topic: Topic
) -> None:
    """S100, S101, S103, S104, S106."""
    name = f"dlq.{topic.name}"
    settings = {"errors.deadletterqueue.group.enable": "true"}
    admin.create_topics([NewTopic(name, 1, 1, config=settings)])[name].result(deadline_s())
    group = configured(
        admin,
        **{"errors.deadletterqueue.topic.name": name, "errors.deadletterqueue.copy.record.enable": "true"},
    )
    member = make(group)
    topic.write(3)
    assert first_of(member) == (0, 2, 1)
    assert member.acknowledge([(0, 0, 2, [ACCEPT, REJECT, REJECT])]) == {0: 0}
    reader = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": name, "auto.offset.reset": "earliest"})
    reader.subscribe([name])
    letters = [wait_until(lambda: reader.poll(0.1), "a dead letter") for _ in range(2)]
    reader.close()
    assert [letter.value() for letter in letters] == [b"1", b"2"]
    assert dict(letters[0].headers()) == {
        "__dlq.errors.topic": topic.name.encode(),
        "__dlq.errors.partition": b"0",
        "__dlq.errors.offset": b"1",
        "__dlq.errors.group": group.encode(),
        "__dlq.errors.delivery.count": b"1",
        "__dlq.errors.message": b"Offset rejected by client.",
    }
    topic.write(1)
    assert first_of(member) == (3, 3, 1)


def test_records_that_snapshots_replace_are_deleted_from_the_state_topic(
    admin: AdminClient, broker: BrokerProcess, make: Make, topic: Topic
) -> None:
    """S90, S95."""
    member = make(configured(admin))
    topic.write(1)
    first_of(member)
    assert member.acknowledge([(0, 0, 0, [ACCEPT])]) == {0: 0}
    reader = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "watermarks"})

    def is_pruned() -> bool:
        logs = (TopicPartition("__share_group_state", partition) for partition in range(2))
        return any(reader.get_watermark_offsets(log)[0] > 0 for log in logs)

    wait_until(is_pruned, "a later start of the log")
    reader.close()


def test_records_in_flight_count_in_the_memory_of_groups(own_broker: BrokerProcess) -> None:
    """S132: ranges of one record each need the most memory: while it is full, no further record is acquired."""
    admin = AdminClient({"bootstrap.servers": own_broker.bootstrap})
    topic = Topic(own_broker, admin)
    most = 2000
    group = configured(admin, partition_max_record_locks=2 * most)
    member = ShareConsumer(own_broker.port, group, topic.id, PARTITIONS).join(topic.name)
    for partition in PARTITIONS:
        topic.write(most, partition)
    held = 0

    def has_all() -> bool:
        nonlocal held
        ranges = [each for got in member.fetch(max_records=most).values() for each in got.acquired]
        held += sum(last - first + 1 for first, last, _ in ranges)
        return held == most * len(PARTITIONS)

    wait_until(has_all, "all records acquired")
    alternating = [RENEW, ACCEPT] * (most // 2)
    renewed = [(partition, 0, most - 1, alternating) for partition in PARTITIONS]
    assert set(member.acknowledge(renewed, is_renew_ack=True).values()) == {0}
    topic.write(10)
    assert own_broker.command("config", "set", f"group.state.max.bytes={1 << 20}").returncode == 0
    wait_until(
        lambda: not member.fetch(max_wait_ms=0) and "of group.state.max.bytes" in own_broker.log_text(), "a rejection"
    )
    rest = [(0, offset, offset, [ACCEPT]) for offset in range(0, most, 2)]
    assert member.acknowledge(rest) == {0: 0}
    assert first_of(member) == (most, most + 9, 1)
    member.close()


def test_a_session_of_many_partitions_acknowledges_and_closes_over_several_runs(
    broker: BrokerProcess, admin: AdminClient
) -> None:
    """S56, S59, S80."""
    wide = Topic(broker, admin, partitions=60)
    accepted, rejected, released = wide.partitions[:40], wide.partitions[40:50], wide.partitions[50:]
    for partition in wide.partitions:
        wide.write(1, partition)
    group = configured(admin)
    with (
        closing(ShareConsumer(broker.port, group, wide.id, wide.partitions).join(wide.name)) as leaving,
        closing(ShareConsumer(broker.port, group, wide.id, wide.partitions)) as staying,
    ):
        assert acquired_from(leaving, wide.partitions) == [(partition, [(0, 0, 1)]) for partition in wide.partitions]
        errors = leaving.acknowledge([(partition, 0, 0, [ACCEPT]) for partition in accepted])
        assert errors == dict.fromkeys(accepted, 0)
        last = leaving.fetch([(partition, 0, 0, [REJECT]) for partition in rejected], share_session_epoch=-1)
        assert {partition: got.acknowledged for partition, got in last.items()} == dict.fromkeys(rejected, 0)
        assert acquired_from(staying, released) == [(partition, [(0, 0, 2)]) for partition in released]


def acquired_from(consumer: ShareConsumer, partitions: Sequence[int]) -> list[tuple[int, list[tuple[int, int, int]]]]:
    """Fetch until as many partitions have given records; return partitions and their acquired ranges."""
    found: dict[int, list[tuple[int, int, int]]] = {}

    def have_all() -> bool:
        found.update({partition: got.acquired for partition, got in consumer.fetch().items() if got.acquired})
        return len(found) >= len(partitions)

    wait_until(have_all, "records of all partitions")
    return sorted(found.items())
