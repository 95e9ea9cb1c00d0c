"""House rules without a linter: sizes, docstrings, and the sources of packages."""

from __future__ import annotations

import ast
import re
import tomllib
from collections import Counter
from graphlib import TopologicalSorter
from pathlib import Path

import grimp
import pytest

ROOT = Path(__file__).parents[2]
MOST_MODULE_LINES = 600
MOST_TEST_LINES = 600
MOST_FUNCTION_LINES = 60
#: Written by a program (`ops/schema.py`): of any length.
PROTOCOL = ROOT / "broker" / "protocol"
GENERATED = frozenset({PROTOCOL / "schema" / "table.py", PROTOCOL / "error_codes.py"})
#: Next to each other in one package.
MOST_MODULES = 20
MOST_C_LINES = 2000
LOCK_FILES = ("requirements.lock", "requirements-test.lock")
PIN = re.compile(r"([a-z0-9]+(?:-[a-z0-9]+)*)==[A-Za-z0-9.!+]+")


def sources(*folders: str) -> list[Path]:
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


FOLDERS = ("broker", "shm", "spark", "ops", "tests")


@pytest.mark.parametrize("folder", FOLDERS)
def test_modules_and_functions_are_short_and_modules_say_what_they_are(folder: str) -> None:
    most_lines = MOST_TEST_LINES if folder == "tests" else MOST_MODULE_LINES
    faults = []
    for path in sources(folder):
        text = path.read_text(encoding="utf-8")
        tree = ast.parse(text)
        if len(text.splitlines()) > most_lines and path not in GENERATED:
            faults.append(f"{path} has more than {most_lines} lines")
        if folder != "tests" and not ast.get_docstring(tree):
            faults.append(f"{path} does not open with a paragraph")
        for node in ast.walk(tree):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                if lines > MOST_FUNCTION_LINES:
                    faults.append(f"{path}:{node.lineno} {node.name} has {lines} lines")
    assert not faults, "\n".join(faults)


def test_there_is_little_c_and_in_one_room() -> None:
    files = [path for top in ("broker", "shm", "spark", "web") for path in (ROOT / top).rglob("*.[ch]")]
    assert {path.parent.relative_to(ROOT).as_posix() for path in files} == {"broker/native"}
    assert sum(len(path.read_text(encoding="utf-8").splitlines()) for path in files) <= MOST_C_LINES


def test_a_room_has_no_more_modules_than_a_reader_takes_in_at_a_glance() -> None:
    sizes = Counter(path.parent for path in sources("broker", "shm", "spark", "web") if path.name != "__init__.py")
    assert not {str(package): modules for package, modules in sizes.items() if modules > MOST_MODULES}


def test_rooms_are_imported_from_the_package_that_is_installed() -> None:
    """Programs that have the checkout's top level on their path would find them there too."""
    by_itself = re.compile(r"^ *(?:from|import) (?:broker|shm|spark|web)\b", re.MULTILINE)
    assert not [path for path in sources(*FOLDERS, "web") if by_itself.search(path.read_text(encoding="utf-8"))]


def test_only_the_clock_reads_the_time() -> None:
    for path in sources("broker", "shm", "spark"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if path.name != "clock.py" else ():
            if isinstance(node, ast.Import):
                assert "time" not in [alias.name for alias in node.names], path
            if isinstance(node, ast.ImportFrom):
                assert node.module != "time", path


def test_no_modules_import_each_other_in_a_circle() -> None:
    """Also not by imports for type checking only."""
    graph = grimp.build_graph("rotunda")
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
