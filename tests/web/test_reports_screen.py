"""The screen Reports of a real broker in a browser: results that jobs left, and anything else that may lie there."""

import json
import os
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from html import escape
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from rotunda.spark.jobs import JOBS
from rotunda.spark.results.charts import Chart, Series, to_html
from tests.support.broker_process import PAGE, BrokerProcess
from tests.support.report_files import write_report
from tests.support.status_page import ask
from tests.web.test_screens import Watched

pytestmark = pytest.mark.slow

BROKER_SETTINGS = {**PAGE, "num.network.threads": 1, "num.io.threads": 1}
HOSTILE = '"><img src=x onerror=alert(1)>\u202e'
SHOWN = HOSTILE.replace("\u202e", "\\u{202e}")
LABELS = ["PRODUCE", "FETCH", HOSTILE, "a-client-with-a-very-long-name-that-goes-on-and-on" * 3]
PHASES = [Series(name, [10.0, 2e6, 300.0, None]) for name in ("queue", "handler", "waiting", "response queue", "send")]
CHART = Chart("Where time goes", "shares", LABELS, PHASES, "µs")


@pytest.fixture(scope="module")
def reports(broker: BrokerProcess) -> Path:
    """Return the directory where the jobs of the broker leave their results."""
    return Path(broker.status()["data_dir"]) / "reports"


@pytest.fixture
def watched(browser: Browser, broker: BrokerProcess) -> Iterator[Watched]:
    """Yield a page and assert that it did nothing it should not."""
    found = Watched(browser, broker.status()["status_url"], color_scheme="light")
    yield found
    found.page.close()
    assert not found.complaints


def opened(watched: Watched, job: str) -> Page:
    """Return the screen with a job chosen."""
    watched.page.goto("about:blank")
    watched.page.goto(f"{watched.url}reports#{job}")
    expect(watched.page.locator("#report-title")).to_have_text(job)
    return watched.page


def see_the_age_change(page: Page) -> None:
    """Wait until the page has applied the broker's next update."""
    age = page.locator("#age").inner_text()
    expect(page.locator("#age")).not_to_have_text(age)


def row(page: Page, job: str) -> Any:
    """Return the row of a job."""
    return page.locator("#jobs tbody tr").filter(has=page.get_by_role("button", name=job, exact=True))


def test_what_can_be_asked_for(broker: BrokerProcess, reports: Path):
    write_report(reports, "latency", CHART)
    code, headers, body = ask(broker, "/reports.json")
    assert (code, headers["content-type"]) == (200, "application/json")
    assert [each["job"] for each in json.loads(body)] == list(JOBS)
    assert {each["state"] for each in json.loads(body) if each["job"] == "latency"} == {"there"}
    report = json.loads(ask(broker, "/reports/latency/summary.json")[2])
    assert report["tables"][0]["rows"][0] == ["app", 1200, 20.5]
    code, headers, body = ask(broker, "/reports/latency/chart.svg")
    assert (code, headers["content-type"]) == (200, "image/svg+xml")
    assert "default-src 'self'" in headers["content-security-policy"]
    assert headers["x-content-type-options"] == "nosniff"
    assert body.startswith(b"<svg ")
    assert ask(broker, "/reports.json", Host="evil.example")[0] == 421
    assert ask(broker, "/reports/latency/chart.svg", Host="evil.example")[0] == 421
    assert ask(broker, "/reports/nothing/summary.json")[0] == 404
    assert ask(broker, "/reports/nothing/chart.svg")[0] == 404
    assert ask(broker, "/reports/rollup/chart.svg")[0] == 404
    (reports.parent / "summary.json").write_text((reports / "latency" / "summary.json").read_text())
    for name in (
        "..",
        "%2e%2e",
        "..%2f..",
        "latency%2f..%2flatency",
        "Latency",
        "latency%00",
        "%2e%2e%2freports%2flatency",
    ):
        assert ask(broker, f"/reports/{name}/summary.json")[0] in {404, 422}, name
        assert ask(broker, f"/reports/{name}/chart.svg")[0] in {404, 422}, name
    for method in ("POST", "PUT", "DELETE"):
        assert ask(broker, "/reports/latency/summary.json", method)[0] == 405


