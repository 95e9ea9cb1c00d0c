"""Limits of a real broker: excess is rejected or recycled, counted, and ends again."""

from tests.support.broker_process import BrokerProcess
from tests.support.coordinator_requests import INIT
from tests.support.deadline import wait_until
from tests.support.described_requests import ask, send_request
from tests.support.exposition import Scraper, metrics
from tests.support.groups.requests import Member, await_coordinators
from tests.support.wire_client import WireClient

BROKER_SETTINGS = {
    "num.network.threads": 1,
    "num.io.threads": 1,
    "group.state.max.bytes": 8 * 1024 * 1024,
    "transaction.state.max.bytes": 1024 * 1024,
    "group.min.session.timeout.ms": 500,
}

SUBSCRIPTION_BYTES = 900_000
GROUP_MAX_SIZE_REACHED, POLICY_VIOLATION = 81, 44
MB = 1024 * 1024


def join(client: WireClient, group_id: str, session_ms: int) -> int:
    """Join a group of its own with large metadata; return the error."""
    said = bytes(SUBSCRIPTION_BYTES)
    return Member(client, group_id, metadata=said, session_ms=session_ms, asks_for_id=False).enter()


def test_groups_need_a_bounded_amount_of_memory_and_release_it(broker: BrokerProcess, wire: WireClient) -> None:
    await_coordinators(wire)
    position = broker.log_bytes()
    before = broker.resident_bytes("handler")
    codes = [join(wire, f"hoard-{number}", 6000) for number in range(40)]
    assert set(codes) == {0, GROUP_MAX_SIZE_REACHED}
    # Later ones may have the room of members whose session is over.
    assert 4 <= codes.index(GROUP_MAX_SIZE_REACHED) <= 9
    assert broker.resident_bytes("handler") - before < 60 * MB
    lines = [line for line in broker.log_since(position) if "group.state.max.bytes" in line]
    assert 1 <= len(lines) <= 3
    wait_until(lambda: metrics(broker, "rotunda_handler_group_state_refusals_total") >= codes.count(81), "the metric")
    # Silent members expire, and others have their room.
    wait_until(lambda: join(wire, "newcomer", 30_000) == 0, "room for another group")


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


def test_names_of_clients_leave_no_memory_allocated(broker: BrokerProcess) -> None:
    """Thousands of connections, each with names of its own, in rounds: the later ones add nothing."""

    def connect_many(first: int, count: int) -> None:
        for number in range(first, first + count):
            with WireClient(broker.port) as client:
                # ApiVersions of version 3, once with a name that is acceptable and once with one that is not.
                for software in (f"made-up-{number}", f"<{number}>"):
                    named = {"client_software_name": software, "client_software_version": f"{number}.0"}
                    send_request(client, 18, 3, named)
                client.receive_frames(2)

    def settled() -> tuple[int, int]:
        wait_until(lambda: metrics(broker, "rotunda_processor_connections") <= 2, "the end of the connections")
        return broker.resident_bytes("processor"), broker.resident_bytes("recorder")

    wait_until(lambda: metrics(broker, "rotunda_build_info") == 1, "the page")
    connect_many(0, 2000)
    wait_until(broker.has_loaded_everything, "what the recorder loads")
    before = settled()
    connect_many(10_000, 3000)
    after = settled()
    assert after[0] - before[0] < 8 * MB, "processor"
    assert after[1] - before[1] < 16 * MB, "recorder"
    # A name that arrives now has a metric of its own.
    with WireClient(broker.port) as client:
        ask(client, 18, 3, {"client_software_name": "librdkafka", "client_software_version": "2.8"})
        told = 'client_software_name="librdkafka"'
        wait_until(lambda: told in Scraper(broker).scrape().text, "the newcomer's name")
