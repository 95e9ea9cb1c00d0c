"""The status page of a broker with tokens: which requests need one, the rights of each, and browsers (row 23)."""

import base64
from collections.abc import Iterator
from contextlib import closing
from http.client import HTTPConnection

import pytest
from playwright.sync_api import Browser, expect

from tests.support.broker_process import PAGE, BrokerProcess
from tests.support.deadline import deadline_s, wait_until
from tests.support.status_page import address, ask
from tests.web.conftest import WAIT_MS

TOKEN, METRICS_TOKEN = "the-page's-token-0", "prometheus-token-1"
BROKER_SETTINGS = {
    **PAGE,
    "num.network.threads": 1,
    "num.io.threads": 1,
    "status.token": TOKEN,
    "metrics.token": METRICS_TOKEN,
}


def bearer(token: str) -> str:
    return f"Bearer {token}"


def test_without_a_token_nothing_but_probes_is_shown(broker: BrokerProcess) -> None:
    """Row 23."""
    for path in ("/", "/status.json", "/metrics", "/openapi.json", "/view/overview", "/static/page.js", "/nowhere"):
        code, headers, body = ask(broker, path)
        assert code == 401, path
        assert "default-src 'self'" in headers["content-security-policy"]
        assert b"status.token" in body
        assert TOKEN.encode() not in body
    with closing(HTTPConnection(*address(broker), timeout=deadline_s())) as connection:
        connection.request("GET", "/")
        challenges = connection.getresponse().headers.get_all("www-authenticate")
    assert challenges == ['Basic realm="Rotunda", charset="UTF-8"', 'Bearer realm="Rotunda"']
    assert ask(broker, "/healthz")[0] == 200
    assert ask(broker, "/readyz")[0] == 200


def test_each_token_opens_what_it_is_for(broker: BrokerProcess) -> None:
    """Row 23: the token of Prometheus is for the metrics."""
    assert ask(broker, "/status.json", Authorization=bearer(TOKEN))[0] == 200
    assert ask(broker, "/metrics", Authorization=bearer(TOKEN))[0] == 200
    assert ask(broker, "/metrics", Authorization=bearer(METRICS_TOKEN))[0] == 200
    assert ask(broker, "/status.json", Authorization=bearer(METRICS_TOKEN))[0] == 401
    basic = base64.b64encode(f"me:{TOKEN}".encode()).decode()
    assert ask(broker, "/status.json", Authorization=f"Basic {basic}")[0] == 200


def test_the_host_is_looked_at_before_the_token(broker: BrokerProcess) -> None:
    """Row 23: a page of another site learns nothing, not even that there is a token."""
    assert ask(broker, "/status.json", Authorization=bearer(TOKEN), Host="evil.example")[0] == 421


def test_wrong_tokens_leave_a_line_without_them(broker: BrokerProcess) -> None:
    for _ in range(20):
        assert ask(broker, "/", Authorization=bearer("a-wrong-token-2345"))[0] == 401
    wait_until(lambda: "status page: rejected 127.0.0.1" in broker.log_text(), "a line")
    assert broker.log_text().count("status page: rejected") < 20
    assert "a-wrong-token" not in broker.log_text()


@pytest.fixture
def opened(browser: Browser, broker: BrokerProcess) -> Iterator[list[str]]:
    """Yield the complaints of a browser that was given the token as a password, with the page open."""
    complaints: list[str] = []
    with browser.new_context(http_credentials={"username": "me", "password": TOKEN}) as context:
        page = context.new_page()
        page.set_default_timeout(WAIT_MS)
        page.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
        page.goto(broker.status()["status_url"])
        expect(page.locator("#pipeline svg").first).to_be_visible()
        expect(page.locator("#age")).not_to_be_empty()
        yield complaints


@pytest.mark.slow
def test_a_browser_shows_the_page_and_keeps_it_up_to_date(opened: list[str]) -> None:
    """Streams and files carry the password too, without a cookie."""
    assert not opened
