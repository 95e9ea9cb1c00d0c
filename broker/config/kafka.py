"""Settings that Kafka has and this broker has not: their descriptions, and the line for a user who sets one.

Such a setting may stand in a file at Kafka's default, which changes nothing; any other value asks for what is not
served, and is refused by name, so that nobody believes to have it. Pure; the table is read when it is first needed.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from functools import cache
from types import MappingProxyType
from typing import NamedTuple

from broker.config.kafka_settings import TABLE

#: Its documentation in DescribeConfigs.
NOT_SERVED = "A setting of Kafka that this broker does not have. Its value is Kafka's default and cannot be changed."


class KafkaType(enum.IntEnum):
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


class KafkaSetting(NamedTuple):
    """One setting of Kafka's. ``default`` is None where there is none."""

    name: str
    config_type: KafkaType
    dynamic: bool
    default: str | None

    def is_default(self, text: str) -> bool:
        """Whether `text` writes the default."""
        return text.strip() == (self.default or "")

    @property
    def refusal(self) -> str:
        """The line for a user who gives it another value."""
        default = f"leave it at Kafka's default, {self.default}" if self.default else "leave it empty"
        return f"{self.name} is a setting of Kafka that this broker does not have; remove it, or {default}"

    @property
    def sensitive(self) -> bool:
        """Whether its value is never shown."""
        return self.config_type is KafkaType.PASSWORD


@cache
def kafka_settings() -> Mapping[str, KafkaSetting]:
    """Return every setting that Kafka has for a broker, by name."""
    settings = {}
    for line in TABLE.strip().splitlines():
        name, config_type, mode, default = line.split()
        text = {"null": None, "''": ""}.get(default, default)
        settings[name] = KafkaSetting(name, KafkaType[config_type], mode == "dynamic", text)
    return MappingProxyType(settings)
