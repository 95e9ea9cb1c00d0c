"""Generated pages are current: the committed pages equal the output of the code."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = (
    "docs/api-versions.md",
    "docs/authorisation.md",
    "docs/behaviours.md",
    "docs/configuration.md",
    "docs/layout.md",
    "docs/metrics.md",
    "docs/producer-settings.md",
    "docs/request-log.md",
    "ops/server.properties",
)


@pytest.mark.parametrize("page", PAGES)
def test_page_is_current(page: str) -> None:
    check = subprocess.run(
        [sys.executable, ROOT / "ops" / "pages.py", "--check", page],
        capture_output=True,
        text=True,
        check=False,
    )
    assert check.returncode == 0, f"run: python ops/pages.py\n{check.stdout}{check.stderr}"


def test_no_page_is_left_out() -> None:
    listed = subprocess.run(
        [sys.executable, ROOT / "ops" / "pages.py", "--list"], capture_output=True, text=True, check=True
    )
    assert tuple(listed.stdout.split()) == PAGES
