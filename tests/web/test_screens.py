"""Every screen in a browser, of a real broker under real load from two client libraries."""

import os
import re
import signal
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any
from urllib.parse import urlsplit

import pytest
from confluent_kafka import Producer
from playwright.sync_api import Browser, Page, expect

from ops.screens.load import SHARE_GROUP, PageLoad, warm_up
from rotunda.web.screens import SCREENS
from tests.support.broker_process import PAGE, BrokerProcess
from tests.support.client_metrics import subscribe
from tests.support.deadline import deadline_s, wait_until
from tests.support.quota_client import QuotaClient
from tests.support.record_batches import record_batch
from tests.support.status_page import address
from tests.support.wire_client import WireClient, request_frame
from tests.support.wire_messages import FETCH, FETCH_VERSION, create_topic, fetch_body, produce
from tests.web.conftest import WAIT_MS

pytestmark = pytest.mark.slow

#: However slow a busy machine is, a process that is stopped here is not killed.
BROKER_SETTINGS = {
    **PAGE,
    "request.log.slow.threshold.ms": 20,
    "process.hang.timeout.ms": -1,
    "client.telemetry.receiver.enable": "true",
}
TELEPHONE = 390
#: Ends with a character that would reverse the text after it.
HOSTILE = '"><img src=x onerror=alert(1)>\u202e'
SHOWN = HOSTILE.replace("\u202e", "\\u{202e}")

#: The elements that must be there before a screen is drawn.
DRAWN = {
    "overview": "#pipeline svg",
    "clients": "#clients tbody tr",
    "topics": "#topics tbody tr",
    "groups": "#groups tbody tr",
    "requests": "#slowest tbody tr",
    "history": "#history-status:not(:empty)",
    "reports": "#report-panel:not([hidden])",
    "processes": "#processes tbody tr",
    "configuration": "#settings tbody tr",
}


@pytest.fixture(scope="module")
def load(broker: BrokerProcess) -> Iterator[PageLoad]:
    """Run clients of two libraries; one of them pushes metrics."""
    with WireClient(broker.port) as wire:
        subscribe(wire, metrics="*", interval_ms="1000")
    running = PageLoad(broker.bootstrap, rate=100).start()
    warm_up(running, WAIT_MS / 1000)
    yield running
    running.stop()


