"""The whole broker, where some requests kill the process that handles them, and some never finish.

python -m tests.support.poisonable_broker start ...
"""

import mmap
import os
import signal
import sys
from typing import Any

from rotunda.broker.cli.main import main
from rotunda.broker.handler.request_handler import RequestHandler
from rotunda.broker.network.processor.request_reader import RequestReader

#: A request with these bytes kills its process. One with the others keeps the first process busy for ever, and then
#: kills.
KILLS, HANGS = b"-kill-me-", b"-keep-me-"
#: One with these kills its processor, before it is sent to anybody.
KILLS_PROCESSOR = b"-kill-you-"
#: Shared by all processes of the broker: whether one has hung.
HAS_HUNG = mmap.mmap(-1, 1)


def poison(dispatch: Any) -> Any:
    """Return a wrapper of `dispatch` that dies of a poison request."""

    def poisoned(self: RequestHandler, frame: Any) -> None:
        request = bytes(frame.view[frame.start : frame.end])
        if KILLS in request or (HANGS in request and HAS_HUNG[0]):
            os.kill(os.getpid(), signal.SIGKILL)
        while HANGS in request:
            HAS_HUNG[0] = 1
        dispatch(self, frame)

    return poisoned


def poison_reader(try_send: Any) -> Any:
    """Return a wrapper of `try_send` that dies of a poison request."""

    def poisoned(self: RequestReader, channel: Any, frame: bytes, *rest: Any) -> bool:
        if KILLS_PROCESSOR in frame:
            os.kill(os.getpid(), signal.SIGKILL)
        sent: bool = try_send(self, channel, frame, *rest)
        return sent

    return poisoned


if __name__ == "__main__":
    RequestHandler.dispatch = poison(RequestHandler.dispatch)  # type: ignore[method-assign]
    RequestReader._try_send = poison_reader(RequestReader._try_send)  # type: ignore[method-assign]
    sys.exit(main())
