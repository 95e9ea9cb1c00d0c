"""Requests of share consumers to handlers run by the test: sessions, their limit, and partitions without state."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Any

import pytest

from rotunda.broker.coordinator.share_state import share_fetches
from rotunda.broker.coordinator.share_state.acquisition import ShareReader
from rotunda.broker.coordinator.share_state.share_consumers import MOST_PARTITIONS
from rotunda.broker.protocol.api_keys import ApiKey
from rotunda.broker.protocol.error_codes import ErrorCode
from rotunda.broker.records.record_batch import batch_headers
from rotunda.broker.records.record_reader import Record, iterate_records
from rotunda.shm.tables.process_slots import PROCESSOR
from tests.support.fakes import failing
from tests.support.groups.requests import LIST_GROUPS, call
from tests.support.record_batches import record_batch
from tests.support.results import present
from tests.support.share_consumer import Acquired
from tests.support.stepped_broker import SteppedBroker
from tests.support.stepped_share_consumer import (
    GROUP,
    SteppedShareConsumer,
    acknowledged,
    acknowledgement,
    initialize,
    response_to,
)
from tests.support.transactional import answer_of, send

ACCEPT, RELEASE, REJECT, RENEW = 1, 2, 3, 4
EMPTY: Acquired = []

Make = Callable[..., SteppedShareConsumer]


@pytest.fixture
def topic_id(broker: SteppedBroker) -> bytes:
    """Return the id of the topic; members' connections are open."""
    broker.context.slots.set_generation(PROCESSOR, 0, 1)
    return broker.topic("topic").topic_id


@pytest.fixture
def make(broker: SteppedBroker, topic_id: bytes) -> Make:
    """Make members that fetch from partitions."""

    def new(member: str, *partitions: int, group: str = GROUP) -> SteppedShareConsumer:
        return SteppedShareConsumer(broker, topic_id, member, partitions or (0,), group)

    return new


def write(broker: SteppedBroker, count: int, partition: int = 0) -> None:
    """Append a batch."""
    batch = record_batch([b"%d" % number for number in range(count)])
    broker.client().produce([("topic", partition, batch)])
    broker.settle()


def wait(broker: SteppedBroker, seconds: float) -> None:
    """Let time pass."""
    broker.clock.advance_ns(int(seconds * 10**9))
    broker.settle()


def heartbeat(broker: SteppedBroker, epoch: int, *topics: str, member: str = "m", group: str = GROUP) -> Any:
    fields = {"group_id": group, "member_id": member, "member_epoch": epoch, "subscribed_topic_names": topics or None}
    sent = send(broker.client(), ApiKey.SHARE_GROUP_HEARTBEAT, 1, fields)
    broker.settle()
    if not sent.answers:
        wait(broker, 1)  # for the state of its partitions
    return answer_of(sent)


def join(broker: SteppedBroker, **who: str) -> int:
    """Join with the topic's partitions; return the member's epoch."""
    for _ in range(10):
        joined = heartbeat(broker, 0, "topic", **who)
        if not joined.error_code and joined.assignment.topic_partitions:
            return int(joined.member_epoch)
    raise AssertionError("no assignment")


def set_configs(broker: SteppedBroker, **configs: str) -> None:
    """Set configs of the group."""
    entries = [{"name": name, "config_operation": 0, "value": value} for name, value in configs.items()]
    resource = {"resource_type": 32, "resource_name": GROUP, "configs": entries}
    response = call(broker, broker.client(), ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, {"resources": [resource]})
    assert [each.error_code for each in response.responses] == [0]
    broker.announce()


# ---- partitions -----------------------------------------------------------------------------------------------------


def test_partitions_without_state_are_in_error_until_they_are_initialized(
    broker: SteppedBroker, topic_id: bytes, make: Make
) -> None:
    """S60: at once, since all are. S55: a response has those that were in error in the one before."""
    initialize(broker, topic_id, [0])
    write(broker, 3)
    write(broker, 3, partition=1)
    member = make("m", 1, 2)
    unknown = int(ErrorCode.UNKNOWN_SERVER_ERROR)
    for _ in range(2):
        found = member.fetch(max_wait_ms=60_000, min_bytes=1)
        assert {partition: each.error for partition, each in found.items()} == {1: unknown, 2: unknown}
    initialize(broker, topic_id, [1, 2])
    found = member.fetch()
    assert {partition: (each.error, each.acquired) for partition, each in found.items()} == {
        1: (0, [(0, 2, 1)]),
        2: (0, EMPTY),
    }


