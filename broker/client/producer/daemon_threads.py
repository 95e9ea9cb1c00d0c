"""Threads for calls that wait, which the end of the process does not wait for.

Those of `concurrent.futures` are joined when the interpreter ends, and asyncio joins its own when a loop does: a call
that waits for a broker which is not there would keep a program alive that has nothing left to do. The asyncio face uses
these instead.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any, ParamSpec, TypeVar

_P = ParamSpec("_P")
_T = TypeVar("_T")
_Call = tuple["Future[Any]", Callable[[], Any]]


class DaemonThreads(Executor):
    """So many threads at most, begun as they are needed; further calls wait for one."""

    def __init__(self, most: int, name: str) -> None:
        self._most = most
        self._name = name
        self._calls: queue.SimpleQueue[_Call | None] = queue.SimpleQueue()
        self._idle = threading.Semaphore(0)
        self._lock = threading.Lock()
        self._begun = 0
        self._is_ended = False

    def submit(self, fn: Callable[_P, _T], /, *args: _P.args, **kwargs: _P.kwargs) -> Future[_T]:
        """Call a function in one of the threads; return the future of what it returns. Raises RuntimeError."""
        future: Future[_T] = Future()
        with self._lock:
            if self._is_ended:
                raise RuntimeError(f"the threads {self._name} have ended")
            self._calls.put((future, lambda: fn(*args, **kwargs)))
            if not self._idle.acquire(blocking=False) and self._begun < self._most:
                self._begun += 1
                threading.Thread(target=self._run, name=f"{self._name} {self._begun}", daemon=True).start()
        return future

    def end(self) -> None:
        """Let the threads end when they have done what was submitted. Waits for none."""
        with self._lock:
            self._is_ended = True
            for _ in range(self._begun):
                self._calls.put(None)

    def _run(self) -> None:
        while (call := self._calls.get()) is not None:
            future, function = call
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(function())
                except BaseException as failure:
                    future.set_exception(failure)
            del call, future, function
            self._idle.release()
