"""Each role but the handlers dies by SIGKILL: which clients may notice, which must not (handlers: test_exactness)."""

import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.support.broker_process import BrokerProcess
from tests.support.wire_client import WireClient
from tests.support.wire_messages import API_VERSIONS, create_topic, read_partition
from tests.support.writers import Writer, assert_exact

KILLS = 4


def still_answers(client: WireClient) -> bool:
    try:
        client.call(API_VERSIONS, 0)
    except (AssertionError, OSError):
        return False
    return True


@pytest.mark.parametrize("role", ["acceptor", "controller"])
def test_no_connection_notices_the_death_of(broker: BrokerProcess, wire: WireClient, topic: str, role: str) -> None:
    create_topic(wire, topic, 2)
    writers = [Writer(f"writer{n}", topic, [n % 2]) for n in range(4)]
    stop = threading.Event()
    with ThreadPoolExecutor(len(writers)) as pool:
        running = [pool.submit(writer.run, broker.port, stop) for writer in writers]
        try:
            for number in range(KILLS):
                broker.kill(role)
                with WireClient(broker.port) as late:
                    create_topic(late, f"{topic}-{number}")
        finally:
            stop.set()
        for future in running:
            future.result()
    for partition in range(2):
        assert_exact(read_partition(wire, topic, partition), partition, writers[partition::2])


def test_a_processor_takes_only_its_own_connections_with_it(broker: BrokerProcess) -> None:
    clients = [WireClient(broker.port) for _ in range(20)]
    assert all(still_answers(client) for client in clients)
    broker.kill("processor", 1)
    answering = [client for client in clients if still_answers(client)]
    assert len(answering) == 10
    for _ in range(4):
        with WireClient(broker.port) as late:
            assert still_answers(late)
    for client in clients:
        client.close()


def test_the_children_die_with_the_supervisor(broker_directory) -> None:
    """Nothing of the instance runs on, and the next start cleans up after it."""
    own = BrokerProcess(broker_directory).start()
    assert own.child_pids()
    os.kill(own.pid(), signal.SIGKILL)
    own.assert_no_process_left()
    own.start()
    own.stop()
