"""The routes: a page for each screen with its stream of events, and the same facts for programs.

All of them only read, and contain no computation.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import asdict
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Path, Query, Response
from fastapi.responses import HTMLResponse, PlainTextResponse, StreamingResponse
from pydantic import BaseModel

from rotunda.broker.metrics.broker_reading import LOOKS_NS
from rotunda.broker.metrics.prometheus import CONTENT_TYPE, render
from rotunda.web.facts.status import Snapshot
from rotunda.web.pages import page
from rotunda.web.reports.chart import InvalidChart
from rotunda.web.reports.reports import Reports
from rotunda.web.reports.summary import Brief, Report
from rotunda.web.screens import SCREENS
from rotunda.web.sources import RequestsFound, RequestsWanted
from rotunda.web.topics import create_topic_router
from rotunda.web.views import Views
from rotunda.web.watch import TooManyStreams

if TYPE_CHECKING:
    from rotunda.web.facts.readings import Reading
    from rotunda.web.sources import Sources
    from rotunda.web.watch import Watch

#: Names of the screens, as an enumeration so that the interface's description lists them.
ScreenName = Enum("ScreenName", {screen.name: screen.name for screen in SCREENS}, type=str)  # type: ignore[misc]

_Responses = dict[int | str, dict[str, Any]]

_BUSY: _Responses = {503: {"description": "Too many streams at once: poll /view.", "content": {"text/plain": {}}}}
#: Close the connection with the response, so that a rejected client does not use a place.
_BUSY_HEADERS = {"retry-after": "5", "connection": "close"}
_EVENTS: _Responses = {
    200: {"description": "One event a second, each with JSON.", "content": {"text/event-stream": {}}}
}
_NOT_READY: _Responses = {503: {"description": "Not ready, with a reason a line.", "content": {"text/plain": {}}}}
_NO_REPORT: _Responses = {404: {"description": "There is none, with the reason.", "content": {"text/plain": {}}}}
_UNREADABLE: _Responses = {503: {"description": "The log cannot be read.", "content": {"text/plain": {}}}}
_SVG: _Responses = {200: {"description": "The chart.", "content": {"image/svg+xml": {}}}}
#: A name that cannot lead outside the directory of results.
JobName = Annotated[str, Path(pattern="^[a-z][a-z0-9_-]{0,31}$")]
_MINUTE_MS = 60_000
#: A Unix time of years that a calendar has, and the length of a range.
TimeMs = Annotated[int, Query(ge=0, le=200_000_000_000_000)]
Minutes = Annotated[int, Query(ge=1, le=366 * 24 * 60)]
#: A name, or a part of one with `*`. No control character is in one.
Pattern = Annotated[str, Query(max_length=300, pattern=r"^[^\x00-\x1f\x7f]*$")]
_PATTERNS = ("api", "client", "user", "topic", "error")
_JSON = "application/json"
_TEXT: _Responses = {200: {"description": "Text.", "content": {"text/plain": {}}}}


class RequestsQuery(BaseModel):
    """The wanted requests: from a time on and before another, and names, in which `*` is any text."""

    since_ms: TimeMs
    until_ms: TimeMs | None = None
    slow: bool = False
    slower_than_ms: Annotated[float, Query(ge=0, le=1e9)] = 0
    api: Pattern = ""
    client: Pattern = ""
    user: Pattern = ""
    topic: Pattern = ""
    error: Pattern = ""


def create_router(sources: Sources, watch: Watch) -> APIRouter:
    """Return the routes over the sources."""
    router, reports = APIRouter(), Reports(sources)
    _add_pages(router, sources)
    _add_screens(router, Views(sources, reports), watch)
    _add_status(router, watch)
    _add_reports(router, reports)
    _add_history(router, sources)
    router.include_router(create_topic_router(sources))
    return router


def _add_pages(router: APIRouter, sources: Sources) -> None:
    for screen in SCREENS:
        html = HTMLResponse(page(screen, sources.facts))
        path = "/" if screen.path == "./" else f"/{screen.path}"
        router.add_api_route(path, _constant(html), include_in_schema=False, name=screen.name)


def _constant(response: Response) -> Callable[[], Awaitable[Response]]:
    async def show() -> Response:
        return response

    return show


def _add_screens(router: APIRouter, views: Views, watch: Watch) -> None:
    @router.get("/events/{screen}", responses={**_EVENTS, **_BUSY}, response_class=StreamingResponse)
    async def events(screen: ScreenName) -> Response:
        """Stream a screen's data as server-sent events: one at once, then one a second."""
        stream = watch.follow(views.by_name[screen.value])
        try:
            first = await anext(stream)
        except TooManyStreams:
            return PlainTextResponse("too many streams\n", status_code=503, headers=_BUSY_HEADERS)
        return StreamingResponse(_events(first, stream), media_type="text/event-stream")

    @router.get("/view/{screen}", response_model=dict[str, Any])
    async def view(screen: ScreenName) -> Response:
        """Return a screen's data once."""
        return Response(watch.show(views.by_name[screen.value]), media_type=_JSON)


