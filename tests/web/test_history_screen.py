"""The screen History of a real broker in a browser: ranges, one cursor for all charts, events, a minute."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from rotunda.broker.request_log.history.hour_files import HourFiles
from rotunda.broker.request_log.part_files import HOUR_US, hour_path
from tests.support.broker_process import PAGE, BrokerProcess
from tests.web.test_screens import Watched

pytestmark = pytest.mark.slow

BROKER_SETTINGS = {**PAGE, "num.network.threads": 1, "num.io.threads": 1, "history.retention.ms": -1}
HOSTILE = '"><img src=x onerror=alert(1)>'
#: 2026-03-01 10:00 UTC.
BEGIN_US = 1_772_359_200_000_000


@pytest.fixture(scope="module")
def night(broker: BrokerProcess) -> str:
    """Write an hour of history, in the middle of which a handler died; return its address."""
    files = HourFiles(Path(broker.status()["data_dir"]) / "request-log")
    for minute in range(60):
        time_us = BEGIN_US + minute * 60_000_000
        files.add({"time": time_us, "kind": "api", "name": "PRODUCE", "requests": 60 * minute, "totalP99Us": 2_000})
        files.add({"time": time_us, "kind": "client", "name": HOSTILE, "requests": 60})
        files.add({"time": time_us, "kind": "broker", "name": "broker", "bytesIn": 60, "connections": 5})
    detail = f"handler 0 ended with signal 9: {HOSTILE}"
    files.add({"time": BEGIN_US + 1_800_000_000, "kind": "event", "name": "process_restart", "detail": detail})
    files.save()
    return "history?from=2026-03-01T10:00:00Z&to=2026-03-01T11:00:00Z"


@pytest.fixture(params=[390, 1440])
def watched(request: pytest.FixtureRequest, browser: Browser, broker: BrokerProcess) -> Iterator[Watched]:
    """Yield a page and assert that it did nothing it should not."""
    found = Watched(browser, broker.status()["status_url"], request.param)
    yield found
    found.page.close()
    assert not found.complaints


def test_a_night_has_charts_with_one_cursor_events_and_minutes(watched: Watched, night: str) -> None:
    page = watched.page
    page.goto(watched.url + night)
    expect(page.locator(".plot:visible")).to_have_count(5)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    requests, latency = (page.locator(".plot", has_text=title).first for title in ("Requests", "Latency, 99 %"))
    expect(requests.locator(".plot-legend")).to_contain_text("Produce 59/s")
    expect(requests.locator(".plot-event")).to_have_count(1)
    expect(page.locator("#events")).to_contain_text(f"handler 0 ended with signal 9: {HOSTILE}")
    frame = latency.locator(".plot-frame")
    frame.scroll_into_view_if_needed()
    box = frame.bounding_box()
    assert box is not None
    # The middle of the axis of time, whose ends are 58 and 8 pixels from the borders.
    x = box["x"] + 58 + (box["width"] - 66) / 2 + 1
    page.mouse.move(x, box["y"] + 60)
    expect(requests.locator(".plot-legend")).to_contain_text("Produce 30/s")
    expect(latency.locator(".plot-legend")).to_contain_text("Produce 2.0 ms")
    page.mouse.down()
    page.mouse.up()
    expect(page.locator("#minute-command")).to_contain_text(
        "--since=2026-03-01T10:30:00.000 --until=2026-03-01T10:31:00.000"
    )
    expect(page.locator("#minute-requests")).to_contain_text("No request of this minute")
    page.mouse.move(x, box["y"] + 60)
    page.mouse.down()
    page.mouse.move(x + 60, box["y"] + 60)
    page.mouse.up()
    page.mouse.move(0, 0)  # under the cursor, legends have the values of its time
    expect(page).not_to_have_url(watched.url + night)
    expect(requests.locator(".plot-legend")).not_to_contain_text("Produce 59/s")
    page.go_back()
    expect(requests.locator(".plot-legend")).to_contain_text("Produce 59/s")


def test_an_hour_with_a_damaged_file_is_named_and_marked(watched: Watched, broker: BrokerProcess, night: str) -> None:
    root = Path(broker.status()["data_dir"]) / "request-log"
    directory = hour_path(root, "history", BEGIN_US // HOUR_US + 1)
    directory.mkdir(exist_ok=True)
    (directory / "minutes-00000000.parquet").write_bytes(b"not of this checksum")
    page = watched.page
    page.goto(watched.url + night)
    expect(page.locator("#history-status")).not_to_contain_text("damaged")
    page.goto(watched.url + night.replace("T11:00", "T12:00"))
    expect(page.locator("#history-status")).to_contain_text("damaged or unreadable: minutes are missing in the hour of")
    expect(page.locator(".plot:visible .plot-unreadable")).to_have_count(5)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_ranges_up_to_now(watched: Watched) -> None:
    page = watched.page
    page.goto(watched.url + "history")
    expect(page.locator("#history-range button[aria-pressed=true]")).to_have_text("Last hour")
    page.locator("#history-range button", has_text="Last week").click()
    expect(page).to_have_url(watched.url + "history?range=week")
    expect(page.locator("#history-range button[aria-pressed=true]")).to_have_text("Last week")