class Watched:
    """A page that records its errors and foreign requests."""

    def __init__(self, browser: Browser, url: str, width: int = 1440, **options: Any) -> None:
        self.url = url
        self.page: Page = browser.new_page(viewport={"width": width, "height": 900}, **options)
        self.page.set_default_timeout(WAIT_MS)
        self.complaints: list[str] = []
        self.page.on("console", lambda message: self._console(message.type, message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("dialog", lambda dialog: self.complaints.append(f"dialog {dialog.message}"))
        self.page.on("request", lambda request: self._asked(request.url))

    def open(self, screen: str) -> Page:
        """Open a screen and wait until it is drawn."""
        self.page.goto(self.url + ("" if screen == "overview" else screen))
        self.page.wait_for_selector(DRAWN[screen], timeout=WAIT_MS)
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
    assert not found.complaints, broker.log_text()


def test_who_is_throttled_stands_on_the_clients_screen(
    watched: Watched, broker: BrokerProcess, wire: WireClient, topic: str
):
    """Issue 13: throttled clients, the quota, and the time."""
    create_topic(wire, topic, 1)
    assert broker.command("quota", "set", "--client-id", topic, "producer_byte_rate=10000").returncode == 0
    page = watched.open("clients")
    throttled_ms = 0
    while not throttled_ms:
        client = QuotaClient(broker, topic)
        throttled_ms = client.produce(topic)
        client.wire.close()
    row = page.locator("#quotas tbody tr").filter(has_text=topic)
    expect(row).to_contain_text("producer_byte_rate", timeout=WAIT_MS)
    expect(row).to_contain_text("throttled,", timeout=WAIT_MS)
    for width in (TELEPHONE, 1440):
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert broker.command("quota", "delete", "--client-id", topic, "producer_byte_rate").returncode == 0


def test_what_waits_for_clients_stands_beside_its_processor(
    watched: Watched, broker: BrokerProcess, wire: WireClient, topic: str
):
    """Issue 13: memory of requests and responses, once there is any that is held for a client."""
    create_topic(wire, topic, 1)
    records = record_batch([bytes(900_000)])
    for _ in range(4):
        assert produce(wire, topic, 0, records).error_code == 0
    with WireClient(broker.port) as slow:
        slow.send(request_frame(FETCH, FETCH_VERSION, 1, fetch_body(topic, 0, 0, size=100 << 20)) * 8)
        page = watched.open("overview")
        expect(page.locator("#pipeline")).to_contain_text(re.compile(r"keeps \d[\d.]* MB"), timeout=WAIT_MS)
    expect(page.locator("#pipeline")).not_to_contain_text(re.compile(r"keeps \d[\d.]* MB"), timeout=WAIT_MS)


@pytest.mark.parametrize(("theme", "width"), [("light", 1440), ("dark", 900), ("light", TELEPHONE)])
def test_every_screen_draws_itself_in_both_themes_and_fits(
    browser: Browser, broker: BrokerProcess, load: PageLoad, theme: str, width: int
):
    """No error, and no request to any other server.

    Wide content scrolls within its own frame; on small screens the picture of the broker is upright and can be read.
    """
    assert load.consumed
    found = Watched(browser, broker.status()["status_url"], width, color_scheme=theme)
    for screen in SCREENS:
        page = found.open(screen.name)
        expect(page.locator("#state")).to_have_text("Ready")
        expect(page).to_have_title(f"{screen.title} · Rotunda")
        assert page.evaluate("getComputedStyle(document.documentElement).colorScheme") == theme
        if screen.name == "groups":
            page.get_by_role("button", name=SHARE_GROUP, exact=True).click()
            expect(page.locator("#shares tbody tr").first).to_be_visible()
        if screen.name == "clients":
            expect(page.locator("#metrics")).to_contain_text("consumer.share.fetch.manager.fetch.latency.avg")
        assert page.evaluate("document.documentElement.scrollWidth") <= width, f"{screen.name} is too wide"
        # Tables of reports have the columns that their jobs give them.
        if width == TELEPHONE and screen.name != "reports":
            sideways = page.evaluate(
                """[...document.querySelectorAll('.panel, .scroll')]
                    .filter((each) => each.scrollWidth > each.clientWidth + 1).map((each) => each.innerText)"""
            )
            assert not sideways, f"{screen.name} scrolls sideways"
        # By the content of a cell, not by the cell: a narrow number is as tall as the longest name in its row.
        narrow = """all => all.filter(e => {
            const text = document.createRange();
            text.selectNodeContents(e);
            return e.innerText && e.offsetWidth && e.offsetWidth < 50 && text.getBoundingClientRect().height > 40;
        }).length"""
        assert not page.locator("td").evaluate_all(narrow), f"{screen.name} breaks its words into pieces"
    if width <= 900:
        assert_is_upright(found.open("overview"))
    found.page.close()
    assert not found.complaints


def assert_is_upright(page: Page) -> None:
    # In one call: it is drawn again every second, and a picture that was found before has no width by then.
    drawn, wanted = page.evaluate(
        """() => {
            const picture = document.querySelector('#pipeline svg');
            return [picture.getBoundingClientRect().width, Number(picture.getAttribute('width'))];
        }"""
    )
    assert drawn == pytest.approx(wanted, abs=0.5)
    for name in ("Acceptor", "Processor 0", "Handler 0", "Controller", "Log"):
        expect(page.locator("#pipeline text.name", has_text=name)).to_be_visible()


def test_the_theme_can_be_switched_and_stays(watched: Watched):
    page = watched.open("topics")
    before = page.evaluate("getComputedStyle(document.documentElement).colorScheme")
    page.click("#theme")
    page = watched.open("groups")
    assert page.evaluate("getComputedStyle(document.documentElement).colorScheme") != before


def test_the_overview_names_the_group_with_the_longest_lag(watched: Watched):
    page = watched.open("overview")
    ask = "fetch('status.json').then((answer) => answer.json())"
    # The lag of a group is known some time after its first commit.
    wait_until(lambda: page.evaluate(ask)["totals"]["longest_lag_s"] is not None, "a lag")
    totals = page.evaluate(ask)["totals"]
    tile = page.locator("#tiles .tile", has_text="Longest consumer lag")
    expect(tile).to_contain_text(totals["longest_lag_group"])


def test_tables_sort_by_keyboard_and_keep_the_focus(watched: Watched):
    """Users.md section 3: real tables, sorted by buttons in their headers, focus preserved over updates."""
    page = watched.open("topics")
    header = page.locator("#topics th", has_text="Topic")
    header.locator("button").focus()
    page.keyboard.press("Enter")
    expect(header).to_have_attribute("aria-sort", "ascending")
    names = page.locator("#topics tbody tr td:first-child").all_inner_texts()
    # Numbers within names count as numbers, and other tests' topics have random ones.
    in_order = "names => names.toSorted((one, other) => one.localeCompare(other, 'en', { numeric: true }))"
    assert names == page.evaluate(in_order, names)
    page.keyboard.press("Space")
    expect(header).to_have_attribute("aria-sort", "descending")
    page.locator("#topics tbody button").first.focus()
    chosen = page.evaluate("document.activeElement.textContent")
    age = page.locator("#age").inner_text()
    expect(page.locator("#age")).not_to_have_text(age)
    assert page.evaluate("document.activeElement.textContent") == chosen
    page.keyboard.press("Enter")
    expect(page.locator("#topic-title")).to_have_text(chosen)
    expect(page.locator("#topics tbody button:focus")).to_have_attribute("aria-expanded", "true")


TABLE = """async () => {
    const { Table } = await import('/static/table.js');
    document.getElementById('screen').append(Object.assign(document.createElement('div'), { id: 'under-test' }));
    const button = (row) => Object.assign(document.createElement('button'), { textContent: row.name });
    const table = new Table('under-test', { caption: '', key: (row) => row.key, sort: 'value', empty: '', columns: [
        { name: 'name', title: 'Name', value: (row) => row.name, show: button },
        { name: 'value', title: 'Value', value: (row) => row.value, show: (row) => String(row.value) }] });
    window.update = (...rows) => {
        table.update(rows.map(([key, name, value]) => ({ key, name, value })));
        return [...table.body.rows].map((row) => row.innerText.replace(/\\s+/g, ' ').trim());
    };
}"""


def test_a_row_that_moves_keeps_the_focus(watched: Watched):
    """Users.md section 3: focus preserved over refresh, also where the order has changed."""
    page = watched.open("configuration")
    page.evaluate(TABLE)
    assert page.evaluate("update(['a', 'first', 1], ['b', 'second', 2])") == ["first 1", "second 2"]
    page.locator("#under-test tbody button", has_text="second").focus()
    assert page.evaluate("update(['a', 'first', 3], ['b', 'second', 2])") == ["second 2", "first 3"]
    assert page.evaluate("document.activeElement.textContent") == "second"
    page.locator("#under-test tbody button", has_text="first").focus()
    assert page.evaluate("update(['a', 'first', 1], ['b', 'second', 2])") == ["first 1", "second 2"]
    assert page.evaluate("document.activeElement.textContent") == "first"


def test_two_rows_that_look_the_same_are_two_rows(watched: Watched):
    """Two members of a group may do the same at the same time."""
    page = watched.open("configuration")
    page.evaluate(TABLE)
    for _ in range(3):
        assert page.evaluate("update(['a', 'same', 1], ['a', 'same', 1], ['b', 'other', 2])") == [
            "same 1",
            "same 1",
            "other 2",
        ]


def test_a_long_wait_does_not_hide_where_the_time_of_others_goes(watched: Watched):
    """Row 22: a fetch's wait for data is no slowness."""
    page = watched.open("overview")
    drawn = page.evaluate(
        """async () => {
            const { bar, scaleOf } = await import('/static/phases.js');
            const both = [[100, 100, 500000, 100, 100], [100, 100, 0, 100, 100]];
            const width = (part) => Number(part.getAttribute('width'));
            return both.map((each) => bar(each, scaleOf(both))).map((each) => ({
                widths: [...each.querySelectorAll('rect')].map(width), cuts: each.querySelectorAll('.cut').length }));
        }"""
    )
    fetch, produce = drawn
    assert sum(fetch["widths"]) == pytest.approx(1000)
    assert fetch["widths"][:2] == produce["widths"][:2], "one scale"
    assert (fetch["cuts"], produce["cuts"]) == (1, 0)


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
    page.wait_for_selector("body.stale", timeout=WAIT_MS)
    with page.expect_request(lambda request: "/events/" in request.url):
        said = page.evaluate(
            "window.away = false; document.dispatchEvent(new Event('visibilitychange'));"
            "document.getElementById('state').textContent"
        )
    assert said == "Asking", "nobody was asked meanwhile, so nobody failed to answer"
    page.wait_for_selector("body:not(.stale)", timeout=WAIT_MS)


def test_old_facts_are_grey_and_say_their_age(watched: Watched, broker: BrokerProcess):
    """A page without responses must not look like a broker without traffic."""
    page = watched.open("overview")
    [web] = broker.processes("web")
    os.kill(web["pid"], signal.SIGSTOP)
    try:
        page.wait_for_selector("body.stale", timeout=WAIT_MS)
        assert "s old" in page.locator("#age").inner_text()
        expect(page.locator("#state")).to_have_text("No response")
    finally:
        os.kill(web["pid"], signal.SIGCONT)
    page.wait_for_selector("body:not(.stale)", timeout=WAIT_MS)
    expect(page.locator("#state")).to_have_text("Ready")


def test_a_killed_handler_is_shown_as_restarted(watched: Watched, broker: BrokerProcess):
    page = watched.open("processes")
    os.kill(broker.processes("handler")[0]["pid"], signal.SIGKILL)
    row = page.locator("#processes tbody tr", has_text="handler 0")
    expect(row).to_contain_text("killed by signal 9")
    expect(row).to_contain_text("running")


def test_hostile_names_are_text(watched: Watched, broker: BrokerProcess):
    """Row 23: a client chooses its name freely."""
    producer = Producer({"bootstrap.servers": broker.bootstrap, "client.id": HOSTILE})
    producer.produce("orders", b"x")
    producer.flush(deadline_s())
    page = watched.open("clients")
    expect(page.locator("#clients tbody")).to_contain_text(SHOWN, timeout=WAIT_MS)
    page = watched.open("requests")
    assert page.locator("#screen img").count() == 0
    producer.flush(1)


def test_who_produces_to_a_topic_can_be_asked(watched: Watched):
    """Row 5: connections are found by client, topic, API and address."""
    page = watched.open("clients")
    page.fill("#filter", "CLICKSTREAM")
    rows = page.locator("#clients tbody tr")
    expect(rows.filter(has_not_text="clickstream")).to_have_count(0)
    for name in ("web-frontend", "analytics"):
        expect(rows.filter(has_text=name)).not_to_have_count(0)
    names = {text.split("\t")[0] for text in rows.all_inner_texts()}
    assert names == {"web-frontend", "analytics"}
    page.fill("#filter", "nobody like that")
    expect(page.locator("#clients")).to_contain_text("No matching client is connected.")


def test_s124_a_share_group_shows_its_partitions(watched: Watched):
    """S124: in place of committed offsets, which a share group does not have."""
    page = watched.open("groups")
    page.get_by_role("button", name="shipping").click()
    expect(page.locator("#shares tbody tr")).to_have_count(6)
    expect(page.locator("#offsets")).to_be_hidden()
    heads = page.locator("#shares thead th").all_inner_texts()
    row = dict(zip(heads, page.locator("#shares tbody tr").first.locator("td").all_inner_texts(), strict=True))
    start, end, in_flight = (int(row[name].replace(",", "")) for name in ("start", "end of window", "in flight"))
    assert end - start == in_flight
    page.get_by_role("button", name="billing").click()
    expect(page.locator("#shares")).to_be_hidden()
    expect(page.locator("#offsets tbody tr")).to_have_count(6)


def test_the_timeline_of_groups_says_what_its_signs_mean(watched: Watched):
    """Row 21; users.md section 3: no signals by colour alone."""
    page = watched.open("groups")
    kinds = page.locator("#timeline-legend span").all_inner_texts()
    assert kinds == ["join", "expire", "leave", "rebalance", "other"]
    join, rebalance = (page.locator(f"#timeline path.{kind}").first for kind in ("join", "rebalance"))
    assert join.get_attribute("d") != rebalance.get_attribute("d")
    assert "join" in (join.locator("title").text_content() or "")


def try_stream(broker: BrokerProcess) -> socket.socket | None:
    """Return a connection with a stream of events, or None if the broker has none left."""
    stream = socket.create_connection(address(broker), timeout=deadline_s())
    stream.sendall(b"GET /events/overview HTTP/1.1\r\nHost: localhost\r\n\r\n")
    if stream.recv(12).endswith(b"200"):
        return stream
    stream.close()
    return None


def test_a_screen_without_a_stream_asks_now_and_then(browser: Browser, broker: BrokerProcess, load: PageLoad):
    """Other streams use all there are; when they end, it gets one."""
    assert load.consumed
    with ExitStack() as held:
        for _ in range(100):
            # The pages of earlier tests give their streams back when the broker notices their end.
            held.enter_context(wait_until(lambda: try_stream(broker), "a stream"))
        found = Watched(browser, broker.status()["status_url"])
        page = found.open("overview")
        expect(page.locator("#state")).to_have_text("Ready")
        first = page.locator("#age").inner_text()
        expect(page.locator("#age")).not_to_have_text(first)
        # Facts that are stale on a slow machine are marked so until the next response.
        expect(page.locator("body.stale")).to_have_count(0)
    with page.expect_request(lambda request: "/events/" in request.url, timeout=WAIT_MS) as asked:
        pass
    expect(page.locator("#state")).to_have_text("Ready")
    assert asked.value.url.endswith("/events/overview")
    found.page.close()
    # The browser itself reports that a stream was refused.
    assert all("503" in complaint for complaint in found.complaints)
