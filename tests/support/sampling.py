"""Tests of very many cases: a run has some of them, chosen by a seed; with ``--whole`` it has all."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from itertools import count
from typing import TypeVar

from tests.support.feeds import random_seed

Case = TypeVar("Case")


class Sampling:
    """Chooses cases; the seed is printed with a failure."""

    def __init__(self, is_whole: bool) -> None:
        self._is_whole = is_whole
        seed = random_seed()
        print(f"seed {seed}")
        self._chance = random.Random(seed)

    def walk(self, step: int) -> Iterator[int]:
        """Return numbers without end that are a third as dense as by this step, or by the step itself."""
        wide = step if self._is_whole else 3 * step
        return count(self._chance.randint(1, wide), wide)

    def one_in(self, number: int, cases: Sequence[Case]) -> Sequence[Case]:
        """Return every ``number``th case, from any of the first on."""
        return cases if self._is_whole else cases[self._chance.randrange(number) :: number]

    def some(self, number: int, cases: Sequence[Case]) -> Sequence[Case]:
        """Return so many cases, in their order."""
        if self._is_whole:
            return cases
        chosen = sorted(self._chance.sample(range(len(cases)), number))
        return [cases[place] for place in chosen]
