"""The application: routes, local files, and the guard around both. A factory without globals."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from fastapi import FastAPI
from starlette.staticfiles import StaticFiles

from web.http.access import Access
from web.http.guards import Guard
from web.routes import create_router

if TYPE_CHECKING:
    from collections.abc import Callable

    from web.http.guards import App
    from web.sources import Sources
    from web.watch import Watch

STATIC = Path(__file__).parent / "static"


def create_app(sources: Sources, watch: Watch, on_stranger: Callable[[str], None]) -> App:
    """Return the guarded application; `on_stranger` gets the addresses of those with wrong credentials."""
    application = FastAPI(
        title="Rotunda status",
        version=sources.facts.version or "0",
        summary="What a running broker does. Everything here only reads.",
        # Their pages load scripts from elsewhere.
        docs_url=None,
        redoc_url=None,
    )
    application.include_router(create_router(sources, watch))
    application.mount("/static", StaticFiles(directory=STATIC), name="static")
    access = Access(sources.admission)
    return Guard(application, sources.allowed_hosts, sources.any_address, access, on_stranger)
