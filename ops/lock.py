"""Writes the lock files from the installed packages: ``.venv/bin/python ops/lock.py``.

``requirements.lock`` pins the packages that build and run the broker and its status page, ``requirements-test.lock``
the additional ones of their tests. Names and versions only: the package sources are the machine's business.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from importlib.metadata import distribution, version
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent


def main() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    project = declared["project"]
    extras = project["optional-dependencies"]
    runtime = closure([*declared["build-system"]["requires"], *project["dependencies"], *extras["web"]])
    test = closure(extras["test"]) - runtime
    write("requirements.lock", runtime)
    write("requirements-test.lock", test)


def closure(requirements: Iterable[str]) -> set[str]:
    """Return the names of these requirements and of everything that they need on this machine."""
    seen: set[tuple[str, frozenset[str]]] = set()
    waiting = [Requirement(text) for text in requirements]
    while waiting:
        requirement = waiting.pop()
        name = canonicalize_name(requirement.name)
        if (name, frozenset(requirement.extras)) in seen:
            continue
        seen.add((name, frozenset(requirement.extras)))
        for text in distribution(name).requires or ():
            needed = Requirement(text)
            extras = requirement.extras or {""}
            if needed.marker is None or any(needed.marker.evaluate({"extra": extra}) for extra in extras):
                waiting.append(needed)
    return {name for name, _ in seen}


def write(file: str, names: set[str]) -> None:
    pins = "".join(f"{name}=={version(name)}\n" for name in sorted(names))
    (ROOT / file).write_text(pins, encoding="utf-8")


if __name__ == "__main__":
    main()
