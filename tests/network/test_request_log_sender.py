"""A processor's rows in its recorder ring: each request once, with its own client id, and without blocking."""

from collections.abc import Iterator

import pytest

from rotunda.broker.request_log.names import Clients as Names
from rotunda.broker.request_log.ring_reader import Intake, TakenFrames
from rotunda.shm.recorder_layout import REQUEST_ROW
from rotunda.shm.rings.recorder_rings import RecorderFeed, Retention
from tests.support.processor_bench import ProcessorBench
from tests.support.wire_client import sized

API_VERSIONS = 18
FIELDS = [field.name for field in REQUEST_ROW.fields]


@pytest.fixture
def bench() -> Iterator[ProcessorBench]:
    with ProcessorBench() as made:
        made.recorder.settings().store(
            enabled=True, sample_interval=1, slow_ns=10**9, rows_per_second=0, retention=Retention()
        )
        yield made


def frame(correlation_id: int, client_id: bytes, version: int = 0, body: bytes = b"") -> bytes:
    head = b"".join(number.to_bytes(size, "big") for number, size in ((API_VERSIONS, 2), (version, 2)))
    head += correlation_id.to_bytes(4, "big") + len(client_id).to_bytes(2, "big")
    return sized(head + client_id + body)


class Reported:
    """The recorder's input: rows by correlation id with the client's names, and connection events."""

    def __init__(self, bench: ProcessorBench) -> None:
        bench.clock.advance_ms(600)
        bench.run_once()
        self.names = Names()
        intake = Intake(bench.recorder, self.names)
        received: list[TakenFrames] = intake.take()
        intake.release()
        rows = [row for each in received if each.rows is not None for row in each.rows]
        self.clients = {int(row["correlation_id"]): self.names.get(int(row["client"])) for row in rows}
        self.count = len(rows)
        self.events = [event for each in received if each.connections is not None for event in each.connections]


def test_each_request_is_reported_under_the_name_it_was_sent_with(bench: ProcessorBench) -> None:
    """The client id changes while earlier requests are in flight; they retain theirs.

    No client has authenticated: `H06`.
    """
    client = bench.connect()
    names = [b"a", b"a", b"b", b"c", b"c", b"a"]
    client.send(b"".join(frame(number, name) for number, name in enumerate(names)))
    requests = bench.requests(len(names))
    for request in reversed(requests):
        bench.targets[0].answer(request, b"answer")
    client.receive(len(names) * len(b"answer"))
    reported = Reported(bench)
    assert [(reported.clients[n].client_id or "").encode() for n in range(len(names))] == names
    assert reported.count == len(names)
    assert {reported.clients[n].principal for n in range(len(names))} == {"User:ANONYMOUS"}


def test_software_is_known_from_the_request_that_names_it(bench: ProcessorBench) -> None:
    client = bench.connect()
    client.send(frame(1, b"me"))
    client.send(frame(2, b"me", 3, b"\x00\x04lib\x041.0\x00"))
    client.send(frame(3, b"me", 3, b"\x00\xff\xff\xff\xff\xff"))
    for request in bench.requests(3):
        bench.targets[0].answer(request, b"x")
    client.receive(3)
    reported = Reported(bench)
    assert reported.clients[3].software_name == reported.clients[2].software_name == "lib"
    assert (reported.clients[2].software_version, reported.clients[2].client_id) == ("1.0", "me")
    assert reported.clients[2].connection == reported.clients[1].connection


def test_d21_a_request_of_a_disconnected_client_is_reported_with_its_response(bench: ProcessorBench) -> None:
    client = bench.connect()
    client.send(frame(1, b"gone") + frame(2, b"gone"))
    first, second = bench.requests(2)
    bench.targets[0].answer(first, b"one")
    client.receive(3)
    client.sock.close()
    bench.wait_closed(client)
    bench.targets[0].answer(second, b"two")
    bench.run_once()
    reported = Reported(bench)
    assert {n: reported.clients[n].client_id for n in (1, 2)} == {1: "gone", 2: "gone"}
    assert [int(event["cause"]) for event in reported.events] == [-1, 0]
    assert int(reported.events[1]["requests"]) == 1


def test_a_replacement_counts_the_rows_in_its_predecessors_memory(bench: ProcessorBench) -> None:
    client = bench.connect()
    for number in range(5):
        client.send(frame(number, b"me"))
        (request,) = bench.requests(1)
        bench.targets[0].answer(request, b"x")
        client.receive(1)
    # The kernel closes the descriptors of a killed process.
    for channel in bench.processor._by_id.values():
        channel.sock.close()
    bench.replace_processor(generation=2)
    account = bench.recorder.account(0)
    assert (account.get("rows_taken"), account.get("rows_lost"), account.get("rows_pushed")) == (5, 5, 0)
    bench.replace_processor(generation=3)
    assert account.get("rows_lost") == 5


def test_a_full_ring_never_waits(bench: ProcessorBench) -> None:
    feed = RecorderFeed(bench.recorder, 0)
    filler = bytes(feed.largest_bytes // 2)
    while feed.try_push((0, b""), (0, b""), (0, filler)):
        pass
    feed.publish()
    client = bench.connect()
    client.send(frame(1, b"me"))
    (request,) = bench.requests(1)
    bench.targets[0].answer(request, b"x")
    client.receive(1)
    bench.clock.advance_ms(600)
    bench.run_once()
    account = bench.recorder.account(0)
    assert account.get("rows_dropped") + account.get("rows_pushed") + account.get("rows_skipped") == 1
