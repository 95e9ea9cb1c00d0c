"""The sources of settings: assignments in the file, the environment and flags, and the origin of each value.

Reads its arguments and the file; other modules know which names are settings, and the meaning of values. Variables are
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
#: Prefix of Kafka's container images; unknown settings with it are meant for other programs.
KAFKA_PREFIX = "KAFKA_"
#: These are no settings: the command line reads them, and `broker.native` the choice of pure Python.
COMMAND_LINE_VARIABLES = frozenset(
    f"{OWN_PREFIX}{name}" for name in ("COMMAND_CONFIG", "CONFIG", "DATA_DIR", "LOG_FORMAT", "PURE_PYTHON", "RUN_DIR")
)

_ADVERTISED = f"{KAFKA_PREFIX}ADVERTISED_LISTENERS"


class Source(enum.IntEnum):
    """The source of a value, in rising order of precedence."""

    DEFAULT = 0
    FILE = 1
    ENVIRONMENT = 2
    FLAG = 3
    DYNAMIC_DEFAULT = 4
    DYNAMIC = 5


class Origin(NamedTuple):
    """The source of a value, and its place as text: a file and line, a variable, a flag."""

    source: Source
    place: str

    def __str__(self) -> str:
        return self.place


class Assignment(NamedTuple):
    """One assignment of a value to a setting."""

    name: str
    text: str
    origin: Origin


class Layer(NamedTuple):
    """A value of a setting and its origin; a later layer of higher precedence may hide it."""

    origin: Origin
    value: Value


Layers = Mapping[str, tuple[Layer, ...]]


class Sources(NamedTuple):
    """The sources of a configuration."""

    file: Path | None = None
    sets: Mapping[str, str] = MappingProxyType({})
    environment: Mapping[str, str] = MappingProxyType({})


def from_file(file: Path) -> Iterator[Assignment]:
    """Yield the assignments of a properties file. Raises ConfigError when it cannot be read."""
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read the configuration file {file}: {error}") from error
    for name, value, line in parse_properties(text):
        yield Assignment(name, value, Origin(Source.FILE, f"{file}:{line}"))


def from_environment(environment: Mapping[str, str], is_of_images: Callable[[str], bool]) -> Iterator[Assignment]:
    """Yield the assignments of variables, weakest first: Kafka's that name a setting, then our own."""
    for prefix in (KAFKA_PREFIX, OWN_PREFIX):
        for variable in sorted(environment):
            if not variable.startswith(prefix) or variable in COMMAND_LINE_VARIABLES:
                continue
            name = property_of(variable)
            if prefix == OWN_PREFIX or is_of_images(name):
                yield Assignment(name, environment[variable], Origin(Source.ENVIRONMENT, f"environment {variable}"))


def property_of(variable: str) -> str:
    """Return the setting of a variable: ``_`` is a dot, ``__`` an underscore, ``___`` a hyphen."""
    name = variable.removeprefix(KAFKA_PREFIX).removeprefix(OWN_PREFIX).lower()
    return name.replace("___", "-").replace("__", "\0").replace("_", ".").replace("\0", "_")


def with_derived_listeners(given: Sequence[Assignment]) -> Sequence[Assignment]:
    """Return the assignments and, like Kafka's images, listeners derived from those advertised by a variable.

    They are on all interfaces, at the advertised ports; not where any source sets the listeners.
    """
    advertised = [each for each in given if each.origin.place == f"environment {_ADVERTISED}" and each.text.strip()]
    if not advertised or any(each.name == "listeners" and each.text.strip() for each in given):
        return given
    everywhere = re.sub(r"://(\[[^]]*\]|[^:]*):", "://0.0.0.0:", advertised[0].text)
    others = [each for each in given if each.name != "listeners"]
    return [*others, Assignment("listeners", everywhere, advertised[0].origin)]


def apply_other_names(layers: dict[str, tuple[Layer, ...]]) -> None:
    """Set both names of settings with two names to the value of the used one."""
    for name, other in (("broker.id", "node.id"), ("node.id", "broker.id")):
        if name in layers:
            layers.setdefault(other, layers[name])
    for origin, value in layers.get("log.dir", ())[:1]:
        if value and "log.dirs" not in layers:
            layers["log.dirs"] = (Layer(origin, absolute("log.dirs", value)),)
