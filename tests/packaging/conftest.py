"""The output of `ops/build`, for all that is made of it.

A build writes into the checkout, so workers take turns, and the first one's output is for all.
"""

import fcntl
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.deadline import deadline_s

REPOSITORY = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def workers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory of all workers of this run."""
    own = tmp_path_factory.getbasetemp()
    return own.parent if "PYTEST_XDIST_WORKER" in os.environ else own


@pytest.fixture
def builds_alone(workers: Path) -> Iterator[None]:
    """Keep other workers from building."""
    with (workers / "build.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@pytest.fixture(scope="session")
def dist(workers: Path) -> Path:
    """Return the directory of the output."""
    directory, done = workers / "dist", workers / "dist.done"
    with (workers / "build.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.exists():
            subprocess.run(
                [REPOSITORY / "ops/build", directory], check=True, capture_output=True, timeout=deadline_s(300)
            )
            done.touch()
    return directory
