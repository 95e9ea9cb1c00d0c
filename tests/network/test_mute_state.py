"""Mute causes are independent of each other."""

import itertools

import pytest

from rotunda.broker.network.processor.throttling.mute_state import MuteCause


@pytest.mark.parametrize(("first", "second"), list(itertools.permutations(MuteCause, 2)))
def test_b12_clearing_one_cause_never_lifts_another(first: MuteCause, second: MuteCause) -> None:
    both = first | second
    assert both & ~first == second
    assert both | first == both
    assert not both & ~first & ~second


def test_every_cause_is_a_bit_of_its_own() -> None:
    assert sum(MuteCause) == 2 ** len(MuteCause) - 1