def _add_status(router: APIRouter, watch: Watch) -> None:
    @router.get("/status.json", response_model=Snapshot)
    async def status() -> Response:
        """Return everything at once. Rates are included from the second request within 15 seconds on."""
        return Response(watch.show(_everything), media_type=_JSON)

    @router.get("/metrics", responses=_TEXT, response_class=PlainTextResponse)
    async def metrics(partitions: bool = False) -> Response:
        """Return all metrics for Prometheus; with `partitions`, also a series for each partition."""
        watch.look(LOOKS_NS)
        return Response(watch.text(_each_partition if partitions else _sums), media_type=CONTENT_TYPE)

    # Some probes use HEAD.
    @router.head("/healthz", include_in_schema=False)
    @router.get("/healthz", responses=_TEXT, response_class=PlainTextResponse)
    async def health() -> Response:
        """Respond that this process runs."""
        return PlainTextResponse("ok\n")

    @router.head("/readyz", include_in_schema=False)
    @router.get("/readyz", responses={**_TEXT, **_NOT_READY}, response_class=PlainTextResponse)
    async def readiness() -> Response:
        """Return whether the broker serves clients, and the reasons if not."""
        now, _ = watch.latest()
        if now.ready:
            return PlainTextResponse("".join(f"{line}\n" for line in ("ready", *now.remarks)))
        return PlainTextResponse("".join(f"{reason}\n" for reason in now.reasons), status_code=503)


def _add_reports(router: APIRouter, reports: Reports) -> None:
    @router.get("/reports.json", response_model=list[Brief])
    async def briefs() -> Response:
        """Return every Spark job with its latest result in short."""
        return Response(json.dumps([asdict(each) for each in reports.briefs()]), media_type=_JSON)

    # On a thread, not on the shared loop: a result may be large.
    @router.get("/reports/{job}/summary.json", response_model=Report, responses=_NO_REPORT)
    def report(job: JobName) -> Response:
        """Return the latest result of a job: its single numbers and the first rows of its tables."""
        found = reports.report(job)
        if found is None:
            return PlainTextResponse("no such job\n", status_code=404)
        return Response(json.dumps(asdict(found)), media_type=_JSON)

    @router.get("/reports/{job}/chart.svg", responses={**_SVG, **_NO_REPORT}, response_class=Response)
    def chart(job: JobName) -> Response:
        """Return the chart of a job's latest result, sanitised to drawing elements."""
        try:
            found = reports.chart(job)
        except InvalidChart as error:
            return PlainTextResponse(f"{error}\n", status_code=404)
        if found is None:
            return PlainTextResponse("no chart\n", status_code=404)
        return Response(found, media_type="image/svg+xml")


def _add_history(router: APIRouter, sources: Sources) -> None:
    # On a thread: a month is 720 files.
    @router.get("/history.json", response_model=dict[str, Any])
    def history(from_ms: TimeMs, minutes: Minutes) -> Response:
        """Return the aggregates of a range, at most a year: by kind, name and column a value for each point."""
        found = sources.history(from_ms, from_ms + minutes * _MINUTE_MS)
        return Response(json.dumps(found, separators=(",", ":")), media_type=_JSON)

    # The command runs in a process of its own.
    @router.get("/requests.json", response_model=RequestsFound, responses=_UNREADABLE)
    def requests(query: Annotated[RequestsQuery, Query()]) -> Response:
        """Return the latest requests of the request log that match, with `slow` the slowest, and notes."""
        texts = query.model_dump(include=set(_PATTERNS))
        wanted = RequestsWanted(
            since_ms=query.since_ms,
            until_ms=query.until_ms,
            slow=query.slow,
            slower_than_ms=query.slower_than_ms,
            patterns={name: text for name, text in texts.items() if text},
        )
        try:
            found = sources.search_requests(wanted)
        except OSError as error:
            return PlainTextResponse(f"{error}\n", status_code=503)
        return Response(json.dumps(asdict(found), separators=(",", ":")), media_type=_JSON)


def _everything(now: Snapshot, _: Reading) -> dict[str, Any]:
    return asdict(now)


def _sums(_: Snapshot, reading: Reading) -> str:
    return render(reading.broker)


def _each_partition(_: Snapshot, reading: Reading) -> str:
    return render(reading.broker, per_partition=True)


async def _events(first: str, stream: AsyncIterator[str]) -> AsyncIterator[str]:
    yield f"retry: 1000\ndata: {first}\n\n"
    async for each in stream:
        yield f"data: {each}\n\n"
