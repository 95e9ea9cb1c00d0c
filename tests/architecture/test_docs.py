"""The pages in docs/: their size, their links, the glossary."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
SOURCES = ("broker", "shm", "web", "spark", "ops", "tests")
MOST_BYTES = 300 * 1000
MOST_TERMS = 40
MOST_REPORT_LINES = 150
_LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
_CODE = re.compile(r"```.*?```|`[^`\n]*`", re.DOTALL)


def links(page: Path) -> list[tuple[Path, str]]:
    """Return the file and the anchor of each relative link of a page."""
    found = []
    for target in _LINK.findall(_CODE.sub("", page.read_text(encoding="utf-8"))):
        if "://" not in target:
            name, _, anchor = target.partition("#")
            found.append(((page.parent / name).resolve() if name else page, anchor))
    return found


def anchors(page: Path) -> set[str]:
    titles = re.findall(r"^#+ (.*)$", _fenced_out(page.read_text(encoding="utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def _fenced_out(text: str) -> str:
    return re.sub(r"```.*?```", "", text, flags=re.DOTALL)


def test_everything_in_docs_is_short_enough_to_be_read() -> None:
    sizes = {page: page.stat().st_size for page in PAGES[1:]}
    assert sum(sizes.values()) <= MOST_BYTES, sorted(sizes.items(), key=lambda each: each[1])[-5:]


def test_the_page_of_reports_is_short() -> None:
    assert len((ROOT / "docs" / "reports.md").read_text(encoding="utf-8").splitlines()) <= MOST_REPORT_LINES


def test_every_link_leads_somewhere() -> None:
    broken = [
        f"{page.name}: {path.name}#{anchor}"
        for page in PAGES
        for path, anchor in links(page)
        if not path.exists() or (anchor and anchor not in anchors(path))
    ]
    assert not broken


def test_every_page_is_reached_from_the_readme() -> None:
    reached, waiting = set[Path](), [ROOT / "README.md"]
    while waiting:
        page = waiting.pop()
        if page.suffix == ".md" and page not in reached:
            reached.add(page)
            waiting += [path for path, _ in links(page)]
    assert set(PAGES) <= reached, sorted(set(PAGES) - reached)


def test_the_glossary_has_few_terms_in_order() -> None:
    text = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
    terms = re.findall(r"^\| ([^|]+?) \|", text, re.MULTILINE)[1:]
    assert 0 < len(terms) <= MOST_TERMS
    assert terms == sorted(set(terms))


def test_every_module_that_a_page_names_exists() -> None:
    modules = {path.relative_to(ROOT).as_posix() for top in SOURCES for path in (ROOT / top).rglob("*.py")}
    named = {
        (page.name, name)
        for page in PAGES
        for name in re.findall(r"`([a-z_0-9/]+\.py)`", page.read_text(encoding="utf-8"))
    }
    assert [each for each in sorted(named) if not any(f"/{module}".endswith(f"/{each[1]}") for module in modules)] == []
