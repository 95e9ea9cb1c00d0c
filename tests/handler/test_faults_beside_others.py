"""A fault on one request, partition or response does not affect any other (``B22``, ``E08``)."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from rotunda.broker.coordinator.coordinator_log import CoordinatorLog
from rotunda.broker.coordinator.transaction.shard import TransactionShard
from rotunda.broker.coordinator.transaction.transaction import TransactionMetadata
from rotunda.broker.handler.group_fast_path import CommitResponses
from rotunda.broker.ipc.request import Request, RequestDecoder
from rotunda.broker.ipc.request_channel import CLOSE_CONNECTION
from rotunda.broker.ipc.response_writer import ResponseWriter
from rotunda.broker.log.log_manager import LogManager
from rotunda.broker.log.partition_log import PartitionLog
from rotunda.broker.native import compiled
from rotunda.broker.partitions.produce import produce
from rotunda.broker.partitions.produce_response import ProduceResponseTemplate
from tests.support.answered_request import answered_request
from tests.support.fakes import failing
from tests.support.stepped_broker import Client, Sent, SteppedBroker, batch_for, produced

STORAGE_ERROR = 56


def only_for(client: Client, real: Callable[..., object], position: int) -> Callable[..., object]:
    """Return ``real``, patched to fail for the last request of a client; ``position``: of its correlation id."""

    def faulty(*args: object) -> object:
        if args[position] == len(client.sent) - 1:
            raise ZeroDivisionError("ours")
        return real(*args)

    return faulty


def numbered(stepped: SteppedBroker, partition: int, count: int = 3) -> list[Client]:
    """Return connections with different numbers of sent requests, so that correlation ids identify them."""
    clients = [stepped.client() for _ in range(count)]
    for number, client in enumerate(clients, 1):
        for _ in range(number):
            client.produce([batch_for(partition, b"before")])
    stepped.settle()
    return clients


def fast_produces(stepped: SteppedBroker, monkeypatch: pytest.MonkeyPatch) -> tuple[list[Client], list[Sent]]:
    """Send a Produce of one partition on each of three connections, whose responses compiled code leaves to its twin.

    Their bytes are too few for a base offset.
    """
    monkeypatch.setattr(ProduceResponseTemplate, "offset_at", 0)
    partition = stepped.owned_by("topic", 0)[0]
    clients = numbered(stepped, partition)
    return clients, [client.produce([batch_for(partition, b"a")]) for client in clients]


def test_a_response_that_cannot_be_made_closes_its_connection_and_the_others_are_given(
    stepped: SteppedBroker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """On the general path. Its memory is released as well: a hold without an end would block the ring for all."""
    own, foreign = (stepped.owned_by("topic", owner)[0] for owner in (0, 1))
    clients = numbered(stepped, own)
    sent = [client.produce([batch_for(own, b"a"), batch_for(foreign, b"b")]) for client in clients]
    faulty = only_for(clients[1], produce.encode_produce_response, 1)
    monkeypatch.setattr(produce, "encode_produce_response", faulty)
    stepped.settle()
    assert [each.answer.kind == CLOSE_CONNECTION for each in sent] == [False, True, False]
    assert [code for each in (sent[0], sent[2]) for code, _ in produced(each)] == [0] * 4
    assert stepped.released(0, sent[0].target)
    assert stepped.handler(sent[0].target).wait_ms() == 300
    assert "ours" in caplog.text


def test_a_response_of_the_fast_way_that_cannot_be_made_costs_no_other(
    stepped: SteppedBroker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    clients, sent = fast_produces(stepped, monkeypatch)
    try_put = ResponseWriter.try_put

    def faulty(writer: ResponseWriter, request: Request, *rest: object) -> int:
        if request.connection_id == clients[0].connection:
            raise ZeroDivisionError("ours")
        return try_put(writer, request, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(ResponseWriter, "try_put", faulty)
    stepped.settle()
    assert [each.answer.kind == CLOSE_CONNECTION for each in sent] == [True, False, False]
    assert [code for each in sent[1:] for code, _ in produced(each)] == [0, 0]
    assert "ours" in caplog.text


@pytest.mark.skipif(compiled is None, reason="only requests of compiled code are read again")
def test_a_request_that_cannot_be_read_again_costs_no_other(
    stepped: SteppedBroker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Its connection is closed: later responses of it would wait for one that never comes."""
    clients, sent = fast_produces(stepped, monkeypatch)
    read_again = RequestDecoder.read_again

    def faulty(*args: Any) -> Request:
        request = read_again(*args)
        if request.connection_id == clients[0].connection and "ours" not in caplog.text:
            raise ZeroDivisionError("ours")
        return request

    with monkeypatch.context() as patch:
        patch.setattr(RequestDecoder, "read_again", faulty)
        stepped.run_once(0)
    stepped.drain()
    partition = stepped.owned_by("topic", 0)[0]
    later = [client.produce([batch_for(partition, b"b")]) for client in clients]
    stepped.settle()
    assert [each.answer.kind == CLOSE_CONNECTION for each in sent] == [True, False, False]
    assert [produced(each) for each in (*sent[1:], *later)] == [[(0, offset)] for offset in range(7, 12)]
    assert stepped.released(0, 0)
    assert "ours" in caplog.text


