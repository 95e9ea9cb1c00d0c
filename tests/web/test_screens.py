"""Every screen in a browser, of a real broker under real load from two client libraries."""

import os
import signal
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest
from confluent_kafka import Producer
from playwright.sync_api import Browser, Page, expect, sync_playwright

from ops.screens.load import PageLoad, warm_up
from tests.support.broker_process import BrokerProcess
from web.screens import SCREENS

pytestmark = pytest.mark.slow

BROKER_SETTINGS = {"request.log.slow.threshold.ms": 20}
CHROMIUM = "/usr/bin/chromium"
HOSTILE = '"><img src=x onerror=alert(1)>'

#: What must be there before a screen is drawn.
DRAWN = {
    "overview": "#pipeline svg",
    "clients": "#clients tbody tr",
    "topics": "#topics tbody tr",
    "groups": "#groups tbody tr",
    "requests": "#slowest tbody tr",
    "processes": "#processes tbody tr",
    "configuration": "#settings tbody tr",
}


@pytest.fixture(scope="module")
def load(broker: BrokerProcess) -> Iterator[PageLoad]:
    """Run clients of two libraries."""
    running = PageLoad(broker.bootstrap, rate=100).start()
    warm_up(running)
    yield running
    running.stop()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Start Chromium once."""
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield started
        started.close()


class Watched:
    """A page that notes what it should not do."""

    def __init__(self, browser: Browser, url: str, **options: Any) -> None:
        self.url = url
        self.page: Page = browser.new_page(viewport={"width": 1440, "height": 900}, **options)
        self.complaints: list[str] = []
        self.page.on("console", lambda message: self._console(message.type, message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("dialog", lambda dialog: self.complaints.append(f"dialog {dialog.message}"))
        self.page.on("request", lambda request: self._asked(request.url))

    def open(self, screen: str) -> Page:
        """Go to a screen and wait until it is drawn."""
        self.page.goto(self.url + ("" if screen == "overview" else screen))
        self.page.wait_for_selector(DRAWN[screen], timeout=15_000)
        return self.page

    def _console(self, kind: str, text: str) -> None:
        if kind in {"error", "warning"}:
            self.complaints.append(f"{kind}: {text}")

    def _asked(self, url: str) -> None:
        if urlsplit(url).netloc != urlsplit(self.url).netloc:
            self.complaints.append(f"asked for {url}")


@pytest.fixture
def watched(browser: Browser, broker: BrokerProcess, load: PageLoad) -> Iterator[Watched]:
    """Yield a page and assert that it did nothing it should not."""
    assert load.consumed
    found = Watched(browser, broker.status()["status_url"])
    yield found
    found.page.close()
    assert not found.complaints


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_screen_draws_itself_in_both_themes(browser: Browser, broker: BrokerProcess, load: PageLoad, theme: str):
    """No error, and nothing asked of any other server."""
    assert load.consumed
    found = Watched(browser, broker.status()["status_url"], color_scheme=theme)
    for screen in SCREENS:
        page = found.open(screen.name)
        expect(page.locator("#state")).to_have_text("Ready")
        expect(page).to_have_title(f"{screen.title} · Rotunda")
        dark = page.evaluate("getComputedStyle(document.documentElement).colorScheme")
        assert dark == theme
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), f"{screen.name} is too wide"
    found.page.close()
    assert not found.complaints


def test_the_theme_can_be_switched_and_stays(watched: Watched):
    page = watched.open("topics")
    before = page.evaluate("getComputedStyle(document.documentElement).colorScheme")
    page.click("#theme")
    page = watched.open("groups")
    assert page.evaluate("getComputedStyle(document.documentElement).colorScheme") != before


def test_tables_sort_by_keyboard_and_keep_the_focus(watched: Watched):
    """Users.md section 3: real tables, sorted by buttons in their headers, focus kept over updates."""
    page = watched.open("topics")
    header = page.locator("#topics th", has_text="Topic")
    header.locator("button").focus()
    page.keyboard.press("Enter")
    expect(header).to_have_attribute("aria-sort", "ascending")
    names = page.locator("#topics tbody tr td:first-child").all_inner_texts()
    assert names == sorted(names)
    page.keyboard.press("Space")
    expect(header).to_have_attribute("aria-sort", "descending")
    page.locator("#topics tbody button").first.focus()
    chosen = page.evaluate("document.activeElement.textContent")
    age = page.locator("#age").inner_text()
    expect(page.locator("#age")).not_to_have_text(age)
    assert page.evaluate("document.activeElement.textContent") == chosen
    page.keyboard.press("Enter")
    expect(page.locator("#partitions caption")).to_contain_text(f"Partitions of {chosen}")


def test_it_pauses_and_goes_on(watched: Watched):
    page = watched.open("processes")
    page.click("#pause")
    expect(page.locator("#pause")).to_have_attribute("aria-pressed", "true")
    expect(page.locator("#age")).to_contain_text("as of")
    page.click("#pause")
    expect(page.locator("#age")).not_to_contain_text("as of")


def test_a_hidden_tab_asks_for_nothing(watched: Watched):
    page = watched.open("processes")
    page.evaluate(
        "Object.defineProperty(document, 'hidden', {get: () => window.away, configurable: true});"
        "window.away = true; document.dispatchEvent(new Event('visibilitychange'))"
    )
    page.wait_for_selector("body.stale", timeout=10_000)
    with page.expect_request(lambda request: "/events/" in request.url):
        page.evaluate("window.away = false; document.dispatchEvent(new Event('visibilitychange'))")
    page.wait_for_selector("body:not(.stale)", timeout=10_000)


def test_old_facts_are_grey_and_say_their_age(watched: Watched, broker: BrokerProcess):
    """A page that does not answer never passes for a broker that stands still."""
    page = watched.open("overview")
    [web] = broker.processes("web")
    os.kill(web["pid"], signal.SIGSTOP)
    try:
        page.wait_for_selector("body.stale", timeout=10_000)
        assert "s old" in page.locator("#age").inner_text()
    finally:
        os.kill(web["pid"], signal.SIGCONT)
    page.wait_for_selector("body:not(.stale)", timeout=10_000)


def test_a_killed_handler_is_shown_as_restarted_within_two_seconds(watched: Watched, broker: BrokerProcess):
    page = watched.open("processes")
    before = broker.processes("handler")[0]
    os.kill(before["pid"], signal.SIGKILL)
    row = page.locator("#processes tbody tr", has_text="handler 0")
    expect(row).to_contain_text("killed by signal 9", timeout=2000)
    expect(row).to_contain_text("serves", timeout=2000)


def test_hostile_names_are_text(watched: Watched, broker: BrokerProcess):
    """Row 23: a client calls itself what it likes."""
    producer = Producer({"bootstrap.servers": broker.bootstrap, "client.id": HOSTILE})
    producer.produce("orders", b"x")
    producer.flush(10)
    page = watched.open("clients")
    expect(page.locator("#clients tbody")).to_contain_text(HOSTILE, timeout=10_000)
    page = watched.open("requests")
    assert page.locator("#screen img").count() == 0
    producer.flush(1)
