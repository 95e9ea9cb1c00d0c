"""The supervisor: starts every process, replaces what dies, stops all in order. It serves no request.

Runs in the process that the user started. Signal handlers only note what was asked; the loop acts on it.
The loop sleeps in poll() on the children's sentinels, on a pipe that signals write to, and on a bell that
children ring when they are ready; once a second it looks whether their loops turn (`watchdog`).

A child that cannot boot stops the start, or the broker, with its reason. One that dies later is replaced, at first at
once; one that dies often waits for it. The broker stops, with a line that names the cause, if nobody serves any request
between such deaths. Without those that only look on, or clean up, it goes on even then: clients are served as before.
"""

from __future__ import annotations

import gc
import logging
import os
import select
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from rotunda.broker.errors import BootFailed
from rotunda.broker.network.acceptor.listener import listen
from rotunda.broker.runtime.child_process import ExitCode, Role, name_process
from rotunda.broker.runtime.signals import OperatorSignals
from rotunda.broker.supervisor.child import Child, boot_exit_code, describe_exit, make_children
from rotunda.broker.supervisor.handler_count import LOOK_MS as HANDLERS_LOOK_MS
from rotunda.broker.supervisor.handler_count import HandlerCount
from rotunda.broker.supervisor.listener_set import ListenerSet
from rotunda.broker.supervisor.operator_tasks import OperatorTasks, report_where
from rotunda.broker.supervisor.process_memory import ProcessMemory
from rotunda.broker.supervisor.processor_count import ProcessorCount
from rotunda.broker.supervisor.watchdog import LOOK_MS, Watchdog
from rotunda.shm.tables import process_slots

if TYPE_CHECKING:
    from rotunda.broker.clock import Clock
    from rotunda.broker.ipc.process_context import ProcessContext
    from rotunda.broker.metadata.configs.live_settings import LiveSettings
    from rotunda.broker.runtime.child_process import RoleFunction

_log = logging.getLogger(__name__)

#: What a broker is without when one of these is not replaced any more. No client notices.
_ONLOOKERS: Mapping[Role, str] = MappingProxyType({Role.WEB: "status page", Role.RECORDER: "request log"})

#: While a child boots its slot is looked at this often, should it not ring.
_BOOT_POLL_MS = 5
#: What SIGINT grants the children to close their files.
_QUICK_STOP_MS = 2000
#: Share of shutdown.timeout.ms that acceptor and processors may use; the rest is for handlers to close
#: their logs.
_CLIENT_SHARE = 0.6

#: The broker serves without them, so they start when it does: they take nothing from its start.
_LATE_ROLES = frozenset({Role.CLEANER, Role.RECORDER, Role.WEB})

#: Clients wait for all others: one that dies often is started again this long after it was started last, not later.
_CLIENTS_WAIT_NS = 500_000_000

#: The cleaner asks handlers, so it stops before them; the recorder writes down what all the others did to the last.
_STAGES = (
    (Role.ACCEPTOR, Role.CLEANER, Role.WEB),
    (Role.PROCESSOR,),
    (Role.HANDLER,),
    (Role.CONTROLLER,),
    (Role.RECORDER,),
)


