"""The web server: uvicorn on a socket that listens already, until a descriptor says stop."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING

import uvicorn

from web.app import create_app
from web.readings import Reader
from web.watch import Watch

if TYPE_CHECKING:
    from socket import socket

    from web.sources import Sources

#: How long answers under way may take after a stop was asked for; streams end at once.
GRACE_S = 1


class _Server(uvicorn.Server):
    """Leaves the signals to the process that it runs in."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def serve(sources: Sources, listening: socket, stop_fd: int) -> None:
    """Serve until `stop_fd` is readable."""
    watch = Watch(sources, Reader(sources, sources.reader.wants.web_looks))
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    config = uvicorn.Config(
        create_app(sources, watch),
        lifespan="off",
        loop="asyncio",
        http="h11",
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=GRACE_S,
        timeout_keep_alive=30,
        limit_concurrency=500,
        h11_max_incomplete_event_size=16 * 1024,
    )
    asyncio.run(_serve(_Server(config), watch, listening, stop_fd))


async def _serve(server: uvicorn.Server, watch: Watch, listening: socket, stop_fd: int) -> None:
    loop = asyncio.get_running_loop()

    def stop() -> None:
        loop.remove_reader(stop_fd)
        server.should_exit = True
        watch.close()

    loop.add_reader(stop_fd, stop)
    await server.serve(sockets=[listening])