def test_a_result_stands_there_with_range_table_chart_and_command(watched: Watched, reports: Path):
    rows = [[HOSTILE, 1200, 20.5, 0.25], ["b" * 5000, 7, None, 1.0]]
    columns = ["clientId", "requests", "p99Us", HOSTILE]
    write_report(
        reports, "latency", CHART, headline=f"slow: {HOSTILE}", tables={HOSTILE: {"columns": columns, "rows": rows}}
    )
    page = opened(watched, "latency")
    expect(page.locator("#report-headline")).to_have_text(f"slow: {SHOWN}")
    expect(page.locator("#report-command")).to_have_text("rotunda report latency --from 24h")
    expect(page.locator("#report-facts")).to_contain_text("took 10 s")
    expect(page.locator("#report-facts")).to_contain_text("complete: every request of the range has its row")
    expect(page.locator("#report-facts")).to_contain_text("clients")
    expect(page.locator("#report-tables thead")).to_contain_text("p99")
    expect(page.locator("#report-tables tbody")).to_contain_text(SHOWN)
    expect(page.locator("#report-tables tbody")).to_contain_text("21 µs")
    expect(page.locator("#report-chart figcaption")).to_have_text("Where time goes")
    expect(page.locator("#report-chart svg text", has_text="PRODUCE")).to_be_visible()
    assert "2 s" in (page.locator("#report-chart svg title").nth(1).text_content() or "")
    assert page.locator("#screen img").count() == 0
    row(page, "rollup").get_by_role("button").click()
    expect(page.locator("#report-headline")).to_have_text("no result yet")
    expect(page.locator("#report-command")).to_contain_text("rotunda report rollup --data-dir")
    expect(page.locator("#report-chart")).to_be_hidden()


SHOW = """async ([name, value]) => {
    const { cell, title } = await import('/static/report.js');
    return [title(name), cell(name, value)];
}"""


def test_columns_are_shown_by_what_their_names_say(browser: Browser, broker: BrokerProcess):
    found = Watched(browser, broker.status()["status_url"], timezone_id="Asia/Tokyo")
    # A job without a result: one of another test may be deleted before the page requests it.
    page = opened(found, "rollup")
    cells = [
        ("p999Us", 1234567, "p99.9", "1.2 s"),
        ("lingerMs", 5, "linger", "5.0 ms"),
        ("hottestShare", 0.004, "hottest share", "<1 %"),
        ("share", 0.5, "share", "50 %"),
        ("bytesIn", 4594737, "bytes in", "4.6 MB"),
        ("bytesPerRequestMean", 249, "bytes per request mean", "249 B"),
        ("requestBytes", None, "request bytes", "\u2013"),
        ("requests", 22298, "requests", "22,298"),
        ("gini", 0.01234, "gini", "0.0123"),
        ("isHot", True, "is hot", "yes"),
        ("since", "2026-03-01T10:00:00.123456+00:00", "since", "2026-03-01 19:00:00"),
        ("clientId", "2026-03", "client", "2026-03"),
    ]
    for name, value, title, text in cells:
        assert page.evaluate(SHOW, [name, value]) == [title, text]
    found.page.close()
    assert not found.complaints


def test_the_chart_follows_the_theme(watched: Watched, reports: Path):
    write_report(reports, "latency", CHART)
    page = opened(watched, "latency")
    text = page.locator("#report-chart svg text").first
    colour = "element => getComputedStyle(element).fill"
    light = text.evaluate(colour)
    bar = page.locator("#report-chart svg rect").first.evaluate(colour)
    page.click("#theme")
    assert text.evaluate(colour) != light
    assert page.locator("#report-chart svg rect").first.evaluate(colour) != bar


def test_jobs_are_chosen_by_keyboard_and_keep_the_focus(watched: Watched, reports: Path):
    write_report(reports, "latency", CHART)
    page = opened(watched, "latency")
    button = row(page, "rollup").get_by_role("button")
    button.focus()
    page.keyboard.press("Enter")
    expect(page.locator("#report-title")).to_have_text("rollup")
    expect(button).to_have_attribute("aria-expanded", "true")
    assert page.url.endswith("#rollup")
    see_the_age_change(page)
    assert page.evaluate("document.activeElement.textContent") == "rollup"


def test_a_new_result_comes_by_itself_and_one_that_stands_is_not_asked_for_again(watched: Watched, reports: Path):
    write_report(reports, "latency", CHART, headline="the first")
    page = opened(watched, "latency")
    # Until then the page may show the results of another test.
    expect(page.locator("#report-headline")).to_have_text("the first")
    expect(page.locator("#report-tables tbody tr")).to_have_count(2)
    see_the_age_change(page)
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    see_the_age_change(page)
    see_the_age_change(page)
    assert not asked
    write_report(reports, "latency", CHART, headline="another")
    expect(page.locator("#report-headline")).to_have_text("another")
    expect(page.locator("#report-tables tbody tr")).to_have_count(2)
    (reports / "latency" / "summary.json").unlink()
    expect(page.locator("#report-headline")).to_have_text("no result yet")


def test_what_cannot_be_read_is_said(watched: Watched, reports: Path):
    write_report(reports, "latency", version=7)
    page = opened(watched, "latency")
    expect(page.locator("#report-headline")).to_contain_text("version 7; this page knows version 1")
    expect(row(page, "latency")).to_contain_text("cannot be read")
    with (reports / "latency" / "summary.json").open("r+b") as file:
        os.ftruncate(file.fileno(), 100_000_000)
    expect(page.locator("#report-headline")).to_contain_text("larger than 2 MB")
    expect(page.locator("#state")).to_have_text("Ready")