def test_a_response_has_new_partitions_those_in_error_and_those_with_records(
    broker: SteppedBroker, topic_id: bytes, make: Make
) -> None:
    """S55."""
    initialize(broker, topic_id, [0, 1])
    member = make("m", 0)
    assert list(member.fetch()) == [0]
    assert list(member.fetch()) == []
    member.partitions = (0, 1)
    assert list(member.fetch()) == [1]
    member.partitions = (0, 9)
    for _ in range(2):
        assert {partition: each.error for partition, each in member.fetch().items()} == {9: 3}
    member.partitions = (0,)
    assert list(member.fetch(forgotten_topics_data=[{"topic_id": topic_id, "partitions": [9]}])) == []
    write(broker, 3)
    assert member.fetch()[0].acquired == [(0, 2, 1)]


def test_a_deleted_topic_is_unknown_to_fetches_and_acknowledgements(
    broker: SteppedBroker, topic_id: bytes, make: Make
) -> None:
    """S69."""
    initialize(broker, topic_id)
    write(broker, 3)
    member = make("m")
    assert member.fetch()[0].acquired == [(0, 2, 1)]
    broker.delete("topic")
    broker.settle()
    unknown = ErrorCode.UNKNOWN_TOPIC_ID
    found = member.fetch([acknowledgement(0, 2, ACCEPT)])[0]
    assert (found.error, found.acknowledged, found.acquired) == (unknown, unknown, EMPTY)
    assert member.acknowledge(0, 2, ACCEPT) == unknown


def test_bytes_are_split_evenly_between_partitions(broker: SteppedBroker, topic_id: bytes, make: Make) -> None:
    """S76."""
    initialize(broker, topic_id, [0, 1])
    for _ in range(4):
        for partition in (0, 1):
            write(broker, 1, partition)
    size = len(record_batch([b"0"]))
    found = make("m", 0, 1).fetch(max_bytes=4 * size)
    assert {partition: each.acquired for partition, each in found.items()} == {0: [(0, 1, 1)], 1: [(0, 1, 1)]}


def test_settings_of_a_group_are_those_of_its_records(broker: SteppedBroker, topic_id: bytes, make: Make) -> None:
    """S45, S83: the duration of locks, and renewals."""
    settings = {"share.record.lock.duration.ms": "20000", "share.renew.acknowledge.enable": "false"}
    set_configs(broker, **settings)
    initialize(broker, topic_id)
    write(broker, 3)
    member, other = make("m"), make("other")
    sent = member.send()
    broker.settle()
    assert response_to(sent).acquisition_lock_timeout_ms == 20_000
    assert member.acknowledge(0, 2, RENEW, is_renew_ack=True) == ErrorCode.INVALID_RECORD_STATE
    wait(broker, 19)
    assert other.fetch()[0].acquired == EMPTY
    wait(broker, 2)
    assert other.fetch()[0].acquired == [(0, 2, 2)]


# ---- sessions -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("broker", [{"max.partitions": str(2 * MOST_PARTITIONS)}], indirect=True)
def test_a_session_of_more_partitions_than_a_response_may_have_is_rejected(
    broker: SteppedBroker, topic_id: bytes, make: Make
) -> None:
    initialize(broker, topic_id)
    member = make("m", *range(MOST_PARTITIONS + 1))
    sent = member.send()
    broker.settle()
    assert response_to(sent).error_code == ErrorCode.INVALID_REQUEST
    assert str(MOST_PARTITIONS) in response_to(sent).error_message
    member = make("m", *range(MOST_PARTITIONS))
    assert len(member.fetch(max_wait_ms=0)) == MOST_PARTITIONS


