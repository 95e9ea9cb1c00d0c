"""The application: routes, local files, and the guard around both. A factory without globals."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from fastapi import FastAPI
from starlette.responses import HTMLResponse, PlainTextResponse
from starlette.staticfiles import StaticFiles

from rotunda.web.http.access import Access
from rotunda.web.http.guards import Guard
from rotunda.web.http.listening_socket import is_exhausted
from rotunda.web.pages import missing_page
from rotunda.web.routes import create_router

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from rotunda.web.http.guards import App
    from rotunda.web.http.room import Room
    from rotunda.web.sources import Sources
    from rotunda.web.watch import Watch

STATIC = Path(__file__).parent / "static"


def create_app(sources: Sources, watch: Watch, room: Room) -> App:
    """Return the guarded application; `room` logs clients with wrong credentials and requests that lack a resource."""
    application = FastAPI(
        title="Rotunda status",
        version=sources.facts.version or "0",
        summary="The state of a running broker. Read-only.",
        # FastAPI's own pages load scripts from other sites.
        docs_url=None,
        redoc_url=None,
    )
    application.include_router(create_router(sources, watch))
    application.mount("/static", StaticFiles(directory=STATIC), name="static")
    application.add_exception_handler(OSError, partial(_on_failure, room))
    application.add_exception_handler(404, _on_missing)
    access = Access(sources.admission)
    return Guard(application, sources.allowed_hosts, sources.any_address, access, room.note_stranger)


async def _on_missing(request: Request, failure: Exception) -> Response:
    """Respond with a page to browsers, with a line to others."""
    del failure
    if "text/html" in request.headers.get("accept", ""):
        return HTMLResponse(missing_page(request.url.path), status_code=404)
    return PlainTextResponse("not found\n", status_code=404)


async def _on_failure(room: Room, _: Request, failure: Exception) -> Response:
    """Respond 503 where a descriptor or memory is missing. Raises any other failure."""
    if not is_exhausted(failure):
        raise failure
    room.note_exhausted(failure)
    return PlainTextResponse(f"{failure}\n", status_code=503)
