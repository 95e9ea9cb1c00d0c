"""The output of `ops/build`, for all that is made of it."""

import subprocess
from pathlib import Path

import pytest

from tests.support.deadline import deadline_s

REPOSITORY = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory that it is in."""
    directory = tmp_path_factory.mktemp("dist")
    subprocess.run([REPOSITORY / "ops/build", directory], check=True, capture_output=True, timeout=deadline_s(300))
    return directory
