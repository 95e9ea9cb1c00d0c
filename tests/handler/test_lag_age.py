"""The age of unread records: from the timestamp of their batch, located once, and never estimated."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from rotunda.broker.partitions.lag_age import MOST_LOOKUPS, LagAges
from tests.support.record_batches import TIMESTAMP_MS, record_batch
from tests.support.stepped_broker import SteppedBroker
from tests.support.transactional import open_coordinator_topics, settled, started

NOW_MS = TIMESTAMP_MS + 10_000
TOPIC = "topic"


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[SteppedBroker]:
    """Return a broker with a topic of three batches of two records, a second apart."""
    broker = SteppedBroker(tmp_path, handlers=1)
    broker.create(TOPIC, 1, {"segment.bytes": "1048576"})
    client = broker.client()
    for number in range(3):
        batch = record_batch(values=[b"a", b"b"], timestamp_ms=TIMESTAMP_MS + number * 1000)
        client.produce([(TOPIC, 0, batch)])
        broker.settle()
    yield broker
    broker.close()


def times_of(broker: SteppedBroker, now_ms: int = NOW_MS) -> LagAges:
    return LagAges(broker.config.data_dir, broker.context.partitions, lambda: now_ms)


def ages(broker: SteppedBroker, times: LagAges, offsets: list[int]) -> list[float | None]:
    row = broker.partition(TOPIC, 0).row
    times.begin()
    found = [times.age_s((TOPIC, 0, row), offset, broker.context.partitions.read_position(row)) for offset in offsets]
    times.end()
    return found


def test_row_17_the_age_is_that_of_the_batch_that_holds_the_offset(broker: SteppedBroker) -> None:
    assert ages(broker, times_of(broker), [0, 1, 2, 4, 5]) == [10.0, 10.0, 9.0, 8.0, 8.0]


def test_a_time_in_the_future_is_no_age(broker: SteppedBroker) -> None:
    assert ages(broker, times_of(broker, TIMESTAMP_MS - 5), [0]) == [0.0]


def test_found_ages_are_cached(broker: SteppedBroker, tmp_path: Path) -> None:
    times = times_of(broker)
    assert ages(broker, times, [2, 4]) == [9.0, 8.0]
    for file in (tmp_path / "data" / f"{TOPIC}-0").glob("*.log"):
        file.rename(file.with_suffix(".gone"))
    assert ages(broker, times, [2]) == [9.0]
    # Entries unused by the last snapshot are dropped; records that cannot be located have no age.
    assert ages(broker, times, [4, 2]) == [None, 9.0]


def test_one_board_looks_up_so_many_and_the_next_one_more(broker: SteppedBroker) -> None:
    times = times_of(broker)
    row = broker.partition(TOPIC, 0).row
    end = broker.context.partitions.read_position(row)
    places = [(TOPIC, 0, row)] * MOST_LOOKUPS
    times.begin()
    for number, place in enumerate(places):
        times.age_s(place, number % 6, end)
    times.end()
    assert ages(broker, times, [0, 1, 2]) == [10.0, 10.0, 9.0]
    many = [(f"other-{number}", 0, row) for number in range(MOST_LOOKUPS)]
    times.begin()
    assert [times.age_s(place, 0, end) for place in many] == [None] * MOST_LOOKUPS
    assert times.age_s((TOPIC, 0, row), 0, end) == 10.0
    assert times.age_s((TOPIC, 0, row), 4, end) is None


def test_row_17_the_end_of_a_transaction_is_nothing_unread(tmp_path: Path) -> None:
    """A group that has read all records is up to date, with a transaction marker of any age after them."""
    broker = SteppedBroker(tmp_path, handlers=1)
    broker.create(TOPIC, 1)
    open_coordinator_topics(broker)
    producer = started(broker)
    for _ in range(2):
        settled(broker, producer.produce([(TOPIC, 0, b"a")]))
        assert producer.take(settled(broker, producer.end(commit=True))) == 0
    times = times_of(broker)
    assert broker.end(TOPIC, 0) == 4
    assert ages(broker, times, [0, 1, 2, 3]) == [10.0, 10.0, 10.0, 0.0]
    broker.client().produce([(TOPIC, 0, record_batch([b"b"], timestamp_ms=TIMESTAMP_MS + 6000))])
    broker.settle()
    assert ages(broker, times, [1, 3, 4]) == [10.0, 4.0, 4.0]
    broker.close()
