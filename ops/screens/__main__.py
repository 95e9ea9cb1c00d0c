"""Takes a screenshot of every screen: ``ops/screenshots [--all] [--only SCREEN] [--to DIR]``.

Without options: each screen once in the light theme, the overview also in the dark theme, and with a handler that has
stopped, for docs/. With --all: both themes at all widths, for visual review. The screen Reports shows real runs of
Spark jobs over the request log of this broker.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from playwright.sync_api import Browser, Page, sync_playwright

from ops.screens.load import SHARE_GROUP, PageLoad, warm_up
from rotunda.web.screens import SCREENS

ROOT = Path(__file__).resolve().parents[2]
CHROMIUM = "/usr/bin/chromium"
WIDE, NARROW, TELEPHONE = 1440, 900, 390
HEIGHT = 900

#: Until the sparklines show something.
WARM_UP_S = 40
SETTLE_MS = 2500

#: Jobs that are run before their results are shown, the one in the screenshot first.
REPORTS = ("latency", "traffic", "diagnose")

#: Time for which a handler is stopped before the screenshot of its queue.
STOPPED_MS = 6000


class Picture(NamedTuple):
    """One screenshot to make."""

    screen: str
    theme: str
    width: int

    @property
    def file(self) -> str:
        """Its name."""
        theme = "" if self.theme == "light" else f"-{self.theme}"
        return f"status-{self.screen}{theme}{'' if self.width == WIDE else f'-{self.width}'}.png"


def main() -> int:
    """Start a broker and its clients, make the screenshots, stop."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--all", action="store_true", help="both themes at all widths")
    parser.add_argument("--only", choices=[screen.name for screen in SCREENS], help="no other screen")
    parser.add_argument("--to", type=Path, default=ROOT / "docs" / "images", metavar="DIR", help="default: docs/images")
    arguments = parser.parse_args()
    arguments.to.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="rotunda-screens-") as directory:
        facts = start(directory)
        load = PageLoad(facts["bootstrap"]).start()
        try:
            warm_up(load)
            wanted = [each for each in pictures(every=arguments.all) if arguments.only in {None, each.screen}]
            if any(each.screen in {"reports", "overview"} for each in wanted):
                time.sleep(WARM_UP_S)
                for name in REPORTS:
                    rotunda("report", name, "--run-dir", directory, "--from", "1h")
            take(facts["status_url"], wanted, arguments.to)
            if arguments.only is None:
                take_queue(facts["status_url"], handler_of(directory), arguments.to)
        finally:
            load.stop()
            rotunda("stop", "--run-dir", directory)
    return 0


def start(run_dir: str) -> dict[str, str]:
    """Start a broker and return the values of its ready line."""
    settings = (
        "listeners=PLAINTEXT://127.0.0.1:0", "status.port=0", "num.network.threads=2", "num.io.threads=2",
        "request.log.roll.ms=1000",
    )  # fmt: skip
    flags = [flag for setting in settings for flag in ("--set", setting)]
    said = rotunda("start", "--ephemeral", "--run-dir", run_dir, "--daemon", "--wait", "30", "--json", *flags)
    found: dict[str, str] = json.loads(said)
    return found


def rotunda(*arguments: str) -> str:
    """Run the command line and return its output."""
    return subprocess.run(
        [sys.executable, "-m", "rotunda", *arguments], check=True, capture_output=True, text=True
    ).stdout


def pictures(*, every: bool) -> list[Picture]:
    """Return the screenshots to make."""
    if every:
        return [
            Picture(screen.name, theme, width)
            for theme in ("light", "dark")
            for width in (WIDE, NARROW, TELEPHONE)
            for screen in SCREENS
        ]
    return [*(Picture(screen.name, "light", WIDE) for screen in SCREENS), Picture("overview", "dark", WIDE)]


def take(url: str, wanted: list[Picture], directory: Path) -> None:
    """Make the screenshots, after watching long enough for rates and sparklines."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        pages: dict[tuple[str, int], Page] = {}
        for picture in wanted:
            key = picture.theme, picture.width
            if key not in pages:
                pages[key] = looked_at(browser, url, picture)
            page = pages[key]
            path = {"overview": "", "reports": f"reports#{REPORTS[0]}"}.get(picture.screen, picture.screen)
            page.goto(url + path)
            page.wait_for_selector("#state[data-level]")
            page.wait_for_timeout(SETTLE_MS)
            if picture.screen == "groups":
                page.get_by_role("button", name=SHARE_GROUP, exact=True).click()
                page.wait_for_timeout(200)
            if picture.screen == "topics":
                page.locator("#topics tbody button").first.click()
                page.wait_for_timeout(200)
            if picture.screen == "reports":
                page.wait_for_selector("#report-chart svg")
            # The configuration is long; its beginning is enough.
            save(page, directory / picture.file, full_page=picture.screen != "configuration")
        browser.close()


def take_queue(url: str, handler_pid: int, directory: Path) -> None:
    """Make the screenshot of requests that queue for a stopped handler; the handler resumes afterwards."""
    picture = Picture("overview", "light", WIDE)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        page = looked_at(browser, url, picture)
        page.goto(url)
        os.kill(handler_pid, signal.SIGSTOP)
        try:
            page.wait_for_timeout(STOPPED_MS)
            save(page, directory / "status-overview-queue.png")
        finally:
            os.kill(handler_pid, signal.SIGCONT)
        browser.close()


def handler_of(run_dir: str) -> int:
    """Return the process id of the first handler."""
    processes = json.loads(rotunda("status", "--json", "--run-dir", run_dir))["processes"]
    return next(int(each["pid"]) for each in processes if each["role"] == "handler")


def save(page: Page, path: Path, *, full_page: bool = True) -> None:
    """Write a picture of a page."""
    page.screenshot(path=path, full_page=full_page)
    # 256 colours are plenty, and half the size.
    subprocess.run(["pngquant", "--force", "--ext", ".png", "--skip-if-larger", "256", str(path)], check=False)
    print(f"{path} {path.stat().st_size / 1000:.0f} kB", flush=True)


def looked_at(browser: Browser, url: str, picture: Picture) -> Page:
    """Return a page after watching the screens whose tiles have sparklines for a while."""
    page = browser.new_page(viewport={"width": picture.width, "height": HEIGHT}, color_scheme=picture.theme)  # type: ignore[arg-type]
    with_sparklines = ("", "topics", "groups", "processes")
    for path in with_sparklines:
        page.goto(url + path)
        end = time.monotonic() + WARM_UP_S / len(with_sparklines)
        while time.monotonic() < end:
            page.wait_for_timeout(500)
    return page


if __name__ == "__main__":
    sys.exit(main())
