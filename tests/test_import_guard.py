"""Hiding a package while another is imported, and the imports of a broker's start."""

import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

from rotunda.broker.import_guard import without


def test_a_package_is_missing_inside_and_as_before_afterwards() -> None:
    assert "antigravity" not in sys.modules
    with without("antigravity"), pytest.raises(ModuleNotFoundError):
        importlib.import_module("antigravity")
    assert "antigravity" not in sys.modules


def test_it_is_as_before_when_an_import_fails() -> None:
    with pytest.raises(ModuleNotFoundError), without("antigravity"):
        raise ModuleNotFoundError
    assert "antigravity" not in sys.modules


def test_a_package_that_is_loaded_stays() -> None:
    with without("json"):
        assert importlib.import_module("json") is json
    assert sys.modules["json"] is json


def test_a_start_imports_nothing_that_serving_can_do_without() -> None:
    """In a fresh interpreter, since this one has everything: the modules and threads before the first fork."""
    program = (
        "import json, os, sys, rotunda.broker.cli.instance.start, rotunda.broker.supervisor.broker_main\n"
        "rotunda.broker.supervisor.broker_main.role_functions()\n"
        "print(json.dumps([list(sys.modules), os.listdir('/proc/self/task')]))"
    )
    root = Path(__file__).parents[1]
    run = subprocess.run([sys.executable, "-c", program], cwd=root, capture_output=True, text=True, check=True)
    modules, threads = json.loads(run.stdout)
    # A fork copies one thread only: the locks of others would stay locked in the children.
    assert len(threads) == 1
    loaded = {name.partition(".")[0] for name in modules}
    slow = {
        "asyncio",
        "cramjam",
        "dill",
        "email",
        "fastapi",
        "hypothesis",
        "numpy",
        "pandas",
        "psutil",
        "pyarrow",
        "re2",
        "ssl",
    }
    assert not loaded & slow
