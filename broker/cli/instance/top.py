"""`rotunda top`: shows the running broker in the terminal, redrawn every second.

Has the same inputs and functions as the status page, and works without it.
"""

from __future__ import annotations

import argparse
import select
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from rotunda.broker.cli.instance.status import run_path
from rotunda.broker.errors import BootFailed
from rotunda.broker.runtime import run_dir
from rotunda.broker.text_table import byte_size, counted, printable
from rotunda.shm.segment import SegmentError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.console import RenderableType
    from rich.table import Table

    from rotunda.broker.runtime.run_dir import RunRecord
    from rotunda.web.facts.readings import Reader, Reading
    from rotunda.web.facts.status import Snapshot
    from rotunda.web.sources import Sources

_LEVELS = {"calm": "green", "busy": "yellow", "stuck": "bold red"}
_BAR_CELLS = 8
_MOST_ROWS = 8
_LAST_COLUMN = 9
_LONGEST_NAME = 30


def run(parsed: argparse.Namespace, environment: Mapping[str, str]) -> int:
    """Show the broker until interrupted, or once; exit code 3 when none runs."""
    from rich.console import Console  # noqa: PLC0415 - only here
    from rich.live import Live  # noqa: PLC0415

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
    once = parsed.once or not sys.stdout.isatty()
    console = Console()
    earlier = reader.read()
    _sleep(parsed.interval)
    if once:
        console.print(_screen(_snapshot(sources, earlier, reader.read())))
        return 0
    with Live(console=console, screen=True, auto_refresh=False) as live:
        while run_dir.is_running(record.pid, record.start_ticks):
            now = reader.read()
            live.update(_screen(_snapshot(sources, earlier, now)), refresh=True)
            earlier = now
            _sleep(parsed.interval)
    print(f"the broker with run directory {path} has stopped")
    return run_dir.NOT_RUNNING_EXIT_CODE


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


def _screen(now: Snapshot) -> RenderableType:
    from rich.console import Group  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    head = Text.assemble(
        ("rotunda ", "bold"),
        printable(now.broker.bootstrap),
        (
            "  ready" if now.ready else "  not ready: " + printable("; ".join(now.reasons)),
            "green" if now.ready else "red",
        ),
    )
    totals = now.totals
    line = (
        f"{_count(totals.requests_per_s)} requests/s  {_count(totals.records_per_s)} records/s  "
        f"in {byte_size(totals.bytes_in_per_s)}/s  out {byte_size(totals.bytes_out_per_s)}/s  "
        f"{counted(totals.connections, 'connection')}  {counted(totals.topics, 'topic')}  "
        f"log {byte_size(totals.log_bytes)}"
    )
    parts: list[RenderableType] = [
        head,
        Text(printable(now.verdict.text), _LEVELS[now.verdict.level]),
        Text(line),
        _processes(now),
    ]
    parts += [_apis(now)] if now.apis else []
    parts += [_topics(now)] if now.topics else []
    parts += [_groups(now)] if now.groups else []
    return Group(*parts)


def _processes(now: Snapshot) -> Table:
    from rich.markup import escape  # noqa: PLC0415

    from rotunda.web.facts.verdict import hangs  # noqa: PLC0415

    idle = {("processor", each.index): each.idle for each in now.processors}
    idle |= {("handler", each.index): each.idle for each in now.handlers} | {("controller", 0): now.controller.idle}
    rates = {("processor", each.index): each.requests_per_s for each in now.processors}
    rates |= {("handler", each.index): each.requests_per_s for each in now.handlers}
    rates |= {("controller", 0): now.controller.requests_per_s}
    waiting: dict[tuple[str, int], int] = {}
    for ring in now.rings:
        key = _reader_of(ring.kind, ring.processor, ring.target, len(now.handlers))
        waiting[key] = waiting.get(key, 0) + ring.frames
    rows = []
    for each in now.processes:
        key = each.role, each.index
        name = f"{each.role} {each.index}" if each.role in {"processor", "handler"} else each.role
        state = "[green]serves[/]" if each.serves else f"[bold red]{each.state}[/]"
        state = "[bold red]hangs[/]" if hangs(each) else state
        rows.append(
            (name, str(each.pid), state, _bar(idle.get(key)), _count(rates.get(key)), _count(waiting.get(key)),
             _percent(each.cpu), byte_size(each.pss_bytes), str(each.restarts), escape(printable(each.last_error)))
        )  # fmt: skip
    titles = ("process", ">pid", "state", "busy", ">req/s", ">waits", ">cpu", ">memory", ">restarts", "last error")
    return _table(titles, rows)


