"""A broker's life from configuration to exit: preparation before the children start, and cleanup after they end.

Runs in the process that becomes the supervisor; called by the command line, knows nothing of its options. Order
matters: locks first, so that two brokers never share a directory; ports next, so that the real port is known; shared
memory last, because it must not outlive a failure of the other steps.
"""

from __future__ import annotations

import importlib
import logging
import os
import resource
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rotunda.broker import native
from rotunda.broker.clock import SystemClock
from rotunda.broker.config.notes import start_notes
from rotunda.broker.errors import BootFailed, ConfigError
from rotunda.broker.log.data_dir import (
    lock_data_dir,
    prepare_data_dir,
    remove_clean_shutdown_mark,
    want_of_privacy,
    write_clean_shutdown_mark,
)
from rotunda.broker.log.descriptor_limit import want_of_descriptors
from rotunda.broker.metadata.rebuild import check_or_rebuild
from rotunda.broker.metadata.store.preparation import prepare as prepare_metadata
from rotunda.broker.metadata.thread_counts import configured_at_start
from rotunda.broker.network.acceptor.listener import bind
from rotunda.broker.partitions.storage.storage_reserve import StorageReserve
from rotunda.broker.runtime import run_dir
from rotunda.broker.runtime.boot_failures import boot_failures
from rotunda.broker.runtime.child_process import Role
from rotunda.broker.security.tls.checks import check_tls
from rotunda.broker.server_log import log_setup
from rotunda.broker.supervisor import shared_resources
from rotunda.broker.supervisor.process_limits import FEWEST_DESCRIPTORS, check_descriptor_limit, descriptors_needed
from rotunda.broker.supervisor.service_manager import ServiceManager
from rotunda.broker.supervisor.status_listener import bind_status_page, status_url
from rotunda.broker.supervisor.supervisor import Supervisor
from rotunda.shm.segment import SharedMemoryTooSmall, new_instance, start_ticks

if TYPE_CHECKING:
    from rotunda.broker.config.broker_config import BrokerConfig
    from rotunda.broker.ipc.listener_table import ListenerEntry
    from rotunda.broker.ipc.process_context import BoundListener, ProcessContext
    from rotunda.broker.runtime.child_process import RoleFunction
    from rotunda.broker.runtime.run_dir import RunRecord
    from rotunda.broker.server_log.log_file import LogOutput

_log = logging.getLogger(__name__)

_ROLE_MODULES: Final = {
    Role.ACCEPTOR: "rotunda.broker.network.acceptor.acceptor_process",
    Role.PROCESSOR: "rotunda.broker.network.processor.processor_process",
    Role.HANDLER: "rotunda.broker.handler.handler_process",
    Role.CONTROLLER: "rotunda.broker.handler.handler_process",
    Role.CLEANER: "rotunda.broker.cleaner.cleaner_process",
    Role.RECORDER: "rotunda.broker.request_log.recorder_process",
    Role.WEB: "rotunda.broker.status.status_page",
}


def serve(
    config: BrokerConfig,
    run_path: Path,
    log_output: LogOutput,
    on_ready: Callable[[RunRecord], None],
    functions: Mapping[Role, RoleFunction] | None = None,
    before_start: Callable[[], None] = lambda: None,
) -> None:
    """Run a broker until the stop signal; `on_ready` is called once when it serves.

    `before_start` is called when the metadata is ready and before any other process of the broker starts. Raises
    BootFailed, with the program's exit code, when it cannot start or cannot continue. In both cases all resources are
    freed afterwards, except the run directory's record of a failure.
    """
    log_setup.configure(Role.SUPERVISOR.label, 0, log_output.line_format)
    with ExitStack() as undo:
        context = _prepare(config, run_path, log_output, before_start, undo)
        record = _record(context)
        with boot_failures(_cannot_be_used("run", run_path)):
            run_dir.write(run_path, record)
        try:
            if _supervise(context, functions or role_functions(), record, on_ready):
                write_clean_shutdown_mark(config.data_dir)
        except BootFailed as failure:
            _log.critical("the broker stops: %s", failure.reason)
            _write_state(record.with_state(run_dir.FAILED, failure.reason))
            raise
        try:
            run_dir.remove(run_path)
        except OSError as failure:
            _log.warning("cannot remove the record of this stopped broker: %s", failure)


def _prepare(
    config: BrokerConfig, run_path: Path, log_output: LogOutput, before_start: Callable[[], None], undo: ExitStack
) -> ProcessContext:
    """Lock the directories, prepare the metadata, create the children's resources; `undo` frees all of them."""
    check_descriptor_limit(FEWEST_DESCRIPTORS)
    data_dir = config.data_dir
    with boot_failures(_cannot_be_used("run", run_path)):
        run_dir.make(run_path)
        undo.callback(os.close, run_dir.lock(run_path))
    with boot_failures(_cannot_be_used("data", data_dir)):
        # For this user alone; an existing directory keeps its mode.
        data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        undo.callback(os.close, lock_data_dir(data_dir))
        undo.callback(os.close, run_dir.outlast_children(data_dir))
        cluster_id = prepare_data_dir(data_dir, config.node_id)
        reserve = StorageReserve(data_dir)
        check_or_rebuild(config, SystemClock().wall_ms(), reserve.make_room)
        prepare_metadata(data_dir, config.max_partitions, ephemeral=config.ephemeral, before_change=reserve.make_room)
        before_start()
        was_clean = remove_clean_shutdown_mark(data_dir)
    context = _make_heritage(config, run_path, cluster_id, log_output, undo, is_clean_start=was_clean)
    check_descriptor_limit(descriptors_needed(context))
    log_setup.configure(Role.SUPERVISOR.label, 0, log_output.line_format, after_line=context.after_log_line)
    for note in start_notes(config):
        _log.info("%s", note)
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    wanting = want_of_descriptors(data_dir, context.started_handlers, limit)
    for warning in filter(None, (wanting, want_of_privacy(config.data_dir))):
        _log.warning("%s", warning)
    return context