def test_a_response_with_very_many_acquired_ranges_has_no_further_partitions(
    broker: SteppedBroker, topic_id: bytes, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(share_fetches, "MOST_ACQUIRED", 3)
    initialize(broker, topic_id, [0, 1, 2])
    for partition in (0, 1, 2):
        for _ in range(2):
            write(broker, 1, partition)
    member = make("m", 0, 1, 2)
    acquired = [sum(len(each.acquired) for each in member.fetch(batch_size=1).values()) for _ in range(2)]
    assert acquired == [4, 2]


@pytest.mark.parametrize(
    "broker",
    [
        {"group.share.max.share.sessions": sessions, "group.share.max.size": members}
        for sessions, members in (("4", "1"), ("2", "2"))
    ],
    indirect=True,
)
def test_a_session_beyond_the_limit_is_rejected_after_its_wait(
    broker: SteppedBroker, topic_id: bytes, make: Make
) -> None:
    """S52: each of two handlers has half of them, or a group's; a member's new session replaces its earlier one."""
    initialize(broker, topic_id)
    first, second, third = (make(name) for name in "abc")
    first.fetch()
    second.fetch()
    rejected = third.send(max_wait_ms=1000)
    broker.settle()
    assert not rejected.answers
    wait(broker, 1.1)
    assert response_to(rejected).error_code == ErrorCode.SHARE_SESSION_LIMIT_REACHED
    first.epoch = third.epoch = 0
    assert list(first.fetch()) == [0]
    first.fetch(share_session_epoch=-1)
    assert list(third.fetch()) == [0]


def test_records_in_flight_end_with_the_last_session(broker: SteppedBroker, topic_id: bytes, make: Make) -> None:
    """S58: also those of a partition that the session no longer has; their acquisition was not stored."""
    initialize(broker, topic_id, [0, 1])
    write(broker, 3)
    member, other = make("m"), make("other")
    assert member.fetch()[0].acquired == [(0, 2, 1)]
    member.partitions = (1,)
    member.fetch(forgotten_topics_data=[{"topic_id": topic_id, "partitions": [0]}])
    assert other.fetch()[0].acquired == EMPTY
    for each in (other, member):
        each.fetch(share_session_epoch=-1)
    other.epoch = 0
    assert other.fetch()[0].acquired == [(0, 2, 1)]


@pytest.mark.parametrize("broker", [{"group.share.record.lock.duration.ms": "60000"}], indirect=True)
def test_a_member_that_its_group_has_removed_keeps_its_session_and_its_records(
    broker: SteppedBroker, make: Make
) -> None:
    """S5A: until their lock ends."""
    set_configs(broker, **{"share.auto.offset.reset": "earliest"})
    epoch = join(broker)
    write(broker, 4)
    member, other = make("m"), make("other")
    assert member.fetch()[0].acquired == [(0, 3, 1)]
    wait(broker, 50)
    assert heartbeat(broker, epoch).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert other.fetch()[0].acquired == EMPTY
    assert member.acknowledge(0, 1, ACCEPT) == 0
    wait(broker, 11)
    assert other.fetch()[0].acquired == [(2, 3, 2)]


def test_of_two_simultaneous_acknowledgements_the_second_is_rejected(
    broker: SteppedBroker, topic_id: bytes, make: Make
) -> None:
    """S88: the first is not committed yet."""
    initialize(broker, topic_id)
    write(broker, 3)
    member = make("m")
    member.fetch()
    sent = [member.send_acknowledgement([acknowledgement(0, 1, kind)]) for kind in (RELEASE, ACCEPT)]
    assert broker.run_once(sent[0].target)
    broker.settle()
    assert [acknowledged(each) for each in sent] == [0, ErrorCode.INVALID_RECORD_STATE]


# ---- groups ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "broker",
    [
        {"group.coordinator.rebalance.protocols": protocols, "offsets.retention.minutes": "1"}
        for protocols in ("classic", "classic,consumer,share")
    ],
    indirect=True,
)
def test_a_group_needs_no_setting_and_does_not_expire(broker: SteppedBroker) -> None:
    """S09, V19: the list of protocols has no effect. S13: a group without members stays."""
    epoch = join(broker)
    assert heartbeat(broker, -1).error_code == 0 < epoch
    for _ in range(20):
        wait(broker, 60)
    [group] = call(broker, broker.client(), LIST_GROUPS, 5, {}).groups
    assert (group.group_id, group.group_type, group.group_state) == (GROUP, "share", "Empty")


def test_groups_are_described_by_any_coordinator(broker: SteppedBroker) -> None:
    """S111."""
    epoch = join(broker)
    for with_operations in (True, False):
        fields = {"group_ids": ["", GROUP, "unknown"], "include_authorized_operations": with_operations}
        nameless, found, unknown = call(broker, broker.client(), ApiKey.SHARE_GROUP_DESCRIBE, 1, fields).groups
        assert (nameless.error_code, unknown.error_code) == (ErrorCode.INVALID_GROUP_ID, ErrorCode.GROUP_ID_NOT_FOUND)
        assert unknown.error_message == "Group unknown not found."
        assert (found.error_code, found.group_state, found.assignor_name) == (0, "Stable", "simple")
        assert (found.group_epoch, found.assignment_epoch) == (epoch, epoch)
        assert (found.authorized_operations > 0) == with_operations
        [member] = found.members
        assert (member.member_id, member.member_epoch, member.client_id) == ("m", epoch, "test")
        assert list(member.subscribed_topic_names) == ["topic"]
        [assigned] = member.assignment.topic_partitions
        assert (assigned.topic_name, list(assigned.partitions)) == ("topic", [0, 1, 2, 3])


