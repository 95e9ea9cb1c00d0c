"""The browser shared by the tests of screens, and its timeout."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect, sync_playwright

CHROMIUM = "/usr/bin/chromium"

#: For all waits; the default of five seconds is little on a busy machine.
WAIT_MS = 90_000


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Start Chromium once in a module: Playwright's event loop would be in the way of other modules' loops."""
    expect.set_options(timeout=WAIT_MS)
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield started
        started.close()
