"""The comparison: the figures of a case for Rotunda, Kafka and the ruler, turn by turn, and the two tables made of it.

Knows neither how anything is measured nor which programs there are.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

from ops.benchmarks import processor_time
from ops.benchmarks.processor_time import Spent
from ops.benchmarks.report import SHORT, markdown

ROTUNDA, KAFKA, RULER = "Rotunda", "Kafka", "ruler"
SERVERS = (ROTUNDA, KAFKA, RULER)
#: Parts of a server with less than this many microseconds a request are left out.
_LEAST_US = 0.05


@dataclass
class Side:
    """One server in one case: the figure of each turn, and the processor time of its parts over all of them."""

    found: list[float] = field(default_factory=list)
    requests: float = 0.0
    spent: dict[str, Spent] = field(default_factory=dict)

    def add(self, found: float, requests: float, spent: Mapping[str, Spent]) -> None:
        self.found.append(found)
        self.requests += requests
        self.spent = processor_time.added(self.spent, spent)


@dataclass(frozen=True)
class Comparison:
    """One line of the table. Where `less_is_better`, the ratio is Kafka's figure to Rotunda's."""

    title: str
    unit: str
    sides: Mapping[str, Side]
    expected_ratio: float | None
    less_is_better: bool = False
    decimals: int = 0

    def ratios(self) -> list[float]:
        """Return the ratio of each turn, none without Kafka; more is better for Rotunda."""
        if KAFKA not in self.sides:
            return []
        pairs = zip(self.sides[ROTUNDA].found, self.sides[KAFKA].found, strict=True)
        return [kafka / ours if self.less_is_better else ours / kafka for ours, kafka in pairs]

    def falls_short(self) -> bool:
        """Return whether the median ratio is below the expected one."""
        ratios = self.ratios()
        return bool(ratios) and self.expected_ratio is not None and median(ratios) < self.expected_ratio

    def summary(self) -> str:
        """Return the figures in a line for the terminal."""
        rates = ", ".join(f"{name} {self._figure(name)}" for name in SERVERS if name in self.sides)
        return f"{self.title}: {rates} {self.unit}; ratio {self._ratio() or 'unknown'}"

    def row(self) -> list[str]:
        """Return the cells of the first table, the unit in one of them."""
        expected = "" if self.expected_ratio is None else f"≥ {self.expected_ratio:g}"
        if self.falls_short():
            expected += f": {SHORT}"
        ours, *others = (self._figure(name) for name in SERVERS)
        return [self.title, f"{ours} {self.unit}".strip(), *others, self._ratio(), expected]

    def cost_row(self) -> list[str]:
        return [self.title, *(_cost(self.sides.get(name, Side())) for name in (ROTUNDA, KAFKA))]

    def _figure(self, name: str) -> str:
        if name not in self.sides:
            return ""
        return f"{median(self.sides[name].found):,.{self.decimals}f}"

    def _ratio(self) -> str:
        ratios = self.ratios()
        if not ratios:
            return ""
        return f"{median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"


def tables(found: Sequence[Comparison]) -> str:
    rates = markdown(
        ["what", *SERVERS, "Rotunda to Kafka, median of turns (least to most)", "expected on 2 cores"],
        [each.row() for each in found],
    )
    costs = markdown(
        ["µs of processor time a request, or 1,000 records of librdkafka: user + system", ROTUNDA, KAFKA],
        [each.cost_row() for each in found if each.sides[ROTUNDA].requests],
    )
    return f"{rates}\n\n{costs}"


def _cost(side: Side) -> str:
    """Return a server's processor time for a request: the whole, and its parts when there are several."""
    if not side.requests:
        return ""
    a_request = {part: Spent(*(1e6 * s / side.requests for s in spent)) for part, spent in side.spent.items()}
    whole = Spent(sum(spent.user for spent in a_request.values()), sum(spent.system for spent in a_request.values()))
    parts = [f"{part} {_sum(spent)}" for part, spent in a_request.items() if sum(spent) >= _LEAST_US]
    return f"{_sum(whole)}" + (f" ({', '.join(parts)})" if len(a_request) > 1 and parts else "")


def _sum(spent: Spent) -> str:
    digits = 1 if sum(spent) < 100 else 0
    return f"{spent.user:,.{digits}f} + {spent.system:,.{digits}f}"
