"""A processor's counters, between its turns and on its page."""

import pytest

from rotunda.broker.network.accounting.client_registry import ClientRegistry
from rotunda.broker.network.accounting.completed_requests import CompletedRequests
from rotunda.broker.network.processor.processor_metrics import INTERVAL_NS, ProcessorMetrics
from rotunda.broker.network.processor.throttling.mute_state import MuteCause
from rotunda.broker.network.processor.tls.tls_listeners import TlsListeners
from rotunda.shm.metrics.catalogue import MUTE_CAUSES
from rotunda.shm.metrics.process_metrics import MetricsReader, MetricsSegment, MetricsWriter
from rotunda.shm.tables.process_slots import PROCESSOR
from tests.support.processor_bench import ARENA_BYTES, ProcessorBench

NO_TLS = TlsListeners(lambda: 0)


@pytest.fixture
def page() -> memoryview:
    pages = MetricsSegment(memoryview(bytearray(MetricsSegment.bytes_needed(1, 1))), 1, 1)
    pages.initialise()
    return pages.page(PROCESSOR, 0)


def finished() -> CompletedRequests:
    return CompletedRequests(ClientRegistry(lambda: 1, ()))


def values(page: memoryview) -> dict[tuple[str, str], int]:
    return MetricsReader(page).read().values


def test_the_page_is_due_after_its_interval_and_not_before(page: memoryview) -> None:
    metrics = ProcessorMetrics(MetricsWriter(page), 1000)
    assert not metrics.due(1000 + INTERVAL_NS - 1)
    assert metrics.due(1000 + INTERVAL_NS)


def test_d23_each_of_several_mutes_is_counted(page: memoryview) -> None:
    metrics = ProcessorMetrics(MetricsWriter(page), 0)
    metrics.muted(MuteCause.PIPELINE | MuteCause.ARENA | MuteCause.REFUSED)
    metrics.muted(MuteCause.PIPELINE)
    metrics.muted(MuteCause.NONE)
    counts = {cause: values(page)["mutes", cause] for cause in MUTE_CAUSES}
    assert counts == dict.fromkeys(MUTE_CAUSES, 0) | {"pipeline": 2, "arena": 1}


def test_b30_work_is_the_time_between_two_waits(page: memoryview) -> None:
    metrics = ProcessorMetrics(MetricsWriter(page), 1_000)
    metrics.polled(1_300, 1_900)
    metrics.polled(2_000, 2_050)
    with ProcessorBench() as bench:
        metrics.publish(3_000, finished(), (bench.reader, bench.responses, NO_TLS), 0)
    assert values(page)["io_ns", ""] == 400
    assert values(page)["io_wait_ns", ""] == 650


def test_a_replacement_continues_with_its_predecessors_counts() -> None:
    with ProcessorBench() as bench:
        for expected in (7, 14):
            metrics = ProcessorMetrics(MetricsWriter(bench.page), 0)
            bench.reader.counts.requests = 3
            metrics.publish(1, finished(), (bench.reader, bench.responses, NO_TLS), 5)
            bench.reader.counts.requests = 7
            metrics.publish(2, finished(), (bench.reader, bench.responses, NO_TLS), 6)
            assert bench.value("requests_received") == expected
            assert bench.value("connections") == 6


def test_the_arena_is_shown_as_it_is() -> None:
    with ProcessorBench() as bench:
        assert bench.sender.allocate(300 * 1024) is not None
        ProcessorMetrics(MetricsWriter(bench.page), 0).publish(
            1, finished(), (bench.reader, bench.responses, NO_TLS), 0
        )
        assert bench.value("arena_used_bytes") == 300 * 1024
        assert bench.value("arena_free_bytes") == ARENA_BYTES - 300 * 1024
