"""`rotunda top`: shows the running broker in the terminal, redrawn every second.

Has the same inputs and functions as the status page, and works without it.
"""

from __future__ import annotations

import argparse
import select
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from rotunda.broker.cli.instance.status import run_path
from rotunda.broker.errors import BootFailed
from rotunda.broker.runtime import run_dir
from rotunda.broker.text_table import byte_size, counted, fitted, printable, width
from rotunda.shm.segment import SegmentError

if TYPE_CHECKING:
    from rotunda.broker.runtime.run_dir import RunRecord
    from rotunda.web.facts.readings import Reader, Reading
    from rotunda.web.facts.status import Process, Snapshot
    from rotunda.web.sources import Sources

_LEVELS = {"calm": "green", "busy": "yellow", "stuck": "red"}
_BAR_CELLS = 5
_MOST_ROWS = 8
_LONGEST_NAME = 30
_LEAST_ERROR = 10
_BUSY = 0.9
_GAP = "  "

#: Control sequences of terminals (ECMA-48).
_STYLES = {"": "", "bold": "\x1b[1m", "dim": "\x1b[2m", "red": "\x1b[1;31m", "green": "\x1b[32m",
           "yellow": "\x1b[33m", "cyan": "\x1b[36m"}  # fmt: skip
_PLAIN = "\x1b[0m"
_BEGIN_SCREEN, _END_SCREEN = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"
_HOME, _REST_OF_LINE, _REST_OF_SCREEN = "\x1b[H", "\x1b[K", "\x1b[J"


class Text(NamedTuple):
    """A text in one style."""

    text: str
    style: str = ""


#: One line: its parts, from left to right.
Line = Sequence[Text]


def run(parsed: argparse.Namespace, environment: Mapping[str, str]) -> int:
    """Show the broker until interrupted, or once; exit code 3 when none runs."""
    path = run_path(parsed, environment)
    record = run_dir.read(path)
    if record is None or not record.is_alive:
        raise run_dir.not_running(path)
    try:
        sources, reader = _sources(record)
    except SegmentError as error:
        raise BootFailed(
            f"the broker with run directory {path} is stopping: {error}", run_dir.NOT_RUNNING_EXIT_CODE
        ) from None
    is_terminal = sys.stdout.isatty()
    has_colours = is_terminal and not environment.get("NO_COLOR")
    earlier = reader.read()
    _sleep(parsed.interval)
    if parsed.once or not is_terminal:
        print("\n".join(_drawn(_snapshot(sources, earlier, reader.read()), has_colours)))
        return 0
    with _screen():
        while run_dir.is_running(record.pid, record.start_ticks):
            now = reader.read()
            lines = _drawn(_snapshot(sources, earlier, now), has_colours)[: shutil.get_terminal_size().lines - 1]
            shown = "".join(f"{line}{_REST_OF_LINE}\n" for line in lines)
            print(f"{_HOME}{shown}{_REST_OF_SCREEN}", end="", flush=True)
            earlier = now
            _sleep(parsed.interval)
    print(f"the broker with run directory {path} has stopped")
    return run_dir.NOT_RUNNING_EXIT_CODE


@contextmanager
def _screen() -> Iterator[None]:
    """Use the terminal's second screen, without a cursor, and restore the first."""
    print(_BEGIN_SCREEN, end="", flush=True)
    try:
        yield
    finally:
        print(_END_SCREEN, end="", flush=True)


