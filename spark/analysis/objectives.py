"""Service level objectives: the targets for requests in a TOML file, validated key by key.

Pure but for reading the file. An objective selects requests, defines bad ones, and has the share that must be good and
the window of its error budget.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rotunda.spark.failures import JobFailed
from rotunda.spark.time_range import duration_of

#: Keys that select requests, and the column of each.
CHOSEN_BY = {"api": "requestApiKeyName", "client": "clientId", "topic": "topic", "listener": "listener"}
_KEYS = ("name", *CHOSEN_BY, "latency", "target", "error-rate", "allowed-errors", "window")
_DEFAULT_WINDOW = "30d"
_MOST = 50
_MINUTE_US = 60_000_000


@dataclass(frozen=True, slots=True)
class Objective:
    """The share `target` of the selected requests must be good: within `latency_us`, or (None) without an error.

    `chosen` has the accepted values of each column; `allowed_errors` are names of errors that do not count.
    """

    name: str
    target: float
    latency_us: int | None
    window_us: int
    chosen: Mapping[str, tuple[str, ...]]
    allowed_errors: tuple[str, ...] = ()

    @property
    def budget(self) -> float:
        """The share of requests that may be bad."""
        return 1 - self.target


_DEFAULT_WINDOW_US = 30 * 86_400_000_000
#: Objectives where no file is named.
DEFAULT_OBJECTIVES = (
    Objective("produce is quick", 0.99, 50_000, _DEFAULT_WINDOW_US, {"requestApiKeyName": ("PRODUCE",)}),
    Objective("fetch is quick", 0.99, 100_000, _DEFAULT_WINDOW_US, {"requestApiKeyName": ("FETCH",)}),
    Objective(
        "nothing fails", 0.999, None, _DEFAULT_WINDOW_US, {},
        ("MEMBER_ID_REQUIRED", "REBALANCE_IN_PROGRESS", "NOT_LEADER_OR_FOLLOWER"),
    ),
)  # fmt: skip


def read_objectives(path: str) -> list[Objective]:
    """Return the objectives of a file. Raises JobFailed with the invalid key."""
    try:
        found = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise JobFailed(f"{path} cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise JobFailed(f"{path}: invalid TOML: {error}") from error
    try:
        return _objectives(found)
    except JobFailed as failure:
        raise JobFailed(f"{path}: {failure}") from failure


def _objectives(found: Mapping[str, Any]) -> list[Objective]:
    tables = found.get("objective")
    other = sorted(found.keys() - {"objective"})
    if other:
        raise JobFailed(f"unknown key {other[0]!r}; objectives are tables [[objective]]")
    if not isinstance(tables, list) or not tables or not all(isinstance(table, dict) for table in tables):
        raise JobFailed("no objectives; each is a table [[objective]]")
    if len(tables) > _MOST:
        raise JobFailed(f"there are {len(tables)} objectives; {_MOST} are the most")
    objectives = []
    for number, table in enumerate(tables, 1):
        try:
            objectives.append(_objective(table))
        except JobFailed as failure:
            raise JobFailed(f"objective {number}: {failure}") from failure
    names = [objective.name for objective in objectives]
    twice = sorted(name for name in set(names) if names.count(name) > 1)
    if twice:
        raise JobFailed(f"name: duplicate {twice[0]!r}")
    return objectives


def _objective(table: Mapping[str, Any]) -> Objective:
    for key in table:
        if key not in _KEYS:
            raise JobFailed(f"unknown key {key!r}; there are {', '.join(_KEYS)}")
    name = table.get("name")
    if not isinstance(name, str) or not name:
        raise JobFailed(f"name: {name!r} is not a valid name" if name is not None else "name is missing")
    chosen = {column: _names(table, key) for key, column in CHOSEN_BY.items() if key in table}
    if "requestApiKeyName" in chosen:
        chosen["requestApiKeyName"] = tuple(name.upper() for name in chosen["requestApiKeyName"])
    window_us = _length_us("window", table.get("window", _DEFAULT_WINDOW))
    if window_us % _MINUTE_US:
        raise JobFailed(f"window: {table['window']!r} is not a whole number of minutes")
    if ("latency" in table) == ("error-rate" in table):
        raise JobFailed(f"latency and error-rate: {name!r} needs one of the two")
    if "latency" in table:
        if "allowed-errors" in table:
            raise JobFailed("allowed-errors needs error-rate, and excludes latency")
        return Objective(name, _share(table, "target"), _length_us("latency", table["latency"]), window_us, chosen)
    if "target" in table:
        raise JobFailed("target needs latency, and excludes error-rate")
    allowed = _names(table, "allowed-errors") if "allowed-errors" in table else ()
    return Objective(name, 1 - _share(table, "error-rate"), None, window_us, chosen, allowed)


def _names(table: Mapping[str, Any], key: str) -> tuple[str, ...]:
    value = table[key]
    values = [value] if isinstance(value, str) else value
    if not isinstance(values, list) or not values or not all(isinstance(each, str) and each for each in values):
        raise JobFailed(f"{key}: {value!r} is neither a name nor a list of names")
    return tuple(values)


def _share(table: Mapping[str, Any], key: str) -> float:
    value = table.get(key)
    if value is None:
        raise JobFailed(f"{key} is missing")
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1:
        raise JobFailed(f"{key}: {value!r} is not a fraction between 0 and 1, such as 0.99")
    return float(value)


def _length_us(key: str, value: object) -> int:
    number = value[:-2] if isinstance(value, str) and value.endswith("ms") else ""
    if number.isascii() and number.isdecimal() and 0 < len(number) < 10 and int(number):
        return int(number) * 1000
    try:
        return int(duration_of(value if isinstance(value, str) else "").total_seconds()) * 1_000_000
    except JobFailed:
        raise JobFailed(f"{key}: {value!r} is not a duration, such as 50ms, 2s, 1h or 30d") from None
