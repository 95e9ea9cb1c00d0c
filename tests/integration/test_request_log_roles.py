"""The dataset `roles` of a running broker: its rows agree with the system and the clients."""

import os

import psutil

from tests.support.broker_process import BrokerProcess
from tests.support.deadline import wait_until
from tests.support.record_batches import record_batch
from tests.support.request_log import Start, rows
from tests.support.wire_client import WireClient, request_frame
from tests.support.wire_messages import API_VERSIONS, PRODUCE, PRODUCE_VERSION, create_topic, produce_body

#: More than a connection may have in flight.
PIPELINED = 3_000


def total(broker: BrokerProcess, column: str, role: str) -> int:
    """Return the sum of a column over all rows of a role."""
    return sum(row[column] for row in rows(broker, "roles") if row["role"] == role)


def test_rows_agree_with_the_system_and_the_clients(start: Start) -> None:
    broker = start(request_log_roles_interval_ms=1_000, num_network_threads=1, num_io_threads=1)
    batch = record_batch([b"x" * 100])
    with WireClient(broker.port) as client:
        create_topic(client, "told", 1)
        produced = request_frame(PRODUCE, PRODUCE_VERSION, 7, produce_body([("told", 0, batch)]))
        before = total(broker, "requests", "processor") if rows(broker, "roles") else 0
        client.send(produced * PIPELINED)
        client.receive_frames(PIPELINED)
        wait_until(lambda: total(broker, "recordsAppended", "handler") == PIPELINED, "rows of all that was appended")
        wait_until(lambda: not max(rows(broker, "roles"), key=lambda row: row["time"])["traffic"], "the last rows")
        running = {row["role"]: psutil.Process(row["pid"]) for row in broker.processes() if row["pid"]}
        usage = {role: process.cpu_times() for role, process in running.items()}
        memory = {role: process.memory_full_info().pss for role, process in running.items()}
    found = rows(broker, "roles")
    assert total(broker, "requests", "processor") >= before + PIPELINED
    assert total(broker, "requests", "handler") >= PIPELINED
    assert total(broker, "mutesPipeline", "processor") > 0
    assert total(broker, "bytesReceived", "processor") >= PIPELINED * len(produced)
    assert total(broker, "connectionsOpened", "processor") == total(broker, "connectionsOpened", "acceptor")
    assert 0 < total(broker, "commitTimeUs", "handler") <= sum(row["intervalUs"] for row in found)
    for role in ("processor", "handler"):
        used_us = (usage[role].user + usage[role].system) * 1e6
        assert 0 < total(broker, "cpuTimeUs", role) <= used_us
        *_, last = sorted((row for row in found if row["role"] == role), key=lambda row: row["time"])
        assert 0.5 < last["pssBytes"] / memory[role] < 2
        # The burst may be a fiftieth of the interval that it falls into, and that interval the last.
        assert 0 <= min(row["idleShare"] for row in found if row["role"] == role) < 1
        assert 0 < last["idleShare"] <= 1
        assert all(0 <= row["ringFill"] <= row["ringFillPeak"] <= 1 for row in found if row["role"] == role)
    assert {row["role"]: row["pid"] for row in found if row["traffic"] is False} == {
        row["role"]: row["pid"] or None for row in broker.processes()
    }
    assert {row["cpus"] for row in found} == {len(os.sched_getaffinity(broker.pid()))}


def test_an_orderly_stop_leaves_no_gap(start: Start) -> None:
    broker = start(request_log_roles_interval_ms=60_000)
    with WireClient(broker.port) as client:
        client.call(API_VERSIONS, 0)
        wait_until(lambda: rows(broker, "requests"), "the recorder has begun")
    expected = len(broker.processes())
    broker.stop()
    found = rows(broker, "roles")
    assert (len(found), {row["traffic"] for row in found}, rows(broker, "gaps")) == (expected, {True}, [])