def _sources(record: RunRecord) -> tuple[Sources, Reader]:
    from rotunda.broker.cli.metrics_reader import attached  # noqa: PLC0415
    from rotunda.broker.protocol.api_keys import DEPRECATED_UP_TO  # noqa: PLC0415
    from rotunda.shm.segment import attach  # noqa: PLC0415
    from rotunda.shm.tables.recent_requests import RecentReader  # noqa: PLC0415
    from rotunda.web.facts.readings import Reader  # noqa: PLC0415
    from rotunda.web.sources import BrokerFacts, RequestsFound, Sources  # noqa: PLC0415

    found = attached(record)
    sources = Sources(
        facts=BrokerFacts(
            version="",
            instance=record.instance,
            pid=record.pid,
            cluster_id="",
            bootstrap=record.bootstrap,
            data_dir=record.data_dir,
            run_dir=record.run_dir,
            listeners=tuple(filter(None, (*record.bootstrap.split(","), record.control_plane))),
            started_ms=record.started_ms,
            request_log="",
            is_native=record.is_native,
        ),
        deprecated_up_to=DEPRECATED_UP_TO,
        reader=found,
        recent=RecentReader(attach(f"/rotunda-{record.instance}-recent").view),
        settings=list,
        topic_settings=lambda _: None,
        allowed_hosts=(),
        any_address=False,
        disk=Path(record.data_dir),
        reports=Path(record.data_dir),
        jobs={},
        history=lambda *_: {},
        search_requests=lambda _: RequestsFound([], [], ""),
    )
    return sources, Reader(sources, found.wants.command_looks)


def _snapshot(sources: Sources, earlier: Reading, now: Reading) -> Snapshot:
    from rotunda.web.facts.snapshot import snapshot  # noqa: PLC0415

    return snapshot(earlier, now, sources)


def _sleep(seconds: float) -> None:
    select.select((), (), (), seconds)


def _drawn(now: Snapshot, has_colours: bool) -> list[str]:
    """Return the lines of the screen, cut to the terminal's width."""
    columns = shutil.get_terminal_size().columns
    return [_line(each, columns, has_colours) for each in _lines(now, columns)]


def _line(line: Line, columns: int, has_colours: bool) -> str:
    parts = []
    for text, style in line:
        shown = fitted(text, columns)
        columns -= width(shown)
        parts.append(f"{_STYLES[style]}{shown}{_PLAIN}" if has_colours and style else shown)
    return "".join(parts).rstrip()


def _lines(now: Snapshot, columns: int) -> list[Line]:
    totals = now.totals
    state = "ready" if now.ready else "not ready: " + printable("; ".join(now.reasons))
    rates = (
        f"{_count(totals.requests_per_s)} requests/s  {_count(totals.records_per_s)} records/s  "
        f"in {byte_size(totals.bytes_in_per_s)}/s  out {byte_size(totals.bytes_out_per_s)}/s"
    )
    sizes = (
        f"{counted(totals.connections, 'connection')}  {counted(totals.topics, 'topic')}  "
        f"log {byte_size(totals.log_bytes)}"
    )
    lines: list[Line] = [
        (
            Text("rotunda ", "bold"),
            Text(f"{printable(now.broker.bootstrap)}  "),
            Text(state, "green" if now.ready else "red"),
        ),
        (Text(printable(now.verdict.text), _LEVELS[now.verdict.level]),),
        (Text(rates),),
        (Text(sizes),),
    ]
    for titles, rows in (_processes(now), _apis(now), _topics(now), _groups(now)):
        if rows:
            lines += [(), *table_lines(titles, rows, columns)]
    return lines


Row = Sequence[Text | str]


def _processes(now: Snapshot) -> tuple[Sequence[str], list[Row]]:
    idle = {("processor", each.index): each.idle for each in now.processors}
    idle |= {("handler", each.index): each.idle for each in now.handlers} | {("controller", 0): now.controller.idle}
    rates = {("processor", each.index): each.requests_per_s for each in now.processors}
    rates |= {("handler", each.index): each.requests_per_s for each in now.handlers}
    rates |= {("controller", 0): now.controller.requests_per_s}
    waiting: dict[tuple[str, int], int] = {}
    for ring in now.rings:
        key = _reader_of(ring.kind, ring.processor, ring.target, len(now.handlers))
        waiting[key] = waiting.get(key, 0) + ring.frames
    rows: list[Row] = []
    for each in now.processes:
        key = each.role, each.index
        name = f"{each.role} {each.index}" if each.role in {"processor", "handler"} else each.role
        rows.append(
            (name, str(each.pid), _state(each), _bar(idle.get(key)), _count(rates.get(key)), _count(waiting.get(key)),
             _percent(each.cpu), byte_size(each.pss_bytes), str(each.restarts), printable(each.last_error))
        )  # fmt: skip
    return ("process", ">pid", "state", "busy", ">req/s", ">waits", ">cpu", ">memory", ">restarts", "last error"), rows


