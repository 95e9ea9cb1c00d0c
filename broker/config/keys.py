"""A configuration key: name, type, default, range, unit and text, and the parser of its value.

Broker settings and topic settings are both declared with the types of this module. So a value is parsed, checked and
printed in the same way, whether from a file, a flag, the environment or an admin request. Pure; runs in every process
that handles configuration and reads neither files nor the environment.
"""

from __future__ import annotations

import dataclasses
import enum
import math
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

Value = bool | int | float | str | tuple[str, ...] | None

MAX_INT = 2**31 - 1
MAX_LONG = 2**63 - 1

#: The reason why the number of replicas cannot be above 1.
ONE_REPLICA = "a single broker has one replica"

#: Units in which a name may end.
_UNITS = frozenset({"bytes", "hours", "minutes", "ms"})
_TRUTH = {"true": True, "false": False}

#: Characters that Java's String.trim removes at both ends, and the space characters of its pattern for lists.
TRIMMED = "".join(map(chr, range(0x21)))
_SPACE = " \t\n\x0b\f\r"

#: As Java's Integer.parseInt: the digits of any script, if each is one UTF-16 unit.
_WHOLE_NUMBER = re.compile(r"[+-]?(?:(?![\U00010000-\U0010ffff])\d)+")
#: As Java's Double.parseDouble.
_DECIMAL = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)[fFdD]?", re.ASCII)
_HEXADECIMAL = re.compile(r"([+-]?0[xX](?:[0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)[pP][+-]?[0-9]+)[fFdD]?")
_NOT_FINITE = re.compile(r"[+-]?(?:NaN|Infinity)")


class Kind(enum.IntEnum):
    """Type of a value, numbered as DescribeConfigs numbers it (KIP-569)."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


_BOUNDS: dict[Kind, tuple[int, int]] = {
    Kind.SHORT: (-(2**15), 2**15 - 1),
    Kind.INT: (-(2**31), MAX_INT),
    Kind.LONG: (-(2**63), MAX_LONG),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """One configuration key. ``default_text`` describes a default that depends on the machine.

    A dynamic key is set for all brokers or for one, with ``per_broker`` only for one; ``least_while_running`` is its
    minimum then. ``most_because`` is the reason for the maximum, where that is not obvious.
    """

    name: str = ""
    kind: Kind
    default: Value
    doc: str
    unit: str = ""
    least: float | None = None
    least_while_running: float | None = None
    most: float | None = None
    choices: tuple[str, ...] = ()
    dynamic: bool = False
    per_broker: bool = False
    sensitive: bool = False
    nullable: bool = False
    default_text: str = ""
    most_because: str = ""
    validator: Callable[[Any], str | None] | None = None

    @property
    def attribute(self) -> str:
        """Name of the attribute that holds the value: the property name with underscores."""
        return self.name.replace(".", "_")

    def parse(self, text: str) -> Value:
        """Return the value that ``text`` writes. Raises ValueError, worded for the user, when it is none."""
        stripped = text.strip(TRIMMED)
        if self.nullable and not stripped:
            return None
        value = _PARSERS[self.kind](self, stripped)
        self.check(value)
        return value

    def check(self, value: Value) -> None:
        """Raise ValueError, worded for the user, if a value of the right type is not allowed here."""
        if value is None:
            return
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            self._check_range(value)
        if self.choices:
            for item in value if isinstance(value, tuple) else (value,):
                if item not in self.choices:
                    raise ValueError(f"String must be one of: {', '.join(self.choices)}")
        complaint = self.validator(value) if self.validator else None
        if complaint:
            raise ValueError(complaint)

    def check_while_running(self, value: Value) -> None:
        """Raise ValueError, worded for the user, if a value is allowed at the start alone."""
        least = self.least_while_running
        if least is not None and isinstance(value, (int, float)) and value < least:
            raise ValueError(f"Value must be at least {least} while the broker runs")

    def _check_range(self, value: float) -> None:
        # Negated, so that NaN is out of every range.
        if self.least is not None and not value >= self.least:
            raise ValueError(f"Value must be at least {self.least}")
        if self.most is not None and not value <= self.most:
            because = f": {self.most_because}" if self.most_because else ""
            raise ValueError(f"Value must be no more than {self.most}{because}")

    @property
    def valid_values(self) -> str:
        """The valid values in a few words, for the reference page; empty if every value of the type is valid."""
        if self.choices:
            return ", ".join(self.choices)
        if self.least is not None and self.most is not None:
            return f"{self.least} to {self.most}"
        if self.least is not None:
            return f"{self.least} or more"
        return ""


def render(value: Value) -> str | None:
    """Return a value as Kafka writes it in files and responses: lists joined by commas, None for no value."""
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ",".join(value)
    if isinstance(value, float):
        return _as_java_writes(value)
    return str(value)


def _as_java_writes(value: float) -> str:
    """Return a number in Java's exponent form where Java uses one: 1.5E10 and not 1.5e+10."""
    if value == 0 or not math.isfinite(value) or 1e-3 <= abs(value) < 1e7:
        return str(value)
    digits, _, exponent = f"{Decimal(repr(value)).normalize():e}".partition("e")
    return f"{digits if '.' in digits else digits + '.0'}E{int(exponent)}"


