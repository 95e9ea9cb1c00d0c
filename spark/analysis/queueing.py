"""Queueing arithmetic: the mean wait for one server with a first-in first-out queue.

Pure; for numbers and for columns of them. Utilisation is the busy share of the server: arrivals by mean service.
Variation is the squared coefficient of variation of gaps between arrivals, or of services: variance by squared mean. 0
is a clock, 1 is Poisson arrivals and exponential service, higher values are bursts.
"""

from __future__ import annotations

from typing import Any


def mean_wait(utilisation: Any, service: Any, arrival_variation: Any, service_variation: Any) -> Any:
    """Return the mean wait before service, in the unit of the mean service, for a utilisation below 1.

    With Poisson arrivals it is exact: M/G/1, Pollaczek and Khinchine, λE[S²] / 2(1-λE[S]), where E[S²] is the squared
    mean service times one more than its variation (Kleinrock, Queueing Systems I, 1975, section 5.6). For others it is
    an approximation of G/G/1, the same with the variation of arrivals in place of the one (Kingman 1961 for heavy
    traffic; Allen, Probability, Statistics and Queueing Theory, 1990, section 5.8, after Cunneen).
    """
    return utilisation / (1 - utilisation) * (arrival_variation + service_variation) / 2 * service


def unthinned_variation(variation: Any, kept: Any) -> Any:
    """Return the variation of all arrivals, from the variation of a random sample in which `kept` is the probability.

    Exact for independent gaps: a gap between two sampled arrivals is a geometric number of original gaps.
    """
    return 1 + (variation - 1) / kept
