"""Two loads in short alternating turns, which cancels out other load of the machine.

Each turn of the one is compared with the mean of the two turns of the other around it.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from itertools import pairwise
from statistics import median
from typing import TypeVar

Found = TypeVar("Found")

#: Turns in the time of one whole load.
PER_LOAD = 2


def count(rounds: int) -> int:
    """Return the number of turns of the one load, for this many rounds of whole loads of both."""
    return rounds * 2 * PER_LOAD


def alternate(turns: int, one: Callable[[], Found], other: Callable[[], Found]) -> tuple[list[Found], list[Found]]:
    """Return the results of this many turns of the one, and of one more of the other, which is first and last."""
    ones: list[Found] = []
    others = [other()]
    for _ in range(turns):
        ones.append(one())
        others.append(other())
    return ones, others


def beside(
    turns: int, crowd: Callable[[], AbstractContextManager[object]], measure: Callable[[], Found]
) -> tuple[list[Found], list[Found]]:
    """Return the results of a measurement inside of a block, and without it, in turns."""

    def inside() -> Found:
        with crowd():
            return measure()

    return alternate(turns, inside, measure)


def ratio(ones: Sequence[float], others: Sequence[float]) -> float:
    return median(2 * each / sum(around) for each, around in zip(ones, pairwise(others), strict=True))


def difference(ones: Sequence[float], others: Sequence[float]) -> float:
    return median(each - sum(around) / 2 for each, around in zip(ones, pairwise(others), strict=True))
