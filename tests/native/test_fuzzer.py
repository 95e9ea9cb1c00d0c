"""The compiled module and its twins return the same for any bytes, without a sanitizer report."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.feeds import random_seed
from tests.support.native import SANITIZED, build

REPOSITORY = Path(__file__).parents[2]
FUZZING_S = 200


def fuzz(library: Path, cases: int, **environment: str) -> None:
    """Run the fuzzer in a process of its own, as a library may end it."""
    command = [sys.executable, "-m", "tests.native.fuzzer", library, str(random_seed()), str(cases)]
    ran = subprocess.run(
        command,
        cwd=REPOSITORY,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=FUZZING_S,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout[-200:] + ran.stderr[-4000:]


def test_the_compiled_module_does_as_its_twins(tmp_path: Path) -> None:
    fuzz(build(tmp_path, "-O2"), 500)


@pytest.mark.slow
def test_no_sanitizer_finds_anything(tmp_path: Path) -> None:
    """With an allocator that separates every buffer from others."""
    library = build(tmp_path, *SANITIZED)
    runtime = subprocess.run(["cc", "-print-file-name=libasan.so"], capture_output=True, text=True, check=True).stdout
    fuzz(
        library,
        300,
        LD_PRELOAD=runtime.strip(),
        PYTHONMALLOC="malloc",
        ASAN_OPTIONS="detect_leaks=0",
        UBSAN_OPTIONS="print_stacktrace=1",
    )
