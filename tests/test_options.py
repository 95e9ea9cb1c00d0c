"""The options of the suite: the tests of `ops/test`, `ops/test --quick` and `ops/compat --tests`."""

import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[1]
#: By the part that a test needs: a test that shows its part.
TESTS = {
    "": "tests/test_clock.py::test_system_clock_never_goes_back_and_knows_the_year",
    "Java": "tests/integration/test_start_secure.py::test_the_settings_of_java",
    "Spark": "tests/spark/test_text_table.py::",
    "a browser": "tests/web/test_screens.py::",
    "a walk": "tests/integration/test_kafka_python.py::",
    "a whole broker": "tests/integration/test_start_secure.py::test_the_settings_of_kcat",
    "time": "tests/integration/test_own_producer.py::test_a_restart_of_the_broker_loses_and_doubles_nothing",
    "Go, for compat": "tests/integration/test_start_secure.py::test_the_settings_of_franz_go",
    "Java, for compat": "tests/compat/test_kafka_acls.py::",
}


@pytest.mark.parametrize(
    ("options", "chosen"),
    [
        ((), {"", "Java", "Spark", "a browser", "a walk", "a whole broker", "time"}),
        (("--quick",), {"", "a walk"}),
        (("--compat",), {"Go, for compat", "Java, for compat"}),
    ],
)
def test_which_tests_run(options: tuple[str, ...], chosen: set[str]) -> None:
    modules = {test.partition("::")[0] for test in TESTS.values()}
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", *options, *modules]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    assert {part for part, test in TESTS.items() if any(line.startswith(test) for line in lines)} == chosen


def test_the_compat_command_passes_its_arguments_to_pytest() -> None:
    command = [sys.executable, "-m", "ops.compatibility", "--tests", "--collect-only", "-q", "tests/compat"]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True)
    assert "tests/compat/test_kafka_acls.py::test_kafka_acls_adds_lists_and_removes" in done.stdout
