"""The screen of a topic in a browser: its address, its records, and that hostile records stay text."""

import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest
from confluent_kafka import Consumer, Producer
from playwright.sync_api import Browser, Page, expect

from tests.support.broker_process import PAGE, BrokerProcess
from tests.support.deadline import deadline_s, wait_until
from tests.web.conftest import WAIT_MS

pytestmark = pytest.mark.slow

BROKER_SETTINGS = {**PAGE, "request.log.roll.ms": 500}
TELEPHONE = 390
SCRIPT = "<script>document.title = 'owned'</script><img src=x onerror=alert(1)>"
VALUES = (
    SCRIPT.encode(),
    "\u202eright to left\u2066".encode(),
    b"long " * 20_000,
    b"\xff\xfe\x00 not UTF-8",
    b'{"html": "<b>bold</b>", "price": 1.10, "deep": [[[1]]]}',
)


@pytest.fixture(scope="module")
def broker_with_records(broker: BrokerProcess) -> BrokerProcess:
    """Write hostile records, and let a group read them."""
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for value in VALUES:
        producer.produce("orders", value, key=SCRIPT.encode(), headers=[(SCRIPT, SCRIPT.encode())])
    producer.produce("orders", None, key=b"\x00\x01")
    assert producer.flush(deadline_s()) == 0
    config = {"bootstrap.servers": broker.bootstrap, "group.id": "billing", "auto.offset.reset": "earliest"}
    consumer = Consumer(config)
    consumer.subscribe(["orders"])
    wait_until(lambda: consumer.poll(0.1), "a record")
    consumer.close()
    return broker


@pytest.fixture
def page(browser: Browser, broker_with_records: BrokerProcess) -> Iterator[Page]:
    """Yield a page on a telephone that did nothing it should not."""
    url = broker_with_records.status()["status_url"]
    opened = browser.new_page(viewport={"width": TELEPHONE, "height": 900}, base_url=url)
    opened.set_default_timeout(WAIT_MS)
    complaints: list[str] = []
    opened.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
    opened.on("pageerror", lambda error: complaints.append(str(error)))
    opened.on("dialog", lambda dialog: complaints.append(dialog.message))
    yield opened
    opened.close()
    assert not complaints


def assert_fits(page: Page) -> None:
    """Assert that nothing scrolls sideways, on a desk and on a telephone."""
    wide = """[...document.querySelectorAll('html, .panel, .scroll, pre')]
        .filter((each) => each.scrollWidth > each.clientWidth + 1).map((each) => each.className || each.tagName)"""
    for width in (1440, TELEPHONE):
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate(wide) == []


def test_a_topic_shows_its_records_as_text(page: Page) -> None:
    page.goto("topics#orders")
    expect(page.locator("#topic-title")).to_have_text("orders")
    expect(page.locator("#readers tbody tr")).to_contain_text(re.compile("billing"))
    expect(page.locator("#partitions tbody tr")).to_have_count(1)
    page.get_by_role("button", name="Read", exact=True).click()
    records = page.locator("#records-list > li")
    expect(records).to_have_count(6)
    for each in records.all()[1:]:
        each.locator("summary").click()
    expect(records.nth(0).locator("dd").nth(1)).to_have_text("null")
    expect(records.nth(0).locator("pre").first).to_have_text("00 01")
    expect(records.nth(1).locator("pre").nth(1)).to_have_text(
        '{\n  "html": "<b>bold</b>",\n  "price": 1.10,\n  "deep": [\n    [\n      [\n        1\n      ]\n    ]\n  ]\n}',
        use_inner_text=True,
    )
    expect(records.nth(2).locator("pre").nth(1)).to_have_text(re.compile("^ff fe 00 20"))
    expect(records.nth(3)).to_contain_text("100 kB, only the beginning is shown")
    expect(records.nth(4)).to_contain_text("\\u{202e}right to left\\u{2066}")
    expect(records.nth(5).locator("dt").nth(2)).to_have_text(SCRIPT)
    assert page.locator("#screen img, #screen script").count() == 0
    expect(page).to_have_title("orders · Topics · Rotunda")
    assert_fits(page)


def test_records_are_found_by_key_and_by_offset(page: Page) -> None:
    page.goto("topics#orders")
    page.fill("#records-key", "hex:00 01")
    page.get_by_role("button", name="Read", exact=True).click()
    expect(page.locator("#records-list > li")).to_have_count(1)
    page.fill("#records-key", "nobody")
    page.get_by_role("button", name="Read", exact=True).click()
    expect(page.locator("#records-status")).to_have_text("No record with this key: examined 6 of 6 offsets.")
    page.fill("#records-key", "")
    page.select_option("#records-from", "offset")
    page.fill("#records-offset", "4")
    page.fill("#records-count", "1")
    page.get_by_role("button", name="Read", exact=True).click()
    expect(page.locator("#records-list > li summary")).to_contain_text("0:4")
    page.get_by_role("button", name="Newer").click()
    expect(page.locator("#records-list > li summary")).to_contain_text("0:5")
    assert "nobody" not in page.url


