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


def fuzz(library: Path | str, cases: int, program: str = "fuzzer", seed: int | None = None, **environment: str) -> str:
    """Run a fuzzer in a process of its own, as a library may end it; return its output."""
    seed = random_seed() if seed is None else seed
    command = [sys.executable, "-m", f"tests.native.{program}", library, str(seed), str(cases)]
    ran = subprocess.run(
        command,
        cwd=REPOSITORY,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=FUZZING_S,
        check=False,
    )
    assert ran.returncode == 0, f"seed {seed}: " + ran.stdout[-200:] + ran.stderr[-4000:]
    return ran.stdout


def compare_requests(library: Path, cases: int, **environment: str) -> None:
    seed = random_seed()
    wanted = fuzz("-", cases, "request_fuzz", seed)
    assert fuzz(library, cases, "request_fuzz", seed, **environment) == wanted, f"seed {seed}"


def test_the_compiled_module_does_as_its_twins(tmp_path: Path) -> None:
    library = build(tmp_path, "-O2")
    fuzz(library, 500)
    compare_requests(library, 5)


@pytest.mark.slow
def test_no_sanitizer_finds_anything(tmp_path: Path) -> None:
    """With an allocator that separates every buffer from others."""
    library = build(tmp_path, *SANITIZED)
    runtime = subprocess.run(["cc", "-print-file-name=libasan.so"], capture_output=True, text=True, check=True).stdout
    environment = {
        "LD_PRELOAD": runtime.strip(),
        "PYTHONMALLOC": "malloc",
        "ASAN_OPTIONS": "detect_leaks=0",
        "UBSAN_OPTIONS": "print_stacktrace=1",
    }
    fuzz(library, 300, **environment)
    compare_requests(library, 10, **environment)
