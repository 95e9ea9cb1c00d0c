"""The supervisor: starts every process, replaces dead ones, stops all in order. It serves no request.

Runs in the process that the user started. Signal handlers only record the request; the loop acts on it. The loop sleeps
in poll() on the children's sentinels, on a pipe that signals write to, and on a bell that children ring when they are
ready; once a second it checks whether their loops run (`watchdog`).

A child that cannot boot stops the start, or the broker, with its reason. One that dies later is replaced, at first at
once; one that dies often is replaced after a delay. The broker stops, with a line that names the cause, if no request
is served between such deaths. It continues without an onlooker (status page, request log) that dies so often, and
always replaces the cleaner: clients are served as before.
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
from rotunda.broker.text_table import counted
from rotunda.shm.tables import process_slots

if TYPE_CHECKING:
    from rotunda.broker.clock import Clock
    from rotunda.broker.ipc.process_context import ProcessContext
    from rotunda.broker.metadata.configs.live_settings import LiveSettings
    from rotunda.broker.runtime.child_process import RoleFunction

_log = logging.getLogger(__name__)

#: What a broker lacks when one of these is no longer replaced. No client notices.
_ONLOOKERS: Mapping[Role, str] = MappingProxyType({Role.WEB: "status page", Role.RECORDER: "request log"})

#: Poll interval for the slot of a booting child, in case it does not ring.
_BOOT_POLL_MS = 5
#: The time SIGINT grants the children to close their files.
_QUICK_STOP_MS = 2000
#: Share of shutdown.timeout.ms for acceptor and processors; the rest is for handlers to close their logs.
_CLIENT_SHARE = 0.6

#: The broker serves without them, so they start after it serves and do not delay the start.
_LATE_ROLES = frozenset({Role.CLEANER, Role.RECORDER, Role.WEB})

#: Clients wait for all other roles: one that dies often is restarted this long after its last start, not later.
_CLIENTS_WAIT_NS = 500_000_000

#: No other process sends requests to these. They yield to the others, also while they end, so they are signalled first.
_SIGNALLED_FIRST = frozenset({Role.CLEANER, Role.WEB})

#: The cleaner sends requests to handlers, so it ends before them; the recorder records all others to the last.
_STAGES = (
    (Role.ACCEPTOR,),
    (Role.PROCESSOR, Role.CLEANER),
    (Role.HANDLER,),
    (Role.CONTROLLER,),
    (Role.RECORDER, Role.WEB),
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

        ``alive`` is called once a second while the loop runs.
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
        """Start the serving roles in parallel; open the ports when they are ready, then start the acceptor (`A03`).

        Returns when the broker serves, or on the stop signal. Raises BootFailed when a child cannot boot or a port is
        in use; the caller then calls `stop`.
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
        """Start the late roles, and replace dead children until the stop signal.

        Raises BootFailed when the broker cannot continue.
        """
        for child in self._children:
            if child.role in _LATE_ROLES and not self._signals.stop_asked:
                child.start(self._foreign_fds())
        # Objects present now stay. A collection that visited them would copy their pages into this process, one by one.
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
        """Whether a signal requested the stop."""
        return self._signals.stop_asked

    def stop(self) -> bool:
        """Stop the children in order (`E05`) and wait for them; children past the deadline are killed.

        Those of a test's broker, whose data are deleted anyway, have nothing to save: they are killed at once. Returns
        whether every living child ended by itself, without an error; onlookers, on which no log depends, may not have.
        """
        quick = self._signals.quick
        self._context.broker_words.set_draining(not quick)
        for listener in self._context.listeners:
            listener.socket.close()
        begin_ns = self._clock.monotonic_ns()
        total_ns = (_QUICK_STOP_MS if quick else self._config.shutdown_timeout_ms) * 1_000_000
        counted = [child for child in self._children if child.role not in _ONLOOKERS and not child.has_left]
        if self._config.ephemeral and self._config.injects_faults:
            for child in self._children:
                if child.is_alive:
                    child.kill()
        # Logs that were closed for a move are not durable yet.
        clean = not self._handlers.is_moving and all(child.is_alive for child in counted if child.generation)
        self._signal_to_stop(_SIGNALLED_FIRST)
        for roles in _STAGES:
            self._signal_to_stop(frozenset(roles) - _SIGNALLED_FIRST)
            share = _CLIENT_SHARE if roles[0] in {Role.ACCEPTOR, Role.PROCESSOR} else 1.0
            stage = [child for child in self._children if child.role in roles and child.is_alive]
            clean &= self._await_end(stage, begin_ns + int(total_ns * share))
        self._context.slots.set_state(Role.SUPERVISOR, 0, process_slots.STOPPED)
        self._signals.uninstall()
        return clean

    def _await_ready(self, children: Iterable[Child]) -> None:
        while not self._signals.stop_asked and not all(child.ready for child in children):
            self._step()
            if self._give_up is not None:
                raise self._give_up

    def _step(self) -> None:
        """Sleep until an event; reap and replace dead children, and register ready ones."""
        starting = any(child.is_alive and not child.ready for child in self._children)
        for child in self._poll(_BOOT_POLL_MS if starting else self._wait_ms()):
            self._on_death(child)
        self._restart_due()
        if not self._handlers.is_moving:
            self._processors.run_once()
        if self._processors.is_settled:
            self._handlers.run_once()
        self._look()
        self._follow_settings()
        for child in self._children:
            if child.is_alive and child.notice_ready() and child.restarts:
                _log.info("%s is back (generation %d)", child.label, child.generation)
                self._context.ring_everyone()

    def _wait_ms(self) -> float:
        """Return the time until the next timed task."""
        if self._handlers.is_moving:
            return HANDLERS_LOOK_MS
        dues_ns = [child.restart_due_ns for child in self._children if child.restart_due_ns]
        due_ns = min((self._look_due_ns, *dues_ns))
        return max(0.0, (due_ns - self._clock.monotonic_ns()) / 1e6)

    def _look(self) -> None:
        """Publish this process's heartbeat, and check those of the others, once a second."""
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
            self._settings.apply(lambda: self._listeners.run_once(config))

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

        Runs the operator's tasks meanwhile.
        """
        poll = select.poll()
        by_sentinel = {child.sentinel: child for child in self._children if child.is_alive}
        for fd in (*by_sentinel, self._signals.fds[0], self._context.supervisor_bell.fileno()):
            poll.register(fd, select.POLLIN)
        waits_ms = [each for each in (timeout_ms, self._operator_tasks.wait_ms()) if each is not None]
        ready = [fd for fd, _ in poll.poll(min(waits_ms, default=None))]
        self._signals.drain()
        self._context.supervisor_bell.drain()
        self._operator_tasks.run_once()
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
                _log.warning("%s (pid %d) was stopped and %s", child.label, pid, describe_exit(status))
            if is_leaving:
                self._processors.has_left(child)
            return
        if status == ExitCode.RETIRED:
            child.start(self._foreign_fds())
            return
        last_error = child.last_error if status > 0 else child.stacks.answer(wait_ms=0)
        words = f": {last_error}" if last_error else ""
        message = f"{child.label} (pid {pid}) {describe_exit(status)}{words}"
        exit_code = boot_exit_code(status)
        # A first process that ends by itself before it can serve fails for a reason that its replacement would meet as
        # well. One killed by a signal, or a later generation (the disk may be full just now), is replaced like any
        # other.
        was_ready |= self._handlers.is_joining(child)
        is_unbootable = status > 0 and not was_ready and (child.role is not Role.WEB or exit_code is not None)
        if is_unbootable and self._processors.cannot_boot(child, message):
            child.has_left = True
            return
        failure = BootFailed(message, exit_code or 1) if is_unbootable else self._died_too_often(child, message)
        if failure is None and child.restart_due_ns:
            wait_s = (child.restart_due_ns - self._clock.monotonic_ns()) / 1e9
            often = "%s; it dies too often (process.restart.limit), so it is replaced in %.1f s (restart %d)"
            _log.error(often, message, wait_s, child.restarts)
        elif failure is None:
            _log.error("%s; replacing it (restart %d)", message, child.restarts)
            self._replace(child)
        elif child.role is Role.WEB or (child.role is Role.RECORDER and not is_unbootable):
            _log.error("%s; the broker continues without its %s", failure.reason, _ONLOOKERS[child.role])
        else:
            self._give_up = failure

    def _died_too_often(self, child: Child, message: str) -> BootFailed | None:
        """Count a restart, and delay it after many; return the failure if the child is not to be restarted."""
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
        often = f"it died {counted(recent, 'time')} within {window_ms} ms, above process.restart.limit"
        return BootFailed(f"{message}; {often}, without a served request")

    def _signal_to_stop(self, roles: frozenset[Role]) -> None:
        for child in self._children:
            if child.role in roles and child.is_alive:
                child.ask_to_stop()

    def _await_end(self, children: list[Child], deadline_ns: int) -> bool:
        clean = True
        killed = False
        while any(child.is_alive for child in children):
            if self._signals.quick:
                deadline_ns = min(deadline_ns, self._clock.monotonic_ns() + _QUICK_STOP_MS * 1_000_000)
            left_ms = (deadline_ns - self._clock.monotonic_ns()) / 1e6
            if left_ms <= 0 and not killed:
                killed = True
                for child in children:
                    if child.is_alive:
                        _log.warning("%s did not stop in time: killing it", child.label)
                        child.kill()
            for child in self._poll(None if killed else left_ms):
                # A child of a later stage may die meanwhile; none is restarted any more.
                clean &= child.reap(expected=True) == 0 or child.role in _ONLOOKERS
        return clean

    def _foreign_fds(self) -> list[int]:
        """Return the supervisor's own descriptors: its pipe, sentinels of other children, listeners being closed."""
        sentinels = (child.sentinel for child in self._children if child.is_alive)
        return [*self._signals.fds, *sentinels, *self._listeners.closing_fds]