@pytest.mark.parametrize("known", [False, True])
def test_a_fault_at_the_commit_of_one_partition_costs_no_other_its_records(
    stepped: SteppedBroker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, known: bool
) -> None:
    """Batches staged there are in doubt, so the partition rejects appends; a restart recovers the published end."""
    broken, good = stepped.owned_by("topic", 0)[:2]
    clients = {partition: stepped.client() for partition in (broken, good)}
    if known:
        for partition, client in clients.items():
            client.produce([batch_for(partition, b"before")])
        stepped.settle()
    commit = PartitionLog.commit

    def faulty(log: PartitionLog) -> bool:
        if log.name.partition == broken:
            raise ZeroDivisionError("ours")
        return commit(log)

    sent = {p: client.produce([batch_for(p, b"a")]) for p, client in clients.items()}
    with monkeypatch.context() as patch:
        patch.setattr(PartitionLog, "commit", faulty)
        stepped.run_once(0)
        stepped.drain()
    assert [produced(sent[p])[0][0] for p in (broken, good)] == [STORAGE_ERROR, 0]
    later = clients[broken].produce([batch_for(broken, b"later")])
    stepped.settle()
    assert produced(later)[0][0] == STORAGE_ERROR
    assert "ours" in caplog.text
    stepped.replace(0)
    again = clients[broken].produce([batch_for(broken, b"again")])
    stepped.settle()
    assert produced(again)[0][0] == 0
    assert stepped.values("topic", broken) == [b"before"] * known + [b"again"]


def test_a_failed_response_to_an_offset_commit_affects_no_later_commit(
    stepped: SteppedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    clients = [stepped.client() for _ in range(2)]
    sent = [client.produce([("topic", 77, b"")], acks=1) for client in clients]
    broken: Any = SimpleNamespace(facts=None)
    committers = [(answered_request(client.connection, api=(8, 8)), broken) for client in clients]
    handler = stepped.handler(0)
    CommitResponses(handler._responses, handler.now_ns).send_repeated(committers, 0)
    stepped.run_once(0)
    stepped.drain()
    assert [each.answer.kind for each in sent] == [CLOSE_CONNECTION] * 2
    assert "an offset commit" in caplog.text


def test_responses_from_before_a_fault_are_sent(stepped: SteppedBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """The requests already read continue in the next turn, and their memory is still held."""
    partition = stepped.owned_by("topic", 0)[0]
    client = stepped.client()
    sent = client.produce([batch_for(partition, b"a")])
    stepped.clock.advance_ns(1_000_000_000)
    with monkeypatch.context() as patch:
        patch.setattr(LogManager, "tick", failing(ZeroDivisionError("ours")))
        with pytest.raises(ZeroDivisionError):
            stepped.run_once(0)
    stepped.drain()
    assert produced(sent) == [(0, 0)]
    assert not stepped.released(0, 0)
    again = client.produce([batch_for(partition, b"b")])
    stepped.settle()
    assert produced(again) == [(0, 1)]
    assert stepped.released(0, 0)


@pytest.mark.parametrize("end", ["committed", "closed"])
def test_a_fault_of_one_init_producer_id_leaves_no_other_without_a_response(
    end: str, caplog: pytest.LogCaptureFixture
) -> None:
    staged: list[Callable[[int, int, int], None]] = []
    log = CoordinatorLog("__transaction_state", 0, lambda _, answer: staged.append(answer), lambda: 0)
    shard = TransactionShard(log, lambda _: iter(()))  # type: ignore[arg-type, return-value]
    fault = failing(ZeroDivisionError("ours"))
    told: list[int] = []
    transaction = shard.write("id", TransactionMetadata(1, 0, 1, 0), 0, fault)
    shard.when_committed(transaction, fault)
    shard.when_committed(transaction, told.append)
    transaction.at_end = [fault, told.append]
    log.flush()
    if end == "committed":
        staged[0](0, 0, 0)
        assert told == [0]
    else:
        for _ in shard.close():
            pass
        assert told == [16, 16]
    assert "ours" in caplog.text
