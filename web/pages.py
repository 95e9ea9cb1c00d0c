"""The skeleton of each screen, as HTML: one frame around the script's drawing. Every inserted text is escaped."""

from __future__ import annotations

import shlex
from functools import cache
from html import escape
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING

from rotunda.broker.metrics.derived_metrics import DERIVED
from rotunda.broker.metrics.prometheus import PREFIX, exposed_name
from rotunda.shm.metrics.catalogue import CATALOGUE
from rotunda.web.screens import SCREENS, Screen

if TYPE_CHECKING:
    from rotunda.web.sources import BrokerFacts

_TEMPLATES = Path(__file__).parent / "templates"


def page(screen: Screen, facts: BrokerFacts) -> str:
    """Return a screen's HTML."""
    return _template("page.html").substitute(
        title=escape(screen.title),
        name=escape(screen.name),
        lead=escape(screen.lead),
        bootstrap=escape(facts.bootstrap),
        version=escape(facts.version),
        code="compiled" if facts.is_native else "pure Python",
        navigation="".join(_link(each, screen) for each in SCREENS),
        body=_template(f"{screen.name}.html").template,
        equivalents=_equivalents(screen, facts),
    )


def missing_page(path: str) -> str:
    """Return the HTML of a path that does not exist. Its links are relative, as a proxy may add a prefix."""
    root = "../" * (path.count("/") - 1) or "./"
    navigation = "".join(_link(each, root=root) for each in SCREENS)
    return _template("missing.html").substitute(path=escape(path), root=root, navigation=navigation)


def _link(screen: Screen, current: Screen | None = None, root: str = "") -> str:
    mark = ' aria-current="page"' if screen is current else ""
    return f'<li><a href="{root}{screen.path}"{mark}>{escape(screen.title)}</a></li>'


def _equivalents(screen: Screen, facts: BrokerFacts) -> str:
    # Quoted for a shell and for DuckDB, for any directory name.
    rows = [("Command", f"{screen.command} --run-dir {shlex.quote(facts.run_dir)}", "")]
    rows += [("Metric", name, metric_lines()[name]) for name in screen.metrics]
    rows.append(("SQL", screen.sql.replace("{log}", facts.request_log.replace("'", "''")), ""))
    return "".join(
        f"<dt>{escape(label)}</dt><dd><code>{escape(text)}</code><span>{escape(meaning)}</span>"
        f'<button type="button" class="copy" aria-label="Copy {escape(label)}">Copy</button></dd>'
        for label, text, meaning in rows
        if text
    )


@cache
def metric_lines() -> dict[str, str]:
    """Return the one-line description of each metric, by its name in /metrics."""
    lines = {exposed_name(role, each): each.line for role, metrics in CATALOGUE.items() for each in metrics}
    return lines | {PREFIX + each.name: each.line for metrics in DERIVED.values() for each in metrics}


@cache
def _template(name: str) -> Template:
    return Template((_TEMPLATES / name).read_text(encoding="utf-8"))
