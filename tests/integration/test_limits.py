"""Limits of a real broker: excess is rejected or recycled, counted, and ends again."""

from tests.support.broker_process import BrokerProcess
from tests.support.coordinator_requests import INIT
from tests.support.deadline import wait_until
from tests.support.described_requests import ask
from tests.support.exposition import metrics
from tests.support.groups.requests import await_coordinators
from tests.support.wire_client import WireClient

BROKER_SETTINGS = {
    "num.network.threads": 1,
    "num.io.threads": 1,
    "group.state.max.bytes": 8 * 1024 * 1024,
    "transaction.state.max.bytes": 1024 * 1024,
    "group.min.session.timeout.ms": 500,
}
POLICY_VIOLATION = 44


def test_transactional_ids_have_a_limit(broker: BrokerProcess, wire: WireClient) -> None:
    await_coordinators(wire)
    codes = []
    for number in range(60):
        values = INIT | {"transactional_id": f"{number}-{'x' * 20_000}"}
        codes.append(ask(wire, 22, 4, values).error_code)
    assert set(codes) == {0, POLICY_VIOLATION}
    first = ask(wire, 22, 4, INIT | {"transactional_id": f"0-{'x' * 20_000}"})
    assert first.error_code == 0
    wait_until(lambda: metrics(broker, "rotunda_handler_transaction_state_refusals_total") > 0, "the metric")