# ---- dead letters ---------------------------------------------------------------------------------------------------

LETTERS = "dlq.letters"


def stored(broker: SteppedBroker, topic: str) -> memoryview:
    """Return the committed batches of a topic's first partition."""
    _, _, position = broker.context.partitions.read_position(broker.partition(topic, 0).row)
    [file] = (broker.config.data_dir / f"{topic}-0").glob("*.log")
    return memoryview(file.read_bytes()[:position])


def letters_in(broker: SteppedBroker) -> list[Record]:
    """Return the dead letters."""
    batches = stored(broker, LETTERS)
    return [
        record
        for position, header in batch_headers(batches)
        for record in iterate_records(batches[position : position + header.size_bytes])
    ]


def reject_all(broker: SteppedBroker, topic_id: bytes, make: Make, *values: bytes) -> None:
    """Have a member reject a batch of records, and wait for their dead letters."""
    initialize(broker, topic_id)
    broker.client().produce([("topic", 0, record_batch(list(values)))])
    broker.settle()
    member = make("m")
    last = len(values) - 1
    assert member.fetch()[0].acquired == [(0, last, 1)]
    assert member.acknowledge(0, last, REJECT) == 0
    for _ in range(8):
        wait(broker, 1)


@pytest.mark.parametrize(
    "broker",
    [
        {
            "errors.deadletterqueue.auto.create.topics.enable": "true",
            "log.message.timestamp.type": "LogAppendTime",
            "num.partitions": "3",
        }
    ],
    indirect=True,
)
def test_a_missing_dead_letter_topic_is_created(broker: SteppedBroker, topic_id: bytes, make: Make) -> None:
    """S102: with its own settings, else the broker's defaults."""
    set_configs(broker, **{"errors.deadletterqueue.topic.name": LETTERS})
    reject_all(broker, topic_id, make, b"a", b"b")
    metadata = broker.parts(0).metadata
    made = present(metadata.topic(LETTERS))
    config = metadata.log_config(made)
    assert (config.errors_deadletterqueue_group_enable, config.message_timestamp_type) == (True, "CreateTime")
    assert len(made.partitions) == 3
    assert [each.value for each in letters_in(broker)] == [None, None]


def test_records_rejected_with_the_last_request_become_dead_letters_once(
    broker: SteppedBroker, topic_id: bytes, make: Make
) -> None:
    """S58, S106: the group's windows end before the letters are written."""
    broker.create(LETTERS, 1, {"errors.deadletterqueue.group.enable": "true"})
    broker.settle()
    set_configs(broker, **{"errors.deadletterqueue.topic.name": LETTERS})
    initialize(broker, topic_id)
    write(broker, 2)
    member, other = make("m"), make("other")
    assert member.fetch()[0].acquired == [(0, 1, 1)]
    assert member.fetch([acknowledgement(0, 1, REJECT)], share_session_epoch=-1)[0].acknowledged == 0
    wait(broker, 1)
    assert other.fetch()[0].acquired == EMPTY
    wait(broker, 1)
    assert len(letters_in(broker)) == 2


@pytest.mark.parametrize("is_readable", [True, False])
def test_dead_letters_are_within_the_limit_of_their_topic(
    broker: SteppedBroker, topic_id: bytes, make: Make, monkeypatch: pytest.MonkeyPatch, *, is_readable: bool
) -> None:
    """S105: uncompressed, and without the content of originals that are too large or cannot be read."""
    most_bytes = 2000
    enabled = {"errors.deadletterqueue.group.enable": "true", "max.message.bytes": str(most_bytes)}
    broker.create(LETTERS, 1, {**enabled, "compression.type": "producer"})
    broker.settle()
    copied = {"errors.deadletterqueue.copy.record.enable": "true"}
    set_configs(broker, **{"errors.deadletterqueue.topic.name": LETTERS, **copied})
    if not is_readable:
        monkeypatch.setattr(ShareReader, "read_from", failing(OSError(errno.EIO, "no such sector")))
    large, small = b"x" * 3000, b"y" * 600
    reject_all(broker, topic_id, make, large, *[small] * 5)
    assert [each.value for each in letters_in(broker)] == ([None, *[small] * 5] if is_readable else [None] * 6)
    headers = [header for _, header in batch_headers(stored(broker, LETTERS))]
    assert {header.codec for header in headers} == {0}
    assert max(header.size_bytes for header in headers) <= most_bytes
