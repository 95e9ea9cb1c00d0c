"""The whole broker, whose processes are killed at steps of a change that is made while it runs.

python -m tests.support.killed_at_steps start ...

A step of the supervisor is a line of the modules that change the processes and the listeners, except for lines that
also run without a change: before it the supervisor kills another process, or itself. A step of another process is a
line of the functions of `OWN`, in which it follows such a change: before it the process kills itself. A file written
before the change is requested names the steps (`Orders`).
"""

import functools
import json
import os
import random
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple, Self

from rotunda.broker.cli.main import main
from rotunda.broker.handler import handler_process
from rotunda.broker.log.committed_log import CommittedLog
from rotunda.broker.log.log_manager import LogManager
from rotunda.broker.metadata.active_controller import ActiveController
from rotunda.broker.metadata.controller import Controller
from rotunda.broker.network.acceptor.open_listeners import OpenListeners
from rotunda.broker.network.acceptor.processor_link import ProcessorsInUse
from rotunda.broker.network.processor import processor_process
from rotunda.broker.network.processor.processor import Processor
from rotunda.broker.network.processor.targets import Targets
from rotunda.broker.supervisor import handler_count, listener_set, process_memory, processor_count
from rotunda.broker.supervisor.child import Child
from rotunda.broker.supervisor.supervisor import Supervisor

CHANGES = tuple(str(module.__file__) for module in (handler_count, listener_set, process_memory, processor_count))
#: By role, the steps of others: as (owner, function). A handler's and a controller's are the same.
OWN = {
    "handler": (
        (LogManager, "close"),
        (CommittedLog, "close"),
        (handler_process, "boot"),
        (Controller, "alter_configs"),
        (ActiveController, "announce"),
    ),
    "acceptor": ((ProcessorsInUse, "confirmed"), (OpenListeners, "obey"), (OpenListeners, "_close")),
    "processor": (
        (Targets, "_adopt"),
        (Processor, "move"),
        (Processor, "end_connections"),
        (processor_process, "_has_left"),
    ),
}
#: Where the broker's environment has the directory of the orders.
VARIABLE = "KILLED_AT_STEPS"
ODDS = 0.1

Place = tuple[str, int]


class Orders(NamedTuple):
    """Orders for the next change: by ``number``, as each change has its own.

    A process of ``roles`` is killed before each ``nth`` executed line of the source, from ``first`` on, once; without
    ``nth`` before one step of ten, at random. The same holds for the own steps of the processes in ``roles``. With
    ``ends_at`` the supervisor kills itself before the step of that number.
    """

    number: int
    roles: tuple[str, ...] = ()
    first: int = 0
    nth: int = 1
    seed: int = 0
    ends_at: int = 0

    def strikes(self, place: Place) -> bool:
        """Return whether a process is killed before a step."""
        if self.nth:
            return (place[1] - self.first) % self.nth == 0
        return random.Random(f"{place} {self.seed}").random() < ODDS

    def give(self, directory: Path) -> None:
        """Put them where processes look before each step."""
        written = directory / "next"
        written.write_text(json.dumps(self))
        written.rename(directory / "orders")

    @classmethod
    def given(cls) -> Self | None:
        """Return the orders in the file."""
        path = _directory() / "orders"
        return cls(*json.loads(path.read_text())) if path.exists() else None


class Steps:
    """The steps of a supervisor, and the kills before them; the kills are logged in the file `passed`."""

    def __init__(self, children: list[Child]) -> None:
        self._children = children
        self._idle: set[Place] = set()
        self._passed: set[Place] = set()
        self._killed: set[int] = set()
        self._number = 0

    def enter(self, frame: FrameType, event: str, argument: Any) -> Any:  # noqa: ARG002 - as sys.settrace has it
        """Follow the lines of a function that is called, if it is one of a change."""
        return self._line if frame.f_code.co_filename in CHANGES else None

    def _line(self, frame: FrameType, event: str, argument: Any) -> Any:  # noqa: ARG002
        place = _place(frame)
        if event == "line" and place not in self._idle:
            orders = Orders.given()
            if orders is None:
                self._idle.add(place)
            else:
                self._pass(place, frame.f_code.co_name, orders)
        return self._line

    def _pass(self, place: Place, function: str, orders: Orders) -> None:
        if orders.number != self._number:
            self._number = orders.number
            self._passed.clear()
        if place in self._passed:
            return
        self._passed.add(place)
        killed = ""
        if len(self._passed) == orders.ends_at:
            _note(orders, place, function, "the supervisor")
            os.kill(os.getpid(), signal.SIGKILL)
        if orders.roles and orders.strikes(place):
            children = [child for child in self._children if child.is_alive and child.role.label in orders.roles]
            # A death that was not noticed yet is no second one.
            living = [child for child in children if child.pid not in self._killed]
            if living:
                victim = random.Random(f"{orders.seed} {place}").choice(living)
                victim.kill()
                self._killed.add(victim.pid)
                killed = victim.label
        _note(orders, place, function, killed)


def dies_in(role: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a wrapper that kills its process before a line of the function, or of its module."""
    module = function.__code__.co_filename
    # A request during which its process dies again and again is not tried any more.
    is_of_request = function is Controller.alter_configs

    def line(frame: FrameType, event: str, argument: Any) -> Any:  # noqa: ARG001
        orders = Orders.given() if event == "line" else None
        place = _place(frame)
        once = (module, 0) if is_of_request else place
        if orders is not None and role in orders.roles and orders.strikes(place) and _is_first(orders, once):
            _note(orders, place, frame.f_code.co_name, f"{role} itself")
            os.kill(os.getpid(), signal.SIGKILL)
        return line

    def enter(frame: FrameType, event: str, argument: Any) -> Any:  # noqa: ARG001
        return line if frame.f_code.co_filename == module else None

    @functools.wraps(function)
    def watched(*arguments: Any, **named: Any) -> Any:
        before = sys.gettrace()
        sys.settrace(enter)
        try:
            return function(*arguments, **named)
        finally:
            sys.settrace(before)

    return watched


def _is_first(orders: Orders, place: Place) -> bool:
    """Return whether no process has reached a step in this change before."""
    try:
        (_directory() / f"{orders.number}-{Path(place[0]).stem}-{place[1]}").touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def _note(orders: Orders, place: Place, function: str, killed: str) -> None:
    with (_directory() / "passed").open("a") as passed:
        passed.write(json.dumps([orders.number, *place, function, killed]) + "\n")


def _place(frame: FrameType) -> Place:
    return Path(frame.f_code.co_filename).stem, frame.f_lineno


def _directory() -> Path:
    return Path(os.environ[VARIABLE])


def run(self: Supervisor) -> None:
    """Run a supervisor whose steps are watched: its own, but not those of its forked children."""
    os.register_at_fork(after_in_child=lambda: sys.settrace(None))
    sys.settrace(Steps(self._children).enter)
    try:
        RUN(self)
    finally:
        sys.settrace(None)


RUN = Supervisor.run
if __name__ == "__main__":
    Supervisor.run = run  # type: ignore[method-assign]
    for role, functions in OWN.items():
        for owner, name in functions:
            setattr(owner, name, dies_in(role, getattr(owner, name)))
    sys.exit(main())
