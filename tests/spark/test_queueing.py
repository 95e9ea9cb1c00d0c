"""The arithmetic of queues against values that textbooks print, and against a queue that is simulated."""

import random

import pytest

from rotunda.spark.analysis.queueing import mean_wait, unthinned_variation
from tests.support.feeds import random_seed
from tests.support.simulated_queue import Load, served


@pytest.mark.parametrize(
    ("utilisation", "service", "arrival_variation", "service_variation", "wait"),
    [
        # M/M/1: 0.8 / 0.2 services (Kleinrock, 3.2); M/D/1 waits half as long (5.6).
        (0.8, 1.0, 1.0, 1.0, 4.0),
        (0.8, 1.0, 1.0, 0.0, 2.0),
        # M/E2/1: one service times (1 + 1/2) / 2.
        (0.5, 1.0, 1.0, 0.5, 0.75),
        # D/D/1 never waits, and without customers there is no waiting.
        (0.9, 1.0, 0.0, 0.0, 0.0),
        (0.0, 1.0, 1.0, 1.0, 0.0),
        # Bursts of variation 4 and exponential services: one service times 5 / 2.
        (0.5, 0.1, 4.0, 1.0, 0.25),
    ],
)
def test_waits_are_those_of_textbooks(
    utilisation: float, service: float, arrival_variation: float, service_variation: float, wait: float
) -> None:
    assert mean_wait(utilisation, service, arrival_variation, service_variation) == pytest.approx(wait)


def test_the_variation_of_a_sample_is_brought_back() -> None:
    # Poisson's arrivals stay Poisson's; a clock of which half is sampled at random has gaps of variation 1/2.
    assert unthinned_variation(1.0, 0.25) == 1.0
    assert unthinned_variation(0.5, 0.5) == 0.0


@pytest.mark.parametrize("variation", [0.0, 0.5, 1.0, 3.0])
@pytest.mark.parametrize("utilisation", [0.3, 0.7])
def test_a_simulated_queue_waits_as_long(variation: float, utilisation: float) -> None:
    seed = random_seed()
    print(f"seed {seed}")
    load = Load(arrivals=utilisation / 0.001, service_s=0.001, service_variation=variation)
    waits = [wait for _, wait, _ in served(random.Random(seed), load, 200_000)]
    assert sum(waits) / len(waits) == pytest.approx(mean_wait(utilisation, 0.001, 1.0, variation), rel=0.15)
