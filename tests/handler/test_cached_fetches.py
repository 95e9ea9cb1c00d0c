"""The cache of Fetch requests: used when only the offsets differ, in every version, and never wrongly."""

from __future__ import annotations

import pytest

from rotunda.broker.partitions.fetch.fetches import Fetches
from tests.support.fetches import FETCH_VERSIONS, Answered, append, fetched, send_fetch
from tests.support.stepped_broker import SteppedBroker


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list to which each parsed fetch appends its version."""
    seen: list[int] = []
    real = Fetches.handle

    def handle(path: Fetches, frame: object) -> None:
        seen.append(frame.api_version)  # type: ignore[attr-defined]
        real(path, frame)  # type: ignore[arg-type]

    monkeypatch.setattr(Fetches, "handle", handle)
    return seen


def fill(broker: SteppedBroker) -> None:
    """Append three records to each of two partitions, in batches of one."""
    for partition in (0, 1):
        for number in range(3):
            append(broker, partition, b"%d-%d" % (partition, number))


def expected(partition: int, offset: int) -> Answered:
    return Answered(partition, 0, [b"%d-%d" % (partition, number) for number in range(offset, 3)])


@pytest.mark.parametrize("version", FETCH_VERSIONS)
def test_only_the_first_fetch_of_a_connection_is_parsed(
    stepped: SteppedBroker, version: int, parsed: list[int]
) -> None:
    fill(stepped)
    client = stepped.client()
    wanted = [[(0, first), (1, second)] for first, second in ((0, 0), (1, 3), (3, 2), (2, 1))]
    sent = []
    for places in wanted:
        sent.append(send_fetch(stepped, client, version, places))
        stepped.settle()
    assert [fetched(each).parts for each in sent] == [[expected(*place) for place in places] for places in wanted]
    assert parsed == [version]
    beyond = send_fetch(stepped, client, version, [(0, 4), (1, 0)])
    stepped.settle()
    assert fetched(beyond).parts == [Answered(0, 1, []), expected(1, 0)]


def test_a_fetch_that_differs_in_anything_else_is_parsed_and_one_that_came_before_is_not(
    stepped: SteppedBroker, parsed: list[int]
) -> None:
    fill(stepped)
    client = stepped.client()
    wanted = [[(0, 0)], [(1, 0)], [(0, 1)], [(1, 1)], [(0, 0), (1, 0)]]
    sent = []
    for places in wanted:
        sent.append(send_fetch(stepped, client, 11, places))
        stepped.settle()
    assert [fetched(each).parts for each in sent] == [[expected(*place) for place in places] for places in wanted]
    assert len(parsed) == 3
    committed = send_fetch(stepped, client, 11, [(0, 0)], isolation_level=1)
    stepped.settle()
    assert fetched(committed).parts == [expected(0, 0)]
    assert len(parsed) == 4


def test_once_the_topics_have_changed_the_next_fetch_is_parsed(stepped: SteppedBroker, parsed: list[int]) -> None:
    """Its rows may belong to other partitions now."""
    fill(stepped)
    client = stepped.client()

    def fetch() -> list[Answered]:
        sent = send_fetch(stepped, client, 11, [(0, 0)])
        stepped.settle()
        return fetched(sent).parts

    assert [fetch(), fetch()] == [[expected(0, 0)]] * 2
    stepped.delete("topic")
    stepped.settle()
    stepped.create("topic", 2)
    stepped.settle()
    assert [fetch(), fetch()] == [[Answered(0, 0, [])]] * 2
    assert len(parsed) == 2
