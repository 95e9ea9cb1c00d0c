"""`rotunda status`, `stop` and `reload`: show a running broker from run directory and control segment, and signal it.

Reads shared memory without writing to it, so that they cannot disturb the broker.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import signal
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rotunda.broker.clock import SystemClock
from rotunda.broker.errors import RotundaError
from rotunda.broker.runtime import run_dir
from rotunda.broker.text_table import Cell, aligned, printable
from rotunda.shm.control import ControlSegment
from rotunda.shm.segment import SegmentError, attach
from rotunda.shm.tables.process_slots import SILENT_NS

if TYPE_CHECKING:
    from rotunda.broker.runtime.run_dir import RunRecord
    from rotunda.shm.tables.process_slots import ProcessStatus

_LOOK_AGAIN_S = 0.01


def status(parsed: argparse.Namespace, environment: Mapping[str, str]) -> int:
    """Print the running broker; exit code 3 when none runs, 1 when it is not ready within --wait."""
    path = run_path(parsed, environment)
    clock = SystemClock()
    deadline_ns = clock.monotonic_ns() + int((parsed.wait or 0) * 1e9)
    while True:
        record = run_dir.read(path)
        alive = record is not None and record.is_alive
        if (alive and record is not None and record.state == run_dir.READY) or clock.monotonic_ns() >= deadline_ns:
            break
        select.select((), (), (), _LOOK_AGAIN_S)
    if record is None or not alive:
        run_dir.check_readable(path)
        _print_not_running(path, record, parsed.json)
        return run_dir.NOT_RUNNING_EXIT_CODE
    _print_running(record, _processes(record), parsed.json)
    return 1 if parsed.wait is not None and record.state != run_dir.READY else 0


def stop(parsed: argparse.Namespace, environment: Mapping[str, str]) -> int:
    """Signal the broker to stop and wait until its supervisor, hence every process of it, has exited."""
    path = run_path(parsed, environment)
    record, pid_fd = _running(path)
    signal.pidfd_send_signal(pid_fd, signal.SIGINT if parsed.quick else signal.SIGTERM)
    exited = select.poll()
    exited.register(pid_fd, select.POLLIN)
    gone = exited.poll(parsed.wait * 1000)
    os.close(pid_fd)
    if not gone:
        raise RotundaError(f"pid {record.pid} has not stopped after {parsed.wait:g} s")
    print(f"rotunda stopped pid={record.pid}")
    return 0


def reload(parsed: argparse.Namespace, environment: Mapping[str, str]) -> int:
    """Signal the broker to read its configuration file again; its log has the outcome."""
    path = run_path(parsed, environment)
    record, pid_fd = _running(path)
    if record.state != run_dir.READY:
        raise RotundaError(f"pid {record.pid} is {record.state}, and reads its configuration when it is ready")
    signal.pidfd_send_signal(pid_fd, signal.SIGHUP)
    os.close(pid_fd)
    print(f"rotunda reloads its configuration pid={record.pid}; see its log for the result")
    return 0


def _running(path: Path) -> tuple[RunRecord, int]:
    """Return the record of the running broker, and a descriptor of its supervisor. Raises BootFailed."""
    record = run_dir.read(path)
    pid_fd = -1
    if record is not None:
        with suppress(ProcessLookupError):
            pid_fd = os.pidfd_open(record.pid)
    # Checked after the descriptor was opened: from here on it can only mean the recorded process.
    if record is None or pid_fd < 0 or not record.is_alive:
        run_dir.check_readable(path)
        raise run_dir.not_running(path)
    return record, pid_fd


def run_path(parsed: argparse.Namespace, environment: Mapping[str, str]) -> Path:
    """Return the run directory of the command line or the environment."""
    return Path(parsed.run_dir).absolute() if parsed.run_dir else run_dir.default_path(environment)


def _processes(record: RunRecord) -> list[ProcessStatus]:
    """Return a reading of every process slot; empty without shared memory (yet, or any more)."""
    try:
        segment = attach(f"/rotunda-{record.instance}-control")
    except SegmentError:
        return []
    most = record.most_processors, record.most_handlers
    return ControlSegment(segment.view, *most, record.max_partitions).statuses()


def _print_not_running(path: Path, record: RunRecord | None, as_json: bool) -> None:
    reason = record.reason if record is not None else ""
    if as_json:
        print(json.dumps({"state": "not running", "run_dir": str(path), "reason": reason}))
        return
    print(f"{run_dir.not_running(path)}" + (f"; the last one stopped: {reason}" if reason else ""))


def _print_running(record: RunRecord, processes: list[ProcessStatus], as_json: bool) -> None:
    if as_json:
        facts: dict[str, Any] = asdict(record)
        facts["processes"] = [{**asdict(each), "silent_ms": _silent_ns(each) // 1_000_000} for each in processes]
        print(json.dumps(facts, indent=1))
        return
    print(f"rotunda {record.state} bootstrap={record.bootstrap} pid={record.pid} data_dir={record.data_dir}")
    print(f"status page: {record.status_url or 'off'}")
    print(f"code: {'compiled' if record.is_native else 'pure Python'}")
    rows = [_row(process) for process in processes if process.state != "empty"]
    for line in aligned(("ROLE", "INDEX", "PID", "STATE", "MEMORY MB", "CPU S", "RESTARTS", "LAST ERROR"), rows):
        print(line)


def _silent_ns(process: ProcessStatus) -> int:
    """Return the time since the last pass of a process's loop; 0 before the first."""
    silent_ns = SystemClock.monotonic_ns() - process.heartbeat_ns
    return max(0, silent_ns) if process.ready and process.heartbeat_ns else 0


def _row(process: ProcessStatus) -> list[Cell]:
    """Return a process's line: its share of memory and the CPU time since its start are the system's figures."""
    import psutil  # noqa: PLC0415 - the JSON does without

    memory_mb: float | None = None
    cpu_s: float | None = None
    with suppress(psutil.Error, OSError):
        found = psutil.Process(process.pid)
        memory_mb = found.memory_full_info().pss / 1e6
        cpu_s = sum(found.cpu_times()[:2])
    state = process.state if process.ready or process.state != "running" else "starting"
    if state == "running" and _silent_ns(process) >= SILENT_NS:
        state = f"hangs {_silent_ns(process) // 1_000_000_000} s"
    last_error = printable(process.last_error)
    return [process.role, process.index, process.pid, state, memory_mb, cpu_s, process.restarts, last_error]
