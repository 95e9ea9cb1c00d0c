"""A queue simulated customer by customer (Lindley 1952): the reference for formulas."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Load:
    """The load of one server: arrivals per second, the mean service time in seconds, and the variation of both."""

    arrivals: float
    service_s: float
    arrival_variation: float = 1.0
    service_variation: float = 1.0


def served(chance: random.Random, load: Load, count: int) -> Iterator[tuple[float, float, float]]:
    """Yield the arrival time, waiting time and service time, in seconds, of each of so many customers."""
    gap = _varying(chance, 1 / load.arrivals, load.arrival_variation)
    service = _varying(chance, load.service_s, load.service_variation)
    time = free_at = 0.0
    for _ in range(count):
        time += gap()
        wait, length = max(0.0, free_at - time), service()
        free_at = time + wait + length
        yield time, wait, length


def _varying(chance: random.Random, mean: float, variation: float) -> Callable[[], float]:
    """Return a function that draws times of a mean and a squared coefficient of variation (0: always the mean)."""
    if variation == 0:
        return lambda: mean
    return lambda: chance.gammavariate(1 / variation, mean * variation)
