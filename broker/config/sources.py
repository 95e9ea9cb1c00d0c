"""Where settings come from: what the file, the environment and flags assign, and how a value remembers its place.

Reads what it is given and the file; whether a name is a setting, and what its value means, others know. Variables are
those of Kafka's container images (``KAFKA_``) and this broker's own (``ROTUNDA_``), by the same rules.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from rotunda.broker.config.keys import Value
from rotunda.broker.config.machine_defaults import absolute
from rotunda.broker.config.properties_file import parse_properties
from rotunda.broker.errors import ConfigError

#: Environment variables of this prefix are settings, all of them: one that names no setting is an error.
OWN_PREFIX = "ROTUNDA_"
#: Kafka's container images use this one; what is no setting of ours is meant for others.
KAFKA_PREFIX = "KAFKA_"
#: These are no settings: the command line reads them, and `broker.native` the choice of pure Python.
COMMAND_LINE_VARIABLES = frozenset(
    f"{OWN_PREFIX}{name}" for name in ("COMMAND_CONFIG", "CONFIG", "DATA_DIR", "LOG_FORMAT", "PURE_PYTHON", "RUN_DIR")
)

_ADVERTISED = f"{KAFKA_PREFIX}ADVERTISED_LISTENERS"


class Source(enum.IntEnum):
    """Where a value came from, in rising order of precedence."""

    DEFAULT = 0
    FILE = 1
    ENVIRONMENT = 2
    FLAG = 3
    DYNAMIC_DEFAULT = 4
    DYNAMIC = 5


class Origin(NamedTuple):
    """Where a value came from, and the place in words: a file and line, a variable, a flag."""

    source: Source
    place: str

    def __str__(self) -> str:
        return self.place


class Assignment(NamedTuple):
    """One attempt to give a setting a value."""

    name: str
    text: str
    origin: Origin


class Layer(NamedTuple):
    """A value that a setting was given, and by whom; a later layer of higher precedence may hide it."""

    origin: Origin
    value: Value


Layers = Mapping[str, tuple[Layer, ...]]


class Sources(NamedTuple):
    """What a configuration was read from."""

    file: Path | None = None
    sets: Mapping[str, str] = MappingProxyType({})
    environment: Mapping[str, str] = MappingProxyType({})


def from_file(file: Path) -> Iterator[Assignment]:
    """Yield what a properties file assigns. Raises ConfigError when it cannot be read."""
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read the configuration file {file}: {error}") from error
    for name, value, line in parse_properties(text):
        yield Assignment(name, value, Origin(Source.FILE, f"{file}:{line}"))


def from_environment(environment: Mapping[str, str], is_of_images: Callable[[str], bool]) -> Iterator[Assignment]:
    """Yield what variables assign, weakest first: Kafka's that name a setting, then our own."""
    for prefix in (KAFKA_PREFIX, OWN_PREFIX):
        for variable in sorted(environment):
            if not variable.startswith(prefix) or variable in COMMAND_LINE_VARIABLES:
                continue
            name = property_of(variable)
            if prefix == OWN_PREFIX or is_of_images(name):
                yield Assignment(name, environment[variable], Origin(Source.ENVIRONMENT, f"environment {variable}"))


def property_of(variable: str) -> str:
    """Return the setting that a variable stands for: ``_`` is a dot, ``__`` an underscore, ``___`` a hyphen."""
    name = variable.removeprefix(KAFKA_PREFIX).removeprefix(OWN_PREFIX).lower()
    return name.replace("___", "-").replace("__", "\0").replace("_", ".").replace("\0", "_")


def with_derived_listeners(given: Sequence[Assignment]) -> Sequence[Assignment]:
    """Return the assignments and, as Kafka's images do, listeners that follow from those advertised by a variable.

    They are on all interfaces, at the advertised ports; not where anything says what the listeners are.
    """
    advertised = [each for each in given if each.origin.place == f"environment {_ADVERTISED}" and each.text.strip()]
    if not advertised or any(each.name == "listeners" and each.text.strip() for each in given):
        return given
    everywhere = re.sub(r"://(\[[^]]*\]|[^:]*):", "://0.0.0.0:", advertised[0].text)
    others = [each for each in given if each.name != "listeners"]
    return [*others, Assignment("listeners", everywhere, advertised[0].origin)]


def take_other_names(layers: dict[str, tuple[Layer, ...]]) -> None:
    """Give settings that have two names the value of the name that was used."""
    for name, other in (("broker.id", "node.id"), ("node.id", "broker.id")):
        if name in layers:
            layers.setdefault(other, layers[name])
    for origin, value in layers.get("log.dir", ())[:1]:
        if value and "log.dirs" not in layers:
            layers["log.dirs"] = (Layer(origin, absolute("log.dirs", value)),)
