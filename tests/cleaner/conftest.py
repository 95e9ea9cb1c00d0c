"""Fixtures of the cleaner's tests."""

import pytest


@pytest.fixture(autouse=True)
def _abandoned(close_abandoned_files: None) -> None:
    """Let tests abandon logs, as a killed owner does."""
