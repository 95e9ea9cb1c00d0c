"""Takes a screenshot of every screen: ``ops/screenshots [--all] [--only SCREEN] [--to DIR]``.

Without options: each screen once in the light theme, the overview also in the dark theme, and with a handler that has
stopped, for docs/. With --all: both themes at all widths, for visual review. The screen Reports shows real runs of
Spark jobs over the request log of this broker.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from playwright.sync_api import Browser, Page, sync_playwright

from ops.broker import REPOSITORY, SETTINGS, Broker
from ops.screens.load import SHARE_GROUP, PageLoad, warm_up
from rotunda.web.screens import SCREENS

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
        theme = "" if self.theme == "light" else f"-{self.theme}"
        return f"status-{self.screen}{theme}{'' if self.width == WIDE else f'-{self.width}'}.png"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--all", action="store_true", help="both themes at all widths")
    parser.add_argument("--only", choices=[screen.name for screen in SCREENS], help="no other screen")
    parser.add_argument(
        "--to", type=Path, default=REPOSITORY / "docs" / "images", metavar="DIR", help="default: docs/images"
    )
    arguments = parser.parse_args()
    arguments.to.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="rotunda-screens-") as name, Broker(Path(name), SETTINGS) as broker:
        url = broker.status()["status_url"]
        load = PageLoad(broker.bootstrap).start()
        try:
            warm_up(load)
            wanted = [each for each in pictures(every=arguments.all) if arguments.only in {None, each.screen}]
            if any(each.screen in {"reports", "overview"} for each in wanted):
                time.sleep(WARM_UP_S)
                for report in REPORTS:
                    broker.rotunda("report", report, "--from", "1h")
            take(url, wanted, arguments.to)
            if arguments.only is None:
                take_queue(url, broker.processes()["handler"][0], arguments.to)
        finally:
            load.stop()
    return 0


def pictures(*, every: bool) -> list[Picture]:
    if every:
        return [
            Picture(screen.name, theme, width)
            for theme in ("light", "dark")
            for width in (WIDE, NARROW, TELEPHONE)
            for screen in SCREENS
        ]
    return [*(Picture(screen.name, "light", WIDE) for screen in SCREENS), Picture("overview", "dark", WIDE)]


@contextmanager
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield started
        started.close()


def take(url: str, wanted: list[Picture], directory: Path) -> None:
    """Make the screenshots, after watching long enough for rates and sparklines."""
    with browser() as chromium:
        pages: dict[tuple[str, int], Page] = {}
        for picture in wanted:
            key = picture.theme, picture.width
            if key not in pages:
                pages[key] = looked_at(chromium, url, picture)
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


def take_queue(url: str, handler_pid: int, directory: Path) -> None:
    """Make the screenshot of requests that queue for a stopped handler; the handler resumes afterwards."""
    with browser() as chromium:
        page = looked_at(chromium, url, Picture("overview", "light", WIDE))
        page.goto(url)
        os.kill(handler_pid, signal.SIGSTOP)
        try:
            page.wait_for_timeout(STOPPED_MS)
            save(page, directory / "status-overview-queue.png")
        finally:
            os.kill(handler_pid, signal.SIGCONT)


def save(page: Page, path: Path, *, full_page: bool = True) -> None:
    # An opened topic has scrolled the page to itself.
    page.evaluate("scrollTo(0, 0)")
    page.screenshot(path=path, full_page=full_page)
    # 256 colours are plenty, and half the size.
    subprocess.run(["pngquant", "--force", "--ext", ".png", "--skip-if-larger", "256", str(path)], check=False)
    print(f"{path} {path.stat().st_size / 1000:.0f} kB", flush=True)


def looked_at(chromium: Browser, url: str, picture: Picture) -> Page:
    """Return a page after watching the screens whose tiles have sparklines for a while."""
    page = chromium.new_page(viewport={"width": picture.width, "height": HEIGHT}, color_scheme=picture.theme)  # type: ignore[arg-type]
    with_sparklines = ("", "topics", "groups", "processes")
    for path in with_sparklines:
        page.goto(url + path)
        end = time.monotonic() + WARM_UP_S / len(with_sparklines)
        while time.monotonic() < end:
            page.wait_for_timeout(500)
    return page


if __name__ == "__main__":
    sys.exit(main())
