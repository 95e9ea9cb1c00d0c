"""Metrics pages: readers see each process's counts, also after the writer is replaced."""

import numpy as np
import pytest

from rotunda.shm.metrics.catalogue import PHASES
from rotunda.shm.metrics.process_metrics import OTHER_API_KEY, MetricsReader, MetricsSegment, MetricsWriter
from rotunda.shm.tables.process_slots import ACCEPTOR, CONTROLLER, HANDLER, PROCESSOR


@pytest.fixture
def pages() -> MetricsSegment:
    """Return the pages of two processors and two handlers."""
    made = MetricsSegment(memoryview(bytearray(MetricsSegment.bytes_needed(2, 2))), 2, 2)
    made.initialise()
    return made


def test_pages_know_whose_they_are(pages: MetricsSegment) -> None:
    read = [reader.read() for reader in pages.readers()]
    assert [(page.role, page.index) for page in read] == [
        ("acceptor", 0),
        ("processor", 0),
        ("processor", 1),
        ("handler", 0),
        ("handler", 1),
        ("controller", 0),
        ("cleaner", 0),
        ("recorder", 0),
        ("web", 0),
    ]
    with pytest.raises(KeyError):
        pages.page(PROCESSOR, 2)


def test_pages_do_not_overlap(pages: MetricsSegment) -> None:
    everyone = [(ACCEPTOR, 0), (PROCESSOR, 0), (PROCESSOR, 1), (HANDLER, 0), (HANDLER, 1), (CONTROLLER, 0)]
    for number, (role, index) in enumerate(everyone, 1):
        writer = MetricsWriter(pages.page(role, index))
        for word in range(8, len(writer.words)):
            writer.words[word] += number
    for number, (role, index) in enumerate(everyone, 1):
        assert set(MetricsWriter(pages.page(role, index)).words[8:].tolist()) == {number}
        assert pages.page(role, index).nbytes % 64 == 0


def test_counters_and_gauges(pages: MetricsSegment) -> None:
    page = pages.page(PROCESSOR, 1)
    writer = MetricsWriter(page)
    writer.start(3, 12345)
    sent = writer.index("bytes_sent")
    writer.add(sent, 10)
    writer.add(sent, 5)
    writer.add(writer.index("connections_closed", "idle"), 1)
    writer.set(writer.index("arena_free_bytes"), 4096)
    writer.set(writer.index("arena_free_bytes"), 8192)
    reading = MetricsReader(page).read()
    assert (reading.generation, reading.started_ns) == (3, 12345)
    assert {key: value for key, value in reading.values.items() if value} == {
        ("bytes_sent", ""): 15,
        ("connections_closed", "idle"): 1,
        ("arena_free_bytes", ""): 8192,
    }
    assert reading.phases == {}


@pytest.mark.parametrize(("name", "value"), [("bytes_sent", "x"), ("mutes", ""), ("phase_ns", ""), ("commits", "")])
def test_a_metric_that_the_role_does_not_have(pages: MetricsSegment, name: str, value: str) -> None:
    with pytest.raises(KeyError):
        MetricsWriter(pages.page(PROCESSOR, 0)).index(name, value)


def test_phases_one_by_one_and_by_the_array(pages: MetricsSegment) -> None:
    """The histograms of row `D14`."""
    page = pages.page(PROCESSOR, 0)
    writer = MetricsWriter(page)
    values = [0, 1, 63, 64, 10**6, 10**9, 1 << 50, -7]
    for value in values:
        writer.record(writer.phase(0, "queue"), value)
    for part in (values[:4], values[4:], []):
        keys = np.zeros(len(part), dtype=np.int64)
        writer.record_many(writer.slots(keys), "phase_ns", "send", np.array(part, dtype=np.int64))
    writer.record_many(writer.slots(np.array([18])), "phase_ns", "total", np.array([5], dtype=np.int64))
    reading = MetricsReader(page).read()
    assert set(reading.phases) == {(key, phase) for key in (0, 18) for phase in PHASES}
    one_by_one, by_the_array = reading.phases[0, "queue"], reading.phases[0, "send"]
    assert one_by_one == by_the_array
    assert (one_by_one.count, one_by_one.max) == (8, 1 << 50)
    assert one_by_one.sum == sum(max(value, 0) for value in values)
    assert reading.phases[18, "total"].count == 1
    assert reading.phases[18, "local"].count == 0


def test_a_successor_continues_counting(pages: MetricsSegment) -> None:
    page = pages.page(PROCESSOR, 0)
    for generation in (1, 2):
        writer = MetricsWriter(page)
        writer.start(generation, 0)
        writer.add(writer.index("requests_received"), 1)
        for key in (3, generation):
            writer.record(writer.phase(key, "total"), 100)
    reading = MetricsReader(page).read()
    assert reading.values["requests_received", ""] == 2
    assert {key: reading.phases[key, "total"].count for key in (1, 2, 3)} == {1: 1, 2: 1, 3: 2}


def test_more_api_keys_than_slots_share_the_last(pages: MetricsSegment) -> None:
    page = pages.page(PROCESSOR, 0)
    for _ in range(2):
        writer = MetricsWriter(page)
        for key in range(93):
            writer.record(writer.phase(key, "total"), key)
    counts = {
        key: histogram.count
        for (key, phase), histogram in MetricsReader(page).read().phases.items()
        if phase == "total"
    }
    assert counts == {**dict.fromkeys(range(31), 2), OTHER_API_KEY: 2 * (93 - 31)}


def test_histograms_of_other_metrics_stand_next_to_the_phases(pages: MetricsSegment) -> None:
    """Rows `D16`, `D17`: throttle time and request size by API."""
    page = pages.page(PROCESSOR, 0)
    writer = MetricsWriter(page)
    writer.record_many(writer.slots(np.array([1, 1])), "request_bytes", "", np.array([100, 200]))
    writer.record(writer.histogram("throttle_ns", 1), 7)
    writer.record(writer.phase(1, "total"), 9)
    found = MetricsReader(page).read().histograms
    assert (found["request_bytes", 1, ""].count, found["request_bytes", 1, ""].sum) == (2, 300)
    assert found["throttle_ns", 1, ""].max == 7
    assert found["phase_ns", 1, "total"].max == 9
    assert found["phase_ns", 1, "send"].count == 0


def test_keys_and_their_texts_survive_their_writer(pages: MetricsSegment) -> None:
    """Rows `C17`, `D18`: errors by API and code, connections by software."""
    page = pages.page(PROCESSOR, 1)
    for connections in (3, 5):
        writer = MetricsWriter(page)
        writer.table("request_errors").add((0, -1), 2)
        writer.table("request_errors").add((18, 35), 1)
        software = writer.texts.index("librdkafka\n2.8.0")
        writer.table("client_connections").replace({(0, software): connections})
    reading = MetricsReader(page).read()
    assert reading.tables["request_errors"] == {(0, -1): 4, (18, 35): 2}
    assert reading.tables["client_connections"] == {(0, 1): 5}
    assert reading.texts == {1: "librdkafka\n2.8.0"}
    with pytest.raises(KeyError):
        MetricsWriter(pages.page(HANDLER, 0)).table("request_errors")


def test_a_read_only_page_can_be_read(pages: MetricsSegment) -> None:
    page = pages.page(HANDLER, 1)
    MetricsWriter(page).add(MetricsWriter(page).index("commits"), 4)
    assert MetricsReader(memoryview(bytes(page))).read().values["commits", ""] == 4
