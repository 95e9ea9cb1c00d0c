"""SIGKILL of a processor and of the supervisor (the other roles: test_exactness)."""

import os
import signal

from tests.support.broker_process import BrokerProcess
from tests.support.wire_client import WireClient
from tests.support.wire_messages import API_VERSIONS


def still_answers(client: WireClient) -> bool:
    try:
        client.call(API_VERSIONS, 0)
    except (AssertionError, OSError):
        return False
    return True


def test_a_processor_ends_only_its_own_connections(broker: BrokerProcess) -> None:
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
