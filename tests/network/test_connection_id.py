"""Connection ids: packing, wrapping, text."""

import pytest

from rotunda.broker.ipc import connection_id


@pytest.mark.parametrize(
    ("processor", "generation", "counter"),
    [(0, 1, 0), (0, 0, 0), (3, 1, 7), (255, 65535, 4294967295)],
)
def test_an_id_is_split_into_its_parts(processor: int, generation: int, counter: int) -> None:
    identity = connection_id.make(processor, generation, counter)
    assert 0 <= identity < 2**63
    assert connection_id.processor_of(identity) == processor
    assert connection_id.generation_of(identity) == generation
    assert connection_id.counter_of(identity) == counter
    assert connection_id.text(identity) == f"{processor}-{generation}-{counter}"


def test_a_replacement_processor_makes_other_ids() -> None:
    """`B33`: a stale response finds no owner."""
    assert connection_id.make(1, 1, 5) != connection_id.make(1, 2, 5)


def test_parts_wrap_and_never_spill_over() -> None:
    assert connection_id.make(1, 65536, 2**32 + 3) == connection_id.make(1, 0, 3)


def test_b18_the_counter_starts_again_at_0_and_ids_in_use_at_once_differ() -> None:
    identities = [connection_id.make(2, 1, counter) for counter in range(2**32 - 3, 2**32 + 3)]
    assert [connection_id.counter_of(each) for each in identities] == [*range(2**32 - 3, 2**32), 0, 1, 2]
    assert len(set(identities)) == len(identities)
    assert {connection_id.processor_of(each) for each in identities} == {2}


def test_used_ids_are_skipped_a_bounded_number_of_times() -> None:
    received = {connection_id.make(1, 2, counter) for counter in (0, 1, 3)}
    new_id = connection_id.id_allocator(1, 2, received.__contains__)
    assert [connection_id.counter_of(new_id()) for _ in range(3)] == [2, 4, 5]
    new_id = connection_id.id_allocator(1, 2, lambda _: True)
    assert [connection_id.counter_of(new_id()) for _ in range(2)] == [
        connection_id.MOST_PASSED_OVER,
        2 * connection_id.MOST_PASSED_OVER + 1,
    ]