def _cannot_be_used(kind: str, path: Path) -> str:
    return f"{kind} directory {path} cannot be used"


def _write_state(record: RunRecord) -> None:
    """Write a new state to the broker's run record. On failure the broker continues: clients have priority."""
    try:
        run_dir.write(Path(record.run_dir), record)
    except OSError as failure:
        _log.warning(
            "run directory %s: cannot record that the broker is %s, so `rotunda status` shows the previous state: %s",
            *(record.run_dir, record.state, failure.strerror),
        )


def role_functions() -> Mapping[Role, RoleFunction]:
    """Return the function of each role.

    All are imported before the first fork: processes share only the memory that the supervisor does not change later.
    """
    return {role: importlib.import_module(module).run for role, module in _ROLE_MODULES.items()}


def bootstrap(listeners: Iterable[ListenerEntry], control: int = -1) -> str:
    """Return the advertised addresses, comma-separated, as sent to clients, without that of the control plane."""
    return ",".join(_address(each) for index, each in enumerate(listeners) if each.is_open and index != control)


def _address(listener: ListenerEntry) -> str:
    return _written(listener.advertised_host, listener.advertised_port)


def _local(context: ProcessContext) -> str:
    """Return the addresses for local commands: of TLS listeners the advertised ones, as certificates name hosts."""
    return ",".join(
        _address(context.listener_table[each.index]) if each.protocol.endswith("SSL") else _written(*each.here)
        for each in context.listeners
        if each.index != context.control_listener
    )


def _written(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _supervise(
    context: ProcessContext,
    functions: Mapping[Role, RoleFunction],
    record: RunRecord,
    on_ready: Callable[[RunRecord], None],
) -> bool:
    """Start, run and stop the children; return whether every one of them ended by itself on the stop signal."""
    ready = record.with_state(run_dir.READY)

    def listeners_changed() -> None:
        address = bootstrap(context.listener_table, context.control_listener)
        _write_state(replace(ready, bootstrap=address, local=_local(context)))

    manager = ServiceManager(os.environ)
    with boot_failures():
        supervisor = Supervisor(context, functions, SystemClock(), listeners_changed, manager.alive)
    try:
        with boot_failures():
            supervisor.start()
        if not supervisor.stop_asked:
            _write_state(ready)
            on_ready(ready)
            manager.ready(f"serves {ready.bootstrap}")
            # testcontainers waits for this text.
            _log.info("Kafka Server started: serves %s. Transitioning from RECOVERY to RUNNING", ready.bootstrap)
            with boot_failures():
                supervisor.run()
    finally:
        manager.stopping()
        _write_state(record.with_state(run_dir.STOPPING))
        ended_cleanly = supervisor.stop()
    return ended_cleanly


def _make_heritage(
    config: BrokerConfig,
    run_path: Path,
    cluster_id: str,
    log_output: LogOutput,
    undo: ExitStack,
    *,
    is_clean_start: bool,
) -> ProcessContext:
    listeners: list[BoundListener] = []
    # Including listeners configured during an earlier run.
    set_now = configured_at_start(config)
    try:
        check_tls(set_now)
    except ConfigError as error:
        raise BootFailed(str(error), exit_code=2) from None
    for wanted, advertised in zip(set_now.bound_listeners, set_now.effective_advertised_listeners, strict=True):
        listeners.append(bind(wanted, advertised, config.socket_receive_buffer_bytes, len(listeners)))
        undo.callback(listeners[-1].socket.close)
    status_socket = bind_status_page(config)
    if status_socket is not None:
        undo.callback(status_socket.close)
    try:
        with boot_failures("shared memory, a tmpfs at /dev/shm, cannot be used"):
            made = shared_resources.make(
                config, new_instance(), run_path, cluster_id, log_output, listeners, status_socket
            )
    except SharedMemoryTooSmall as failure:
        raise BootFailed(str(failure)) from failure
    undo.callback(shared_resources.release, made)
    return replace(made, is_clean_start=is_clean_start)


def _record(context: ProcessContext) -> RunRecord:
    pid, control = context.supervisor_pid, context.control_listener
    return run_dir.RunRecord(
        instance=context.instance,
        pid=pid,
        start_ticks=start_ticks(pid) or 0,
        state=run_dir.STARTING,
        bootstrap=bootstrap(context.listener_table, control),
        local=_local(context),
        control_plane="" if control < 0 else _address(context.listener_table[control]),
        data_dir=str(context.config.data_dir),
        run_dir=str(context.run_dir),
        processors=context.started_processors,
        most_processors=context.most_processors,
        handlers=context.started_handlers,
        most_handlers=context.most_handlers,
        max_partitions=context.config.max_partitions,
        status_url=status_url(context.status_socket, by_https=context.config.status_ssl_enable),
        started_ms=SystemClock().wall_ms(),
        is_native=native.compiled is not None,
        client_properties=context.config.client_properties,
    )
