"""The skeleton of each screen, as HTML: the same frame around what its script draws. Everything put in is escaped."""

from __future__ import annotations

from functools import cache
from html import escape
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING

from web.screens import SCREENS, Screen

if TYPE_CHECKING:
    from web.sources import BrokerFacts

_TEMPLATES = Path(__file__).parent / "templates"


def page(screen: Screen, facts: BrokerFacts) -> str:
    """Return a screen's HTML."""
    return _template("page.html").substitute(
        title=escape(screen.title),
        name=escape(screen.name),
        lead=escape(screen.lead),
        bootstrap=escape(facts.bootstrap),
        version=escape(facts.version),
        navigation="".join(_link(each, screen) for each in SCREENS),
        body=_template(f"{screen.name}.html").template,
        equivalents=_equivalents(screen, facts),
    )


def _link(screen: Screen, current: Screen) -> str:
    mark = ' aria-current="page"' if screen is current else ""
    return f'<li><a href="{screen.path}"{mark}>{escape(screen.title)}</a></li>'


def _equivalents(screen: Screen, facts: BrokerFacts) -> str:
    rows = [("Command", screen.command + f" --run-dir {facts.run_dir}" if screen.command else "")]
    rows.append(("Metrics", ", ".join(screen.metrics)))
    rows.append(("SQL", screen.sql.replace("{log}", facts.request_log)))
    return "".join(
        f"<dt>{escape(label)}</dt><dd><code>{escape(text)}</code>"
        f'<button type="button" class="copy" aria-label="Copy {escape(label)}">Copy</button></dd>'
        for label, text in rows
        if text
    )


@cache
def _template(name: str) -> Template:
    return Template((_TEMPLATES / name).read_text(encoding="utf-8"))
