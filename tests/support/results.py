"""Results that a test relies on."""

from __future__ import annotations

from typing import TypeVar

Result = TypeVar("Result")


def present(result: Result | None) -> Result:
    """Return a result that is not None."""
    assert result is not None
    return result