def _reader_of(kind: str, processor: int, target: int, handlers: int) -> tuple[str, int]:
    if kind == "recorder":
        return "recorder", 0
    if kind == "response":
        return "processor", processor
    return ("controller", 0) if target == handlers else ("handler", target)


def _apis(now: Snapshot) -> Table:
    rows = [
        (
            each.name,
            _count(each.requests_per_s),
            *(_ms(each.p99_us.get(phase)) for phase in ("total", "queue", "local")),
        )
        for each in sorted(now.apis, key=lambda api: -(api.requests_per_s or 0))[:_MOST_ROWS]
    ]
    return _table(("API", ">per second", ">99 %", ">in queue, 99 %", ">in handler, 99 %"), rows)


def _topics(now: Snapshot) -> Table:
    rows = [
        (printable(each.name), str(len(each.partitions)), _count(each.records), byte_size(each.size_bytes),
         _count(each.records_per_s), byte_size(each.bytes_in_per_s), byte_size(each.bytes_out_per_s))
        for each in sorted(now.topics, key=lambda topic: -(topic.bytes_in_per_s or 0))[:_MOST_ROWS]
    ]  # fmt: skip
    return _table(("topic", ">partitions", ">records", ">on disk", ">records/s", ">in/s", ">out/s"), rows)


def _groups(now: Snapshot) -> Table:
    rows = [
        (printable(each.id), each.state, str(len(each.members)), _count(each.lag),
         "-" if each.lag_s is None else f"{each.lag_s:.1f} s")
        for each in sorted(now.groups, key=lambda group: -(group.lag or 0))[:_MOST_ROWS]
    ]  # fmt: skip
    return _table(("group", "state", ">members", ">lag", ">lag, time"), rows)


def _table(titles: Iterable[str], rows: Iterable[tuple[str, ...]]) -> Table:
    """Return a table; a title with a leading > is of a column of numbers."""
    from rich.box import SIMPLE_HEAD  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    # Names are in the first column, and may look like markup.
    cells = [[Text(first), *map(Text.from_markup, others)] for first, *others in rows]
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), header_style="dim")
    for index, title in enumerate(titles):
        # Cut the last column rather than a number, and a long name rather than either.
        widths = [row[index].cell_len for row in cells] if index < _LAST_COLUMN else []
        widest = _LONGEST_NAME if index == 0 else None
        table.add_column(
            title.lstrip(">"),
            justify="right" if title.startswith(">") else "left",
            no_wrap=True,
            min_width=min(max([len(title.lstrip(">")), *widths]), widest or sys.maxsize),
            max_width=widest,
        )
    for row in cells:
        table.add_row(*row)
    return table


def _bar(idle: float | None) -> str:
    if idle is None:
        return ""
    cells = round((1 - idle) * _BAR_CELLS)
    colour = "yellow" if idle < 1 - 0.9 else "cyan"
    return f"[{colour}]{'█' * cells}[/][dim]{'·' * (_BAR_CELLS - cells)}[/] {1 - idle:4.0%}"


def _count(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.1f}" if 0 < value < 10 and value != int(value) else f"{value:,.0f}"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.0%}"


def _ms(value_us: float | None) -> str:
    return "-" if value_us is None else f"{value_us / 1000:.2f} ms"
