"""Chance that can be repeated: each attack draws from a source of its own, made from the seed and its name."""

import random


def source(seed: int, name: str) -> random.Random:
    """Return the source of chance of one part of the campaign."""
    return random.Random(f"{seed}/{name}")  # noqa: S311 - nothing secret is drawn
