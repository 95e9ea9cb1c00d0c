"""Client hosts: found by connection id until another connection reuses the row."""

from __future__ import annotations

import pytest

from rotunda.shm.tables import client_hosts
from rotunda.shm.tables.client_hosts import ROWS, UNKNOWN, ClientHosts, ClientHostWriter, host_text, packed_host

PROCESSORS = 2


def connection(processor: int, counter: int, generation: int = 1) -> int:
    return processor << 48 | generation << 32 | counter


@pytest.fixture
def view() -> memoryview:
    return memoryview(bytearray(client_hosts.bytes_needed(PROCESSORS)))


@pytest.mark.parametrize("host", ["127.0.0.1", "10.1.2.3", "::1", "2001:db8::17"])
@pytest.mark.parametrize("processor", range(PROCESSORS))
def test_an_address_is_found_by_the_connection(view: memoryview, host: str, processor: int) -> None:
    hosts = ClientHosts(view.toreadonly(), PROCESSORS)
    writer = ClientHostWriter(view, processor)
    identity = connection(processor, ROWS + 5)
    assert hosts.of(identity) == UNKNOWN
    writer.put(identity, host)
    assert [hosts.of(identity) for _ in range(2)] == [f"/{host}"] * 2
    assert hosts.of(connection(1 - processor, ROWS + 5)) == UNKNOWN
    assert hosts.of(connection(processor, 5)) == UNKNOWN
    assert hosts.of(connection(processor, ROWS + 5, generation=2)) == UNKNOWN


@pytest.mark.parametrize(
    ("host", "told"), [("::ffff:10.1.2.3", "10.1.2.3"), ("fe80::1%eth0", "fe80::1"), ("0:0::1", "::1")]
)
def test_an_address_has_one_form(host: str, told: str) -> None:
    assert host_text(packed_host(host)) == told


def test_a_connection_has_ended_when_its_processor_says_so(view: memoryview) -> None:
    hosts = ClientHosts(view.toreadonly(), PROCESSORS)
    writer = ClientHostWriter(view, 1)
    first, second, crowded = connection(1, 7), connection(1, 7 + ROWS), connection(1, 7 + 2 * ROWS)
    for each, host in ((first, "10.0.0.1"), (crowded, "10.0.0.3")):
        writer.put(each, host)
    assert not any(map(hosts.has_ended, (first, second, crowded, connection(9, 7))))
    writer.end(crowded)
    assert not hosts.has_ended(first)
    writer.end(first)
    assert hosts.has_ended(first)
    writer.put(second, "10.0.0.2")
    assert not hosts.has_ended(second)
    writer.end(second)
    assert hosts.has_ended(second)
    assert not hosts.has_ended(crowded)


def test_a_row_outlives_its_connection_until_another_gets_it(view: memoryview) -> None:
    hosts = ClientHosts(view, PROCESSORS)
    writer = ClientHostWriter(view, 0)
    first, second = connection(0, 7), connection(0, 7 + ROWS)
    writer.put(first, "10.0.0.1")
    assert writer.is_used(second)
    writer.put(second, "10.0.0.2")
    assert (hosts.of(first), hosts.of(second)) == ("/10.0.0.1", UNKNOWN)
    writer.end(second)
    assert writer.is_used(second)
    writer.end(first)
    assert not writer.is_used(second)
    assert ClientHosts(view, PROCESSORS).of(first) == "/10.0.0.1"
    writer.put(second, "10.0.0.2")
    assert ClientHosts(view, PROCESSORS).of(first) == UNKNOWN
    assert hosts.of(second) == "/10.0.0.2"


def test_the_software_of_a_connection_is_found_until_another_has_its_row(view: memoryview) -> None:
    hosts = ClientHosts(view, PROCESSORS)
    writer = ClientHostWriter(view, 1)
    first, second = connection(1, 7), connection(1, 7 + ROWS)
    writer.introduce(first, "unconnected", "1")
    writer.put(first, "10.0.0.1")
    assert hosts.software_of(first) == ("", "")
    writer.introduce(first, "apache-kafka-java", "4.4.0")
    writer.introduce(second, "another", "1")
    assert (hosts.software_of(first), hosts.software_of(second)) == (("apache-kafka-java", "4.4.0"), ("", ""))
    writer.introduce(first, "x" * 255, "1")
    assert hosts.software_of(first) == ("x" * 64, "")
    writer.end(first)
    writer.put(second, "10.0.0.2")
    assert hosts.software_of(first) == hosts.software_of(second) == ("", "")
    assert hosts.of(second) == "/10.0.0.2"


def test_a_successor_has_all_rows(view: memoryview) -> None:
    ClientHostWriter(view, 1).put(connection(1, 3), "10.0.0.1")
    successor = ClientHostWriter(view, 1)
    assert not successor.is_used(connection(1, 3, generation=2))
    successor.put(connection(1, 3, generation=2), "10.0.0.2")
    hosts = ClientHosts(view, PROCESSORS)
    assert (hosts.of(connection(1, 3)), hosts.of(connection(1, 3, generation=2))) == (UNKNOWN, "/10.0.0.2")


@pytest.mark.parametrize("identity", [0, 5, PROCESSORS << 48, -1])
def test_what_is_no_connection_of_theirs_is_nowhere(view: memoryview, identity: int) -> None:
    assert ClientHosts(view, PROCESSORS).of(identity) == UNKNOWN


def test_what_is_remembered_has_a_limit(view: memoryview) -> None:
    hosts = ClientHosts(view, PROCESSORS)
    writer = ClientHostWriter(view, 0)
    identities = [connection(0, number) for number in range(ROWS)]
    for identity in identities:
        writer.put(identity, "10.0.0.1")
    assert {hosts.of(identity) for identity in (*identities, *identities)} == {"/10.0.0.1"}