def _state(process: Process) -> Text:
    """Return a process's state, in the words of `rotunda status`."""
    from rotunda.web.facts.verdict import hangs  # noqa: PLC0415

    if hangs(process):
        return Text("hangs", "red")
    if process.serves:
        return Text("running", "green")
    return Text("starting" if process.state == "running" else process.state, "red")


def _reader_of(kind: str, processor: int, target: int, handlers: int) -> tuple[str, int]:
    if kind == "recorder":
        return "recorder", 0
    if kind == "response":
        return "processor", processor
    return ("controller", 0) if target == handlers else ("handler", target)


def _apis(now: Snapshot) -> tuple[Sequence[str], list[Row]]:
    rows: list[Row] = [
        (
            each.name,
            _count(each.requests_per_s),
            *(_ms(each.p99_us.get(phase)) for phase in ("total", "queue", "local")),
        )
        for each in sorted(now.apis, key=lambda api: -(api.requests_per_s or 0))[:_MOST_ROWS]
    ]
    return ("API", ">per second", ">99 %", ">in queue, 99 %", ">in handler, 99 %"), rows


def _topics(now: Snapshot) -> tuple[Sequence[str], list[Row]]:
    rows: list[Row] = [
        (printable(each.name), str(len(each.partitions)), _count(each.records), byte_size(each.size_bytes),
         _count(each.records_per_s), byte_size(each.bytes_in_per_s), byte_size(each.bytes_out_per_s))
        for each in sorted(now.topics, key=lambda topic: -(topic.bytes_in_per_s or 0))[:_MOST_ROWS]
    ]  # fmt: skip
    return ("topic", ">partitions", ">records", ">on disk", ">records/s", ">in/s", ">out/s"), rows


def _groups(now: Snapshot) -> tuple[Sequence[str], list[Row]]:
    rows: list[Row] = [
        (printable(each.id), each.state, str(len(each.members)), _count(each.lag),
         "-" if each.lag_s is None else f"{each.lag_s:.1f} s")
        for each in sorted(now.groups, key=lambda group: -(group.lag or 0))[:_MOST_ROWS]
    ]  # fmt: skip
    return ("group", "state", ">members", ">lag", ">lag, time"), rows


def table_lines(titles: Sequence[str], rows: Iterable[Row], columns: int) -> list[Line]:
    """Return the lines of a table; a title with a leading > is of a column of numbers.

    Long names in the first column are cut; columns without room are left out, from the right.
    """
    cells = [[each if isinstance(each, Text) else Text(each) for each in row] for row in rows]
    for row in cells:
        row[0] = Text(fitted(row[0].text, _LONGEST_NAME))
    table = [[Text(title.lstrip(">"), "dim") for title in titles], *cells]
    widths = [max(width(row[index].text) for row in table) for index in range(len(titles))]
    while len(widths) > 1 and _total(widths) > columns:
        excess = _total(widths) - columns
        if len(widths) == len(titles) and not titles[-1].startswith(">") and widths[-1] - excess >= _LEAST_ERROR:
            widths[-1] -= excess
        else:
            widths.pop()
    lines: list[Line] = []
    for row in table:
        line: list[Text] = []
        for (text, style), title, size in zip(row, titles, widths, strict=False):
            shown = fitted(text, size)
            padding = " " * (size - width(shown))
            line += [Text(padding + shown if title.startswith(">") else shown + padding, style), Text(_GAP)]
        lines.append(line)
    return lines


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + len(_GAP) * (len(widths) - 1)


def _bar(idle: float | None) -> Text:
    if idle is None:
        return Text("")
    cells = round((1 - idle) * _BAR_CELLS)
    return Text(f"{'█' * cells}{'·' * (_BAR_CELLS - cells)} {1 - idle:4.0%}", "yellow" if 1 - idle > _BUSY else "cyan")


def _count(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.1f}" if 0 < value < 10 and value != int(value) else f"{value:,.0f}"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.0%}"


def _ms(value_us: float | None) -> str:
    return "-" if value_us is None else f"{value_us / 1000:.2f} ms"
