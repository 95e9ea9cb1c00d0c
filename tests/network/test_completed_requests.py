"""The phases of completed requests, computed from their timestamps."""

import socket

import pytest

from rotunda.broker.network.accounting.client_registry import ClientRegistry
from rotunda.broker.network.accounting.completed_requests import CompletedRequests
from rotunda.broker.network.processor.channel import Channel, Completion
from rotunda.broker.protocol.api_keys import ApiKey
from rotunda.shm.metrics.catalogue import PHASES
from rotunda.shm.metrics.process_metrics import MetricsReader, MetricsReading, MetricsSegment, MetricsWriter
from rotunda.shm.recorder_layout import REQUEST_ROW
from rotunda.shm.tables.process_slots import PROCESSOR

METADATA = int(ApiKey.METADATA)

#: (api key, received, dequeued, local complete, response complete, response dequeued)
Stamps = tuple[int, int, int, int, int, int]


def responded(stamps: Stamps) -> Completion:
    """Return a processor's record of a response with these stamps."""
    api_key, received, dequeued, local, complete, taken = stamps
    names = ("received_ns", "dequeued_ns", "local_complete_ns", "response_complete_ns", "api_key")
    known = dict(zip(names, (received, dequeued, local, complete, api_key), strict=True))
    row = REQUEST_ROW.struct.pack(*(known.get(field.name, 0) for field in REQUEST_ROW.fields))
    return row[: REQUEST_ROW.offset("client")], taken


@pytest.fixture
def page() -> memoryview:
    pages = MetricsSegment(memoryview(bytearray(MetricsSegment.bytes_needed(1, 1))), 1, 1)
    pages.initialise()
    return pages.page(PROCESSOR, 0)


def flushed(page: memoryview, rows: list[Stamps], end_ns: int) -> MetricsReading:
    clients = ClientRegistry(lambda: 7, (("PLAINTEXT", "PLAINTEXT"),))
    finished = CompletedRequests(clients)
    with socket.socket() as sock:
        channel = Channel(sock, 1, 1, 0, "peer")
        clients.connected(channel)
        channel.completions = [responded(row) for row in rows]
        finished.add(channel, end_ns)
    finished.flush(MetricsWriter(page))
    assert len(finished) == 0
    return MetricsReader(page).read()


def test_d14_the_phases_are_the_gaps_between_the_stamps(page: memoryview) -> None:
    """Row D15 is in the targets' stamps: here they are used unchanged. D16: throttle time is in none of them."""
    stamps: Stamps = (METADATA, 1_000, 1_100, 1_300, 1_700, 2_500)
    reading = flushed(page, [stamps], 4_100)
    sums = {phase: reading.phases[METADATA, phase].sum for phase in PHASES}
    assert sums == {
        "queue": 100,
        "local": 200,
        "remote": 400,
        "response_queue": 800,
        "send": 1_600,
        "total": 3_100,
    }


def test_d14_negative_durations_count_as_nothing(page: memoryview) -> None:
    reading = flushed(page, [(METADATA, 1_000, 900, 800, 1_700, 1_600)], 1_500)
    assert reading.phases[METADATA, "queue"].sum == 0
    assert reading.phases[METADATA, "send"].sum == 0
    assert reading.phases[METADATA, "total"].sum == 500


def test_d21_rows_are_counted_by_api_when_they_are_finished(page: memoryview) -> None:
    rows: list[Stamps] = [(key, 1, 2, 3, 4, 5) for key in (0, 1, 1, 3, 3, 3)]
    reading = flushed(page, rows, 6)
    assert [reading.phases[key, "total"].count for key in (0, 1, 3)] == [1, 2, 3]


def test_unknown_api_keys_need_no_room_on_the_page(page: memoryview) -> None:
    made_up = [-32768, -2, -1, 5000, *range(1000, 1050)]
    reading = flushed(page, [(key, 1, 2, 3, 4, 5) for key in (*made_up, METADATA)], 6)
    assert {key for key, _ in reading.phases} == {METADATA}