def test_a_chart_that_runs_something_runs_nothing(watched: Watched, reports: Path):
    inner = '<script>alert(1)</script><rect width="9" height="9"/>'
    evil = f'<svg xmlns="http://www.w3.org/2000/svg" onload="alert(1)">{inner}</svg>'
    write_report(reports, "latency", evil)
    page = opened(watched, "latency")
    expect(page.locator("#report-chart svg rect")).to_have_count(1)
    assert page.locator("#report-chart script").count() == 0


def test_a_file_that_is_no_chart_is_said(browser: Browser, broker: BrokerProcess, reports: Path):
    write_report(reports, "latency", "<!DOCTYPE svg [<!ENTITY a 'b'>]><svg/>")
    found = Watched(browser, broker.status()["status_url"])
    page = opened(found, "latency")
    expect(page.locator("#report-chart")).to_contain_text("The chart is not shown: the chart declares a document type.")
    expect(page.locator("#report-tables tbody tr")).to_have_count(2)
    found.page.close()
    # The browser itself reports that something was not found.
    assert all("404" in complaint for complaint in found.complaints)


@pytest.mark.parametrize("width", [390, 900])
def test_it_fits_small_screens(browser: Browser, broker: BrokerProcess, reports: Path, width: int):
    columns = ["requestApiKeyName", *(f"column{n}Us" for n in range(20))]
    table = {"columns": columns, "rows": [["OFFSET_COMMIT", *range(20)], ["x" * 300, *range(20)]]}
    write_report(reports, "latency", CHART, tables={"latency": table}, headline="long " * 40 + "y" * 300)
    found = Watched(browser, broker.status()["status_url"], width)
    page = opened(found, "latency")
    expect(page.locator("#report-chart svg")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    found.page.close()
    assert not found.complaints


def test_the_diagnosis_stands_on_the_overview_with_its_age(watched: Watched, reports: Path):
    page = watched.open("overview")
    expect(page.locator("#diagnosis")).to_be_hidden()
    ended = datetime.now(UTC) - timedelta(minutes=12, seconds=10)
    path = write_report(reports, "diagnose", headline=HOSTILE, ended=ended.isoformat())
    expect(page.locator("#diagnosis")).to_have_text(f"Diagnosis{SHOWN}12 min ago")
    page.locator("#diagnosis a").click()
    assert page.url.endswith("/reports#diagnose")
    expect(page.locator("#report-title")).to_have_text("diagnose")
    path.unlink()
    page = watched.open("overview")
    expect(page.locator("#diagnosis")).to_be_hidden()


HOURS = [f"2026-11-21 {hour:02}:00" for hour in range(24)] * 7
LONG = ["W" * 300, "日本語のクライアント名前がここに立つ", "ok"]
MANY = [Series(f"Client With A Long Name {n}" * (n % 4), [n * 1000.0] * 48) for n in range(40)]
CHARTS = [
    CHART,
    Chart("one", "bars", ["PRODUCE"], [Series("requests", [123456789.0])], "B"),
    Chart("none", "lines", [], [], "B"),
    Chart("zeros", "bars", ["a", "b"], [Series("a", [0.0, 0.0])], "requests"),
    Chart("long", "bars", LONG, [Series("bytes", [5e18, 3.0, 0.0])], "B"),
    Chart("hours", "bars", HOURS, [Series("n", [float(n) for n in range(len(HOURS))])], "requests"),
    Chart("many", "lines", HOURS[:48], MANY, "requests/s"),
    Chart("small", "lines", ["a", "b", "c"], [Series("x", [1e-9, None, 2e-9]), Series("y", [None] * 3)], "share"),
]

LAYOUT = """() => {
    const svg = document.querySelector('svg'), all = svg.getBoundingClientRect();
    const boxes = [...svg.querySelectorAll('text')].map((each) => [each.textContent, each.getBoundingClientRect()]);
    const across = (a, b, by) => a.left < b.right - by && b.left < a.right - by;
    const upright = (a, b, by) => a.top < b.bottom - by && b.top < a.bottom - by;
    const within = (a, b) =>
        a.left > b.left - 1 && a.right < b.right + 1 && a.top > b.top - 1 && a.bottom < b.bottom + 1;
    const outside = boxes.filter(([, box]) => !within(box, all)).map(([text]) => `outside: ${text}`);
    const on = boxes.flatMap(([text, box]) => boxes
        .filter(([, other]) => other !== box && across(box, other, 1) && upright(box, other, 4))
        .map(([other]) => `${text} on ${other}`));
    return [...outside, ...on];
}"""


@pytest.mark.parametrize("chart", CHARTS, ids=lambda chart: chart.title)
def test_texts_of_a_chart_stand_within_it_and_not_on_each_other(browser: Browser, chart: Chart):
    page = browser.new_page(viewport={"width": 800, "height": 600}, color_scheme="dark")
    page.set_content(to_html(chart))
    assert page.evaluate(LAYOUT) == []
    assert escape(chart.title) in page.content()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(25, 30, 36)"
    page.close()
