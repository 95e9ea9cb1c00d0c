"""House rules that no linter checks: sizes, docstrings, and where packages may come from."""

from __future__ import annotations

import ast
import re
import tomllib
from graphlib import TopologicalSorter
from pathlib import Path

import grimp
import pytest

ROOT = Path(__file__).parents[2]
MOST_MODULE_LINES = 400
MOST_TEST_LINES = 600
MOST_FUNCTION_LINES = 60
LOCK_FILES = ("requirements.lock", "requirements-test.lock")
PIN = re.compile(r"([a-z0-9]+(?:-[a-z0-9]+)*)==[A-Za-z0-9.!+]+")


def sources(*folders: str) -> list[Path]:
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


MODULES = sources("broker", "shm", "spark", "ops")
TESTS = sources("tests")


def label(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", MODULES, ids=label)
def test_module_is_short_and_says_what_it_is(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= MOST_MODULE_LINES
    assert ast.get_docstring(ast.parse(text)), "a module opens with a paragraph"


@pytest.mark.parametrize("path", TESTS, ids=label)
def test_test_module_is_short(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= MOST_TEST_LINES


@pytest.mark.parametrize("path", MODULES + TESTS, ids=label)
def test_functions_are_short(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            assert lines <= MOST_FUNCTION_LINES, f"{node.name} has {lines} lines"


@pytest.mark.parametrize("path", MODULES, ids=label)
def test_only_the_clock_reads_the_time(path: Path) -> None:
    if label(path).startswith("ops") or path.name == "clock.py":
        return
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            assert "time" not in [alias.name for alias in node.names]
        if isinstance(node, ast.ImportFrom):
            assert node.module != "time"


def test_no_modules_import_each_other_in_a_circle() -> None:
    """Also not by what only types name."""
    graph = grimp.build_graph("broker", "shm", "spark", "web")
    TopologicalSorter({module: graph.find_modules_directly_imported_by(module) for module in graph.modules}).prepare()


@pytest.mark.parametrize("name", LOCK_FILES)
def test_lock_file_has_names_and_versions_only(name: str) -> None:
    lines = (ROOT / name).read_text(encoding="utf-8").splitlines()
    assert lines == sorted(lines, key=lambda line: line.partition("==")[0])
    for line in lines:
        assert PIN.fullmatch(line), line


def test_lock_files_pin_every_declared_dependency() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    runtime, extra = (pinned(name) for name in LOCK_FILES)
    needed = [*project["project"]["dependencies"], *project["build-system"]["requires"]]
    assert {canonical(requirement) for requirement in needed} <= runtime
    test_needs = project["project"]["optional-dependencies"]["test"]
    assert {canonical(requirement) for requirement in test_needs} <= runtime | extra
    assert not runtime & extra


def pinned(name: str) -> set[str]:
    return {line.partition("==")[0] for line in (ROOT / name).read_text(encoding="utf-8").splitlines()}


def canonical(requirement: str) -> str:
    name = re.match(r"[A-Za-z0-9._-]+", requirement)
    assert name
    return re.sub(r"[-_.]+", "-", name[0]).lower()
