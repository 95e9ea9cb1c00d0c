"""Chance that can be repeated: each attack draws from a source of its own, made from the seed and its name."""

from random import Random


def source(seed: int, name: str) -> Random:
    """Return the source of chance of one part of the campaign."""
    return Random(f"{seed}/{name}")  # noqa: S311 - nothing secret is drawn