def test_an_opened_item_has_an_address(page: Page) -> None:
    """The back button, a reload and a link."""
    page.goto("topics")
    page.get_by_role("button", name="orders", exact=True).click()
    expect(page.locator("#topic-title")).to_have_text("orders")
    assert page.url.endswith("topics#orders")
    page.reload()
    expect(page.locator("#topic-title")).to_have_text("orders")
    page.locator("#readers a", has_text="billing").click()
    expect(page.locator("#members-panel")).to_be_visible()
    assert page.url.endswith("groups#billing")
    assert_fits(page)
    page.go_back()
    expect(page.locator("#topic-title")).to_have_text("orders")
    page.goto(f"topics#{quote(SCRIPT)}")
    expect(page.locator("#topic-missing")).to_have_text(f"There is no topic {SCRIPT}.")


def test_requests_are_filtered_and_the_filter_has_an_address(page: Page) -> None:
    page.goto("requests#api=produce&topic=orders")
    expect(page.locator("#filter-api")).to_have_value("produce")
    rows = page.locator("#tail tbody tr")
    expect(rows.first).to_contain_text("Produce")
    expect(rows.filter(has_not_text="Produce")).to_have_count(0)
    # The number of searched requests, and the time of the first.
    expect(page.locator("#tail caption .count")).to_have_text(re.compile(r"^\d+ of [\d,]+ since \d\d:\d\d:\d\d$"))
    page.fill("#filter-slower", "100000")
    expect(page.locator("#tail")).to_contain_text("No matching request.")
    expect(page.locator("#tail caption .count")).to_have_text(re.compile("^0 of "))
    assert "slower=100000" in page.url
    assert_fits(page)


def test_filters_search_the_request_log(page: Page) -> None:
    """Requests that are long over: here those before the page was opened, once their file is finished."""
    page.goto("requests#api=produce&client=rdkafka&since=24")
    expect(page.locator("#filter-since")).to_have_value("24")
    found = page.locator("#logged tbody tr")

    def is_found() -> bool:
        page.get_by_role("button", name="Search the request log").click()
        expect(page.locator("#logged-notes")).to_contain_text(
            re.compile(r"searched [\d,]+ recorded requests? since 20")
        )
        return found.count() > 0

    wait_until(is_found, "a finished file")
    expect(found.filter(has_not_text="Produce")).to_have_count(0)
    expect(found.first).to_contain_text("orders")
    expect(page.locator("#logged-command")).to_contain_text("--api=*produce*")
    assert_fits(page)
    page.fill("#filter-client", "nobody")
    page.get_by_role("button", name="Search the request log").click()
    expect(page.locator("#logged")).to_contain_text("No matching request.")
    expect(page.locator("#logged-notes")).to_contain_text("no matching request")
    page.fill("#filter-client", "")
    page.fill("#filter-api", "")
    page.get_by_role("button", name="Search the request log").click()
    expect(page.locator("#logged-panel")).to_be_hidden()


def test_numbers_of_settings_are_for_people(page: Page) -> None:
    page.goto("configuration")
    shown: Any = page.evaluate(
        """async () => {
            const { setting } = await import('./static/format.js');
            return [['log.retention.ms', '604800000'], ['retention.ms', '-1'], ['x.bytes', '1073741824'],
                ['max', '2147483647'], ['level', '-1'], ['x.ms', '1500']].map((each) => setting(...each));
        }"""
    )
    assert shown == [
        "7 d (604800000)", "unlimited (-1)", "1 GiB (1073741824)", "unlimited (2147483647)", "-1", "1.5 s (1500)",
    ]  # fmt: skip


def test_a_missing_page_is_a_page(browser: Browser, broker_with_records: BrokerProcess) -> None:
    page = browser.new_page(base_url=broker_with_records.status()["status_url"])
    answer = page.goto("no/such/page")
    assert answer is not None
    assert answer.status == 404
    expect(page.locator("h1")).to_have_text("No such page")
    expect(page.locator("main code")).to_have_text("/no/such/page")
    page.get_by_role("link", name="Topics").click()
    expect(page).to_have_title("Topics · Rotunda")
    page.close()