class Supervisor:
    """The children of one broker. `start`, then `run` until it returns, then `stop`."""

    def __init__(
        self,
        context: ProcessContext,
        functions: Mapping[Role, RoleFunction],
        clock: Clock,
        listeners_changed: Callable[[], None] = lambda: None,
        alive: Callable[[], None] = lambda: None,
    ) -> None:
        """``listeners_changed`` is called when listeners were added or removed while the broker runs.

        ``alive`` is called once a second while the loop turns.
        """
        self._context = context
        self._config = context.config
        self._children = make_children(context, functions)
        self._functions = functions
        memory = ProcessMemory(context.channel_shape, (context.started_processors, context.started_handlers))
        ways = self._children, memory, self._start_child, self._add_child
        self._processors = ProcessorCount(context, *ways)
        self._handlers = HandlerCount(context, *ways, clock)
        self._clock = clock
        self._listeners = ListenerSet(context, clock.monotonic_ns, listeners_changed)
        self._signals = OperatorSignals()
        self._operator_tasks = OperatorTasks(self._signals, self._children, context.log_output.file, clock)
        self._give_up: BootFailed | None = None
        timeout_ms = self._config.process_hang_timeout_ms
        self._watchdog = Watchdog(context.slots, timeout_ms, report_where)
        self._look_due_ns, self._alive = 0, alive
        self._settings: LiveSettings | None = None

    def start(self) -> None:
        """Start who answers requests, all at once; open the ports when they are ready, then start the acceptor (`A03`).

        Returns when the broker serves, or when it was asked to stop meanwhile. Raises BootFailed when a
        child cannot boot or a port is taken; the caller then calls `stop`.
        """
        self._signals.install()
        name_process("rot-supervisor")
        slots = self._context.slots
        slots.set_pid(Role.SUPERVISOR, 0, os.getpid())
        slots.set_generation(Role.SUPERVISOR, 0, 1)
        self._context.mark_ready(Role.SUPERVISOR, 0, 1)
        slots.set_state(Role.SUPERVISOR, 0, process_slots.RUNNING)
        others = [child for child in self._children if child.role not in {Role.ACCEPTOR, *_LATE_ROLES}]
        for child in others:
            child.start(self._foreign_fds())
        self._await_ready(others)
        if self._signals.stop_asked:
            return
        for listener in self._context.listeners:
            listen(listener, self._config.socket_listen_backlog_size)
        acceptors = [child for child in self._children if child.role is Role.ACCEPTOR]
        for child in acceptors:
            child.start(self._foreign_fds())
        self._await_ready(acceptors)

    def run(self) -> None:
        """Start the others, and replace what dies until a signal asks to stop.

        Raises BootFailed when the broker cannot go on.
        """
        for child in self._children:
            if child.role in _LATE_ROLES and not self._signals.stop_asked:
                child.start(self._foreign_fds())
        # What is here by now stays. A collection that went through it would make it this process's own, page by page.
        gc.freeze()
        gc.enable()
        self._settings = self._context.live_settings()
        self._settings.close()
        while not self._signals.stop_asked:
            self._step()
            if self._give_up is not None:
                raise self._give_up

    @property
    def stop_asked(self) -> bool:
        """Whether a signal asked to stop."""
        return self._signals.stop_asked

    def stop(self) -> bool:
        """Stop the children in order (`E05`) and wait for them; what is not gone in time is killed.

        Those of a test's broker, whose data go with it, have nothing to bring to safety: they are killed at once.
        Returns whether every child that was alive ended by itself, without an error.
        """
        quick = self._signals.quick
        self._context.broker_words.set_draining(not quick)
        for listener in self._context.listeners:
            listener.socket.close()
        begin_ns = self._clock.monotonic_ns()
        total_ns = (_QUICK_STOP_MS if quick else self._config.shutdown_timeout_ms) * 1_000_000
        counted = [child for child in self._children if child.role is not Role.WEB and not child.has_left]
        if self._config.ephemeral and self._config.injects_faults:
            for child in self._children:
                if child.is_alive:
                    child.kill()
        # Logs that were closed to be moved are not durable yet.
        clean = not self._handlers.is_moving and all(child.is_alive for child in counted if child.generation)
        for roles in _STAGES:
            share = _CLIENT_SHARE if roles[0] in {Role.ACCEPTOR, Role.PROCESSOR} else 1.0
            stage = [child for child in self._children if child.role in roles and child.is_alive]
            clean &= self._stop_stage(stage, begin_ns + int(total_ns * share))
        self._context.slots.set_state(Role.SUPERVISOR, 0, process_slots.STOPPED)
        self._signals.uninstall()
        return clean

    def _await_ready(self, children: Iterable[Child]) -> None:
        while not self._signals.stop_asked and not all(child.ready for child in children):
            self._step()
            if self._give_up is not None:
                raise self._give_up

    def _step(self) -> None:
        """Sleep until something happens; reap and replace the dead, and register the ready."""
        starting = any(child.is_alive and not child.ready for child in self._children)
        for child in self._poll(_BOOT_POLL_MS if starting else self._wait_ms()):
            self._on_death(child)
        self._restart_due()
        if not self._handlers.is_moving:
            self._processors.turn()
        if self._processors.is_settled:
            self._handlers.turn()
        self._look()
        self._follow_settings()
        for child in self._children:
            if child.is_alive and child.notice_ready() and child.restarts:
                _log.info("%s is back (generation %d)", child.label, child.generation)
                self._context.ring_everyone()

    def _wait_ms(self) -> float:
        """Return how long there is nothing to do that the clock asks for."""
        if self._handlers.is_moving:
            return HANDLERS_LOOK_MS
        dues_ns = [child.restart_due_ns for child in self._children if child.restart_due_ns]
        due_ns = min((self._look_due_ns, *dues_ns))
        return max(0.0, (due_ns - self._clock.monotonic_ns()) / 1e6)

    def _look(self) -> None:
        """Say that this process turns, and look whether the others do, when it is time."""
        now_ns = self._clock.monotonic_ns()
        if now_ns >= self._look_due_ns:
            self._look_due_ns = now_ns + LOOK_MS * 1_000_000
            self._context.slots.beat(Role.SUPERVISOR, 0, now_ns)
            self._watchdog.look(self._children, now_ns)
            self._alive()

    def _follow_settings(self) -> None:
        if self._settings is not None:
            self._settings.refresh()
            # SQLite's connections must not be open across a fork.
            self._settings.close()
            config = self._settings.broker_config
            self._settings.apply(lambda: self._listeners.turn(config))

    def _restart_due(self) -> None:
        for child in self._children:
            if child.restart_due_ns and self._clock.monotonic_ns() >= child.restart_due_ns:
                self._replace(child)

    def _add_child(self, role: Role, index: int) -> Child:
        self._children.append(Child(role, index, self._functions, self._context))
        return self._children[-1]

    def _start_child(self, child: Child) -> None:
        child.start(self._foreign_fds())

    def _replace(self, child: Child) -> None:
        child.replaced_ns = self._clock.monotonic_ns()
        child.start(self._foreign_fds())
        self._context.ring_everyone()

    def _poll(self, timeout_ms: float | None) -> list[Child]:
        """Return the children that have died; wait for one, a signal or a bell, at most `timeout_ms`.

        Does meanwhile what an operator asks for.
        """
        poll = select.poll()
        by_sentinel = {child.sentinel: child for child in self._children if child.is_alive}
        for fd in (*by_sentinel, self._signals.fds[0], self._context.supervisor_bell.fileno()):
            poll.register(fd, select.POLLIN)
        waits_ms = [each for each in (timeout_ms, self._operator_tasks.wait_ms()) if each is not None]
        ready = [fd for fd, _ in poll.poll(min(waits_ms, default=None))]
        self._signals.drain()
        self._context.supervisor_bell.drain()
        self._operator_tasks.turn()
        return [by_sentinel[fd] for fd in ready if fd in by_sentinel]

    def _on_death(self, child: Child) -> None:
        was_ready = child.ready or child.generation > 1 or child.notice_ready()
        pid = self._context.slots.pid(child.role, child.index)
        is_leaving = self._processors.is_leaving(child)
        is_moving = self._handlers.is_leaving(child)
        status = child.reap(expected=is_leaving or is_moving)
        if is_leaving or is_moving:
            child.has_left = True
            if status:
                _log.warning("%s (pid %d) was to end and %s", child.label, pid, describe_exit(status))
            if is_leaving:
                self._processors.has_left(child)
            return
        if status == ExitCode.RETIRED:
            child.start(self._foreign_fds())
            return
        last_words = child.last_words if status > 0 else child.stacks.answer(wait_ms=0)
        words = f": {last_words}" if last_words else ""
        what = f"{child.label} (pid {pid}) {describe_exit(status)}{words}"
        exit_code = boot_exit_code(status)
        # A first process that ends by itself before it can serve fails for a reason that its replacement would meet as
        # well. One that a signal ends, or a later one (the disk may be full just now), is replaced like any that dies.
        was_ready |= self._handlers.is_joining(child)
        is_unbootable = status > 0 and not was_ready and (child.role is not Role.WEB or exit_code is not None)
        if is_unbootable and self._processors.cannot_boot(child, what):
            child.has_left = True
            return
        failure = BootFailed(what, exit_code or 1) if is_unbootable else self._died_too_often(child, what)
        if failure is None and child.restart_due_ns:
            wait_s = (child.restart_due_ns - self._clock.monotonic_ns()) / 1e9
            often = "%s; it dies too often (process.restart.limit), so it is replaced in %.1f s (restart %d)"
            _log.error(often, what, wait_s, child.restarts)
        elif failure is None:
            _log.error("%s; replacing it (restart %d)", what, child.restarts)
            self._replace(child)
        elif child.role is Role.WEB or (child.role is Role.RECORDER and not is_unbootable):
            _log.error("%s; the broker continues without its %s", failure.reason, _ONLOOKERS[child.role])
        else:
            self._give_up = failure

    def _died_too_often(self, child: Child, what: str) -> BootFailed | None:
        """Count a restart, and put it off if there are many; return why there is to be none."""
        window_ms, limit = self._config.process_restart_window_ms, self._config.process_restart_limit
        now_ns, served = self._clock.monotonic_ns(), self._context.channel.released()
        recent, served_before = child.count_restart(now_ns, window_ms * 1_000_000, served)
        if recent <= limit:
            return None
        if served > served_before or child.role is Role.CLEANER:
            apart_ns = window_ms * 1_000_000 // limit
            due_ns = child.replaced_ns + (apart_ns if child.role in _LATE_ROLES else min(apart_ns, _CLIENTS_WAIT_NS))
            child.restart_due_ns = due_ns if due_ns > now_ns else 0
            return None
        often = f"it died {recent} times within {window_ms} ms, above process.restart.limit"
        return BootFailed(f"{what}; {often}, and no request was served meanwhile")

    def _stop_stage(self, children: list[Child], deadline_ns: int) -> bool:
        clean = True
        for child in children:
            child.ask_to_stop()
        killed = False
        while any(child.is_alive for child in children):
            if self._signals.quick:
                deadline_ns = min(deadline_ns, self._clock.monotonic_ns() + _QUICK_STOP_MS * 1_000_000)
            left_ms = (deadline_ns - self._clock.monotonic_ns()) / 1e6
            if left_ms <= 0 and not killed:
                killed = True
                for child in children:
                    if child.is_alive:
                        _log.warning("%s did not stop in time and is killed", child.label)
                        child.kill()
            for child in self._poll(None if killed else left_ms):
                # Of a later stage a child may die meanwhile; nothing is restarted any more.
                clean &= child.reap(expected=True) == 0 or child.role is Role.WEB
        return clean

    def _foreign_fds(self) -> list[int]:
        """Return what is the supervisor's alone: its pipe, sentinels of other children, listeners that are closing."""
        sentinels = (child.sentinel for child in self._children if child.is_alive)
        return [*self._signals.fds, *sentinels, *self._listeners.closing_fds]
