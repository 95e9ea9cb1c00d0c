"""Writes the generated pages, or checks them: ``python ops/pages.py [--check | --list] [PAGE...]``.

Each page is the return value of a function in the module that it describes.
"""

from __future__ import annotations

import argparse
import difflib
import importlib
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

#: Page -> the module and function that return its text.
PAGES = {
    "docs/api-versions.md": ("rotunda.broker.apis.table", "describe_markdown"),
    "docs/authorisation.md": ("rotunda.broker.security.acl.checks", "describe_markdown"),
    "docs/behaviours.md": ("tests.behaviours", "describe_markdown"),
    "docs/configuration.md": ("rotunda.broker.config.reference_page", "describe_markdown"),
    "docs/layout.md": ("rotunda.shm.layout_page", "describe_markdown"),
    "docs/metrics.md": ("rotunda.broker.metrics.reference_page", "describe_markdown"),
    "docs/producer-settings.md": ("rotunda.broker.client.producer.settings_page", "describe_markdown"),
    "docs/request-log.md": ("rotunda.broker.request_log.columns", "describe_markdown"),
    "ops/server.properties": ("rotunda.broker.config.reference_page", "sample_properties"),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing; fail if a page is stale")
    parser.add_argument("--list", action="store_true", help="print the names of the pages")
    parser.add_argument("pages", nargs="*", default=list(PAGES), metavar="PAGE")
    arguments = parser.parse_args()
    if arguments.list:
        print("\n".join(PAGES))
        return 0
    sys.path.insert(0, str(ROOT))
    stale = [page for page in arguments.pages if is_stale(page)]
    if not arguments.check:
        for page in stale:
            (ROOT / page).parent.mkdir(exist_ok=True)
            (ROOT / page).write_text(generate(page), encoding="utf-8")
            print(f"wrote {page}")
        return 0
    for page in stale:
        sys.stdout.writelines(difference(page))
    return 1 if stale else 0


def generate(page: str) -> str:
    module, function = PAGES[page]
    text: str = getattr(importlib.import_module(module), function)()
    return text.rstrip("\n") + "\n"


def committed(page: str) -> str:
    path = ROOT / page
    return path.read_text(encoding="utf-8") if path.exists() else ""


def is_stale(page: str) -> bool:
    return committed(page) != generate(page)


def difference(page: str) -> list[str]:
    have, want = committed(page).splitlines(keepends=True), generate(page).splitlines(keepends=True)
    return list(difflib.unified_diff(have, want, f"{page} as committed", f"{page} as generated"))


if __name__ == "__main__":
    sys.exit(main())
