"""One setting in the shape of DescribeConfigs and CreateTopics responses."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from rotunda.broker.metadata.configs.config_descriptions import ConfigEntry


def described(
    entries: Iterable[ConfigEntry], wanted: Collection[str] | None, *, synonyms: bool, documentation: bool
) -> list[dict[str, Any]]:
    """Return the wanted entries (None: all), each as a dict of response fields."""
    return [
        {
            "name": entry.name,
            "value": entry.value,
            "read_only": entry.read_only,
            "config_source": entry.source,
            "is_sensitive": entry.sensitive,
            "synonyms": [synonym._asdict() for synonym in entry.synonyms] if synonyms else [],
            "config_type": entry.config_type,
            "documentation": entry.documentation if documentation else None,
        }
        for entry in entries
        if wanted is None or entry.name in wanted
    ]


def creation_summary(entries: Iterable[ConfigEntry]) -> list[dict[str, Any]]:
    """Return the entries in the format of CreateTopics (KIP-525)."""
    return [
        {
            "name": entry.name,
            "value": entry.value,
            "read_only": entry.read_only,
            "config_source": entry.source,
            "is_sensitive": entry.sensitive,
        }
        for entry in entries
    ]
