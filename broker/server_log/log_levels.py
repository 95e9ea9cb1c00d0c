"""The levels of loggers that an admin sets while the broker runs (KIP-412): their names, and how they are applied.

Each process applies the levels in its view of the metadata. Loggers are named after the modules that write lines, and
their parents after the packages; a logger without a level of its own has that of its parent. Levels are Kafka's.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType

import rotunda

ROOT = "root"
#: Of the root, from the start.
DEFAULT = "INFO"
#: Kafka's levels, and their Python equivalents.
LEVELS: Mapping[str, int] = MappingProxyType(
    {
        "FATAL": logging.CRITICAL,
        "ERROR": logging.ERROR,
        "WARN": logging.WARNING,
        "INFO": logging.INFO,
        "DEBUG": logging.DEBUG,
        "TRACE": logging.DEBUG // 2,
    }
)

_log = logging.getLogger(__name__)

_applied: dict[str, str] = {}


@cache
def logger_names() -> tuple[str, ...]:
    """Return the name of every logger of every process: modules that have one, and packages above them."""
    top = Path(rotunda.__file__).parent
    names = {ROOT}
    for package in ("broker", "shm", "web"):
        for path in (top / package).rglob("*.py"):
            if b"getLogger(" in path.read_bytes():
                parts = path.relative_to(top.parent).with_suffix("").parts
                names.update(".".join(parts[:length]) for length in range(1, len(parts) + 1))
    return tuple(sorted(names))


def level_of(name: str, levels: Mapping[str, str]) -> str:
    """Return the level in force for a logger, where ``levels`` were set."""
    while name and name not in levels:
        name = name.rpartition(".")[0]
    return levels.get(name or ROOT, DEFAULT)


def apply(levels: Mapping[str, str]) -> None:
    """Put these levels in force in this process, and no others."""
    for name in _applied.keys() | levels.keys():
        default = DEFAULT if name == ROOT else None
        level = levels.get(name, default)
        logging.getLogger(None if name == ROOT else name).setLevel(logging.NOTSET if level is None else LEVELS[level])
    if levels != _applied:
        _applied.clear()
        _applied.update(levels)
        _log.debug("levels of loggers are now %s", levels)
