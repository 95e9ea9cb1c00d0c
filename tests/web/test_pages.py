"""The skeletons of the screens: names escaped, nothing from elsewhere, nothing that the policy forbids."""

import re
from html import escape
from pathlib import Path

import pytest

from rotunda.web.app import STATIC
from rotunda.web.pages import metric_lines, page
from rotunda.web.screens import SCREENS, Screen
from rotunda.web.sources import BrokerFacts

HOSTILE = "\"><script>alert(1)</script>&'"


def facts(text: str) -> BrokerFacts:
    return BrokerFacts(
        version=text, instance="i", pid=1, cluster_id=text, bootstrap=text, data_dir=text, run_dir=text,
        listeners=(text,), started_ms=0, request_log=text, is_native=True,
    )  # fmt: skip


@pytest.mark.parametrize("screen", SCREENS, ids=lambda screen: screen.name)
def test_whatever_is_put_in_is_escaped(screen: Screen):
    """Row 23."""
    html = page(screen, facts(HOSTILE))
    assert "alert(1)" in html
    assert "<script>alert" not in html
    assert len(re.findall("<script", html)) == 2


@pytest.mark.parametrize("screen", SCREENS, ids=lambda screen: screen.name)
def test_nothing_that_the_policy_forbids(screen: Screen):
    """Everything is loaded from here, by a relative address; no script and no style is inline."""
    html = page(screen, facts("x"))
    assert not re.search(r"\son\w+=|\sstyle=|javascript:|<style", html)
    for address in re.findall(r'(?:src|href)="([^"]+)"', html):
        assert not address.startswith(("http", "//", "/")), address
        if address.startswith("static/"):
            assert (STATIC.parent / address).is_file(), address


@pytest.mark.parametrize("screen", SCREENS, ids=lambda screen: screen.name)
def test_metrics_are_named_and_explained_as_elsewhere(screen: Screen):
    """Names of /metrics, with the line that the catalogue has for them."""
    html = page(screen, facts("x"))
    for name in screen.metrics:
        assert f"<code>{name}</code><span>{escape(metric_lines()[name])}</span>" in html


def test_every_screen_says_how_to_get_the_same_elsewhere():
    """Users.md section 3: command, metric names and SQL."""
    for screen in SCREENS:
        html = page(screen, facts("x"))
        assert screen.command in html
        if screen.name != "configuration":
            assert "<dt>SQL</dt>" in html
            assert "<dt>Metric</dt>" in html


def test_scripts_set_text_and_never_markup():
    """Row 23: names reach the page through text nodes only."""
    for script in Path(STATIC).rglob("*.js"):
        text = script.read_text(encoding="utf-8")
        assert not re.search(
            r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|https?://(?!www\.w3\.org)", text
        ), script
