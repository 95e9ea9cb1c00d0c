"""Faults in a real broker of several processes: counted exactly, in force everywhere at once, without side effects."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from rotunda.broker.errors import UsageError
from rotunda.broker.protocol.api_keys import ApiKey
from rotunda.broker.protocol.error_codes import ErrorCode
from rotunda.broker.testing import RotundaBroker
from tests.support.deadline import wait_until
from tests.support.described_requests import ask, receive_answer, send_request
from tests.support.record_batches import record_batch
from tests.support.share_consumer import ShareConsumer
from tests.support.wire_client import WireClient

TOPIC, PARTITIONS = "orders", 8
HOUR_MS = 3_600_000
PRODUCE_VERSION = 9


@pytest.fixture(scope="module")
def broker() -> Iterator[RotundaBroker]:
    """Return a broker of several processors and handlers, with a topic."""
    with RotundaBroker({"num.network.threads": 2, "num.io.threads": 3}) as broker:
        broker.create_topic(TOPIC, PARTITIONS)
        yield broker


@pytest.fixture(autouse=True)
def no_faults(broker: RotundaBroker) -> Iterator[None]:
    yield
    broker.clear_faults()


@pytest.fixture
def wire(broker: RotundaBroker) -> Iterator[WireClient]:
    with connect(broker) as wire:
        yield wire


def connect(broker: RotundaBroker) -> WireClient:
    return WireClient(int(broker.bootstrap.rpartition(":")[2]))


def produce(*partitions: int, topic: str = TOPIC, acks: int = -1) -> dict[str, Any]:
    """Return a Produce of a record for each partition."""
    parts = [{"index": partition, "records": record_batch([b"x"])} for partition in partitions]
    return {"acks": acks, "timeout_ms": 1000, "topic_data": [{"name": topic, "partition_data": parts}]}


def error(answer: Any) -> int:
    return int(answer.responses[0].partition_responses[0].error_code)


def test_so_many_requests_fail_over_all_handlers_and_no_more(broker: RotundaBroker) -> None:
    """The failed records are not in the logs, and all others are."""
    times, clients, each = 50, 4, 60
    errors: Counter[int] = Counter()
    before = sum(ends(broker))
    fault = broker.fail("Produce", 6, times=times)

    def send(number: int) -> None:
        with connect(broker) as wire:
            for count in range(each):
                partition = (number + count) % PARTITIONS
                errors[error(ask(wire, ApiKey.PRODUCE, PRODUCE_VERSION, produce(partition)))] += 1

    threads = [threading.Thread(target=send, args=(number,)) for number in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == {6: times, 0: clients * each - times}
    assert fault.count == times
    assert sum(ends(broker)) - before == clients * each - times


def ends(broker: RotundaBroker) -> list[int]:
    with connect(broker) as wire:
        asked = [{"partition_index": partition, "timestamp": -1} for partition in range(PARTITIONS)]
        answer = ask(wire, ApiKey.LIST_OFFSETS, 5, {"topics": [{"name": TOPIC, "partitions": asked}]})
        return [part.offset for part in answer.topics[0].partitions]


def test_every_handler_knows_when_the_call_returns_and_when_it_is_taken_back(broker: RotundaBroker) -> None:
    with connect(broker) as wire:
        for _ in range(20):
            with broker.fail("Produce", 6):
                answers = [ask(wire, ApiKey.PRODUCE, PRODUCE_VERSION, produce(p)) for p in range(PARTITIONS)]
                assert {error(answer) for answer in answers} == {6}
            answers = [ask(wire, ApiKey.PRODUCE, PRODUCE_VERSION, produce(p)) for p in range(PARTITIONS)]
            assert {error(answer) for answer in answers} == {0}


def test_a_delay_holds_up_nobody_else_and_outlives_the_handlers(broker: RotundaBroker, wire: WireClient) -> None:
    """Delayed requests are done, and are in their processor: killing handlers neither loses nor doubles them."""
    before = ends(broker)
    with broker.delay("Produce", HOUR_MS, times=PARTITIONS) as fault:
        for partition in range(PARTITIONS):
            send_request(wire, ApiKey.PRODUCE, PRODUCE_VERSION, produce(partition))
        wait_until(lambda: fault.count == PARTITIONS, "the requests to be struck")
        with connect(broker) as other:
            assert error(ask(other, ApiKey.PRODUCE, PRODUCE_VERSION, produce(0))) == 0
        for handler in range(3):
            broker.kill("handler", handler)
    assert [error(receive_answer(wire, ApiKey.PRODUCE, PRODUCE_VERSION)) for _ in range(PARTITIONS)] == [0] * PARTITIONS
    assert sum(ends(broker)) - sum(before) == PARTITIONS + 1


def test_a_broker_that_stops_holds_no_response_back(tmp_path: Path) -> None:
    """A broker with a data directory to keep: the processes of another are killed."""
    with RotundaBroker(keep=tmp_path) as broker:
        broker.create_topic(TOPIC)
        fault = broker.delay("Produce", HOUR_MS)
        with connect(broker) as wire:
            send_request(wire, ApiKey.PRODUCE, PRODUCE_VERSION, produce(0))
            wait_until(lambda: fault.count == 1, "the request to be struck")
            broker.stop()
            assert error(receive_answer(wire, ApiKey.PRODUCE, PRODUCE_VERSION)) == 0


def test_a_replaced_handler_has_the_faults_of_its_predecessor(broker: RotundaBroker, wire: WireClient) -> None:
    broker.fail("Produce", 6, client="test")
    for handler in range(3):
        broker.kill("handler", handler)
    answers = [ask(wire, ApiKey.PRODUCE, PRODUCE_VERSION, produce(partition)) for partition in range(PARTITIONS)]
    assert {error(answer) for answer in answers} == {6}


def test_a_response_is_lost_after_the_work_and_a_request_before_it(broker: RotundaBroker) -> None:
    for when, written in (("before", 0), ("after", 1)):
        for acks in (-1, 0):
            before = ends(broker)[0]
            with broker.disconnect("Produce", when=when, times=1) as fault, connect(broker) as wire:
                send_request(wire, ApiKey.PRODUCE, PRODUCE_VERSION, produce(0, acks=acks))
                with pytest.raises(AssertionError):
                    wire.receive_frame()
            assert (fault.count, ends(broker)[0] - before) == (1, written), (when, acks)


def test_earlier_responses_leave_before_a_connection_is_cut(broker: RotundaBroker, wire: WireClient) -> None:
    with broker.disconnect("Heartbeat"):
        for partition in range(3):
            send_request(wire, ApiKey.PRODUCE, PRODUCE_VERSION, produce(partition))
        send_request(wire, ApiKey.HEARTBEAT, 4, {"group_id": "g", "member_id": "m", "generation_id": 1})
        for _ in range(3):
            assert error(receive_answer(wire, ApiKey.PRODUCE, PRODUCE_VERSION)) == 0
        with pytest.raises(AssertionError):
            wire.receive_frame()


def test_locks_of_a_share_group_run_out_at_its_next_fetch_and_no_later(broker: RotundaBroker, wire: WireClient) -> None:
    """Those of the named group only."""
    port = int(broker.bootstrap.rpartition(":")[2])
    [found] = ask(wire, ApiKey.METADATA, 12, {"topics": [{"topic_id": bytes(16), "name": TOPIC}]}).topics
    slow, quick, other = (ShareConsumer(port, group, found.topic_id, [0]) for group in ("shop", "shop", "another"))
    with closing(slow), closing(quick), closing(other):
        for each in (slow, quick, other):
            each.join(TOPIC).fetch(max_wait_ms=0)
        ask(wire, ApiKey.PRODUCE, PRODUCE_VERSION, produce(0))
        [(offset, last, count)] = slow.fetch()[0].acquired
        assert (other.fetch()[0].acquired, last, count) == ([(offset, offset, 1)], offset, 1)
        assert quick.fetch(max_wait_ms=0) == {}
        with pytest.raises(UsageError, match=r"unknown share group 'shpo'.*did you mean shop"):
            broker.expire_locks("shpo")
        with broker.expire_locks("shop") as fault:
            assert other.fetch(max_wait_ms=0) == {}
            assert quick.fetch()[0].acquired == [(offset, offset, 2)]
            assert slow.fetch(max_wait_ms=0) == {}
            assert fault.count == 1
        accept = [(0, offset, offset, [1])]
        assert slow.acknowledge(accept) == {0: ErrorCode.INVALID_RECORD_STATE}
        assert [each.acknowledge(accept) for each in (quick, other)] == [{0: 0}, {0: 0}]


def test_throttle_times_are_given_with_every_response_of_the_client(broker: RotundaBroker, wire: WireClient) -> None:
    with broker.throttle(client="test", ms=7) as fault:
        answer = ask(wire, ApiKey.PRODUCE, PRODUCE_VERSION, produce(0))
        assert answer.throttle_time_ms == 7
        answer = ask(wire, ApiKey.METADATA, 9, {"topics": []})
        assert answer.throttle_time_ms == 7
    assert fault.count == 2
    assert ask(wire, ApiKey.METADATA, 9, {"topics": []}).throttle_time_ms == 0
    rows = broker.requests(client_id="test", topic=TOPIC)
    assert rows[-1].injected == "throttle"


def test_faults_of_several_kinds_strike_together_and_of_one_kind_the_first(
    broker: RotundaBroker, wire: WireClient
) -> None:
    first, second = broker.fail("Produce", 6, times=1), broker.fail("Produce", 7, times=1)
    late = broker.delay("Produce", 20, times=1, topic=TOPIC)
    assert error(ask(wire, ApiKey.PRODUCE, PRODUCE_VERSION, produce(0))) == 6
    assert (first.count, second.count, late.count) == (1, 0, 1)
    assert error(ask(wire, ApiKey.PRODUCE, PRODUCE_VERSION, produce(0))) == 7
    assert error(ask(wire, ApiKey.PRODUCE, PRODUCE_VERSION, produce(0))) == 0
    struck = [row.injected for row in broker.requests("Produce", client_id="test")][-3:]
    assert struck == ["error+delay", "error", None]


def test_groups_are_struck_by_name(broker: RotundaBroker, wire: WireClient) -> None:
    fault = broker.fail("Heartbeat", "REBALANCE_IN_PROGRESS", group="mine")
    heartbeat = {"member_id": "m", "generation_id": 1}
    assert int(ask(wire, ApiKey.HEARTBEAT, 4, {**heartbeat, "group_id": "mine"}).error_code) == 27
    assert int(ask(wire, ApiKey.HEARTBEAT, 4, {**heartbeat, "group_id": "other"}).error_code) != 27
    assert fault.count == 1
    broker.fail("FindCoordinator", 15, group="mine", times=1)
    answer = ask(wire, ApiKey.FIND_COORDINATOR, 4, {"coordinator_keys": ["mine", "other"], "key_type": 0})
    assert {int(each.error_code) for each in answer.coordinators} == {15}
