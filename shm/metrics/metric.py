"""A metric: its kind, name and description, as the catalogues declare it."""

from __future__ import annotations

from dataclasses import dataclass

COUNTER = "counter"
GAUGE = "gauge"
HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric: `line` describes it, `text` explains its use; `values` are those of its `label`.

    One with `keys` has a value for each combination of them that occurred, up to `slots`. `exposed` is its name in
    /metrics where that does not follow from the role and `name`.
    """

    name: str
    kind: str
    unit: str
    line: str
    text: str
    label: str = ""
    values: tuple[str, ...] = ("",)
    keys: tuple[str, ...] = ()
    slots: int = 0
    exposed: str = ""
