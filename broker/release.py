"""The version of Rotunda, and that of Apache Kafka which it follows. Any process uses it."""

from __future__ import annotations

from typing import Final

KAFKA_VERSION: Final = "4.4"
#: The name on package indexes, where `rotunda` is another project.
DISTRIBUTION: Final = "rotunda-broker"


def installed_version() -> str:
    """Return the version of the installed package; empty if it is not installed. Needs 20 ms."""
    from importlib.metadata import PackageNotFoundError, version  # noqa: PLC0415 - costs 20 ms

    try:
        return version(DISTRIBUTION)
    except PackageNotFoundError:
        return ""
