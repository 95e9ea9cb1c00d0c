"""Some tests once more with the twins in Python: the other tests run the compiled module where it was built."""

import os
import subprocess
import sys
from pathlib import Path

from rotunda.broker import native

REPOSITORY = Path(__file__).parents[2]
#: Users of the walk and the reader, which `tests/protocol` tests in both forms.
MODULES = (
    "cleaner/test_compaction.py",
    "log/test_validation_steps.py",
    "log/test_stored_form.py",
    "integration/test_validated_records.py",
    "network/test_processor.py",
    "network/test_processor_turns.py",
    "network/test_request_reader.py",
    "network/test_response_reader.py",
)


def test_the_twins_pass_too() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *(f"tests/{module}" for module in MODULES)],
        cwd=REPOSITORY,
        env={**os.environ, native.PURE_PYTHON_VARIABLE: "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