def parse_whole_number(text: str, kind: Kind) -> int:
    """Return the number that Java reads. Raises ValueError, worded for the user."""
    lowest, highest = _BOUNDS[kind]
    # Python raises ValueError for thousands of digits.
    with suppress(ValueError):
        if _WHOLE_NUMBER.fullmatch(text) and lowest <= (value := int(text)) <= highest:
            return value
    raise ValueError(f"Not a number of type {kind.name}")


def setting(kind: Kind, default: Value, *, doc: str, **rest: Any) -> Any:
    """Return the dataclass field of a setting; ``rest`` are further attributes of its key."""
    return field_of(Key(kind=kind, default=default, doc=doc, **rest))


def field_of(key: Key) -> Any:
    """Return the dataclass field that holds the key's value; the key is its metadata."""
    return dataclasses.field(default=key.default, metadata={"key": key})


def keys_of(settings: type[Any]) -> dict[str, Key]:
    """Return the keys that a settings dataclass declares, by property name, in order of declaration.

    A key has the name of its field, with dots for underscores, and the unit with which its name ends.
    """
    keys = {}
    for field in dataclasses.fields(settings):
        if "key" in field.metadata:
            name = field.name.replace("_", ".")
            key: Key = field.metadata["key"]
            last = name.rpartition(".")[2]
            keys[name] = dataclasses.replace(key, name=name, unit=key.unit or (last if last in _UNITS else ""))
    return keys


def _parse_boolean(_key: Key, text: str) -> Value:
    try:
        return _TRUTH[text.lower()]
    except KeyError:
        raise ValueError("Expected value to be either true or false") from None


def _parse_whole_number(key: Key, text: str) -> Value:
    return parse_whole_number(text, key.kind)


def _parse_double(_key: Key, text: str) -> Value:
    if _NOT_FINITE.fullmatch(text):
        return float(text)
    if decimal := _DECIMAL.fullmatch(text):
        return float(decimal[1])
    if hexadecimal := _HEXADECIMAL.fullmatch(text):
        try:
            return float.fromhex(hexadecimal[1])
        except OverflowError:
            return -math.inf if text.startswith("-") else math.inf
    raise ValueError("Not a number of type DOUBLE")


def _parse_list(_key: Key, text: str) -> Value:
    """Return the elements, each once, as Kafka 4.4 does."""
    items = dict.fromkeys(item.strip(_SPACE) for item in text.split(",")) if text else {}
    if "" in items:
        raise ValueError("Elements must not be empty")
    return tuple(items)


def _parse_string(_key: Key, text: str) -> Value:
    return text


_PARSERS: dict[Kind, Callable[[Key, str], Value]] = {
    Kind.BOOLEAN: _parse_boolean,
    Kind.STRING: _parse_string,
    Kind.SHORT: _parse_whole_number,
    Kind.INT: _parse_whole_number,
    Kind.LONG: _parse_whole_number,
    Kind.DOUBLE: _parse_double,
    Kind.LIST: _parse_list,
    Kind.CLASS: _parse_string,
    Kind.PASSWORD: _parse_string,
}
