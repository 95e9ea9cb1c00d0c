"""`rotunda start`: in the foreground, or as a daemon that the command waits for."""

from __future__ import annotations

import argparse
import dataclasses
import gc
import json
import os
import select
import shutil
import sys
import tempfile
import traceback
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from rotunda.broker.cli.config import configuration
from rotunda.broker.clock import SystemClock
from rotunda.broker.errors import BootFailed, RotundaError, UsageError
from rotunda.broker.runtime import run_dir
from rotunda.broker.runtime.boot_failures import boot_failures
from rotunda.broker.runtime.signals import ignore_tasks
from rotunda.shm.segment import new_instance

if TYPE_CHECKING:
    from rotunda.broker.cli.instance.secure import SecureStart
    from rotunda.broker.config.broker_config import BrokerConfig
    from rotunda.broker.runtime.run_dir import RunRecord
    from rotunda.broker.server_log.log_file import LogFile

#: Prefix of a process's temporary directories: its instance follows.
EPHEMERAL_PREFIX = "rotunda-ephemeral-"
_FAILURE_EXIT_CODE = 1
_WAIT_S = 60.0

_OnReady = Callable[["RunRecord"], None]
_BeforeStart = Callable[["BrokerConfig"], None]


def start(parsed: argparse.Namespace, environment: Mapping[str, str]) -> int:
    """Start a broker. In the foreground this returns when it has stopped."""
    # Log rotation and reloads send their signals without checking that a broker is ready.
    ignore_tasks()
    secure = _secure(parsed, environment)
    config = secure.config if secure else configuration(parsed, environment)
    config = dataclasses.replace(config, injects_faults=parsed.for_tests)
    before_start = _before_start(parsed, secure)
    if parsed.wait is not None and not parsed.daemon:
        raise UsageError("--wait needs --daemon")
    if parsed.daemon:
        return _start_daemon(parsed, environment, config, secure, before_start)

    def announce(record: RunRecord) -> None:
        if secure:
            secure.write_client_properties(record.bootstrap)
        print(ready_line(record, parsed, secure), flush=True)

    _run(parsed, environment, config, announce, lambda *_: None, before_start)
    return 0


def _before_start(parsed: argparse.Namespace, secure: SecureStart | None) -> _BeforeStart:
    """Return the creation of what the options name: users and topics. Raises UsageError."""
    steps: list[_BeforeStart] = [lambda _config: secure.make_user()] if secure else []
    if parsed.topics or parsed.create is not None:
        from rotunda.broker.cli.instance.first_contents import FirstContents  # noqa: PLC0415 - others do without it

        steps.append(FirstContents(parsed).create)

    def create(config: BrokerConfig) -> None:
        for step in steps:
            step(config)

    return create


def _secure(parsed: argparse.Namespace, environment: Mapping[str, str]) -> SecureStart | None:
    """Return the setup of a secured broker; None for any other."""
    if not parsed.secure:
        if parsed.new_password:
            raise UsageError("--new-password needs --secure")
        return None
    from rotunda.broker.cli.instance.secure import SecureStart  # noqa: PLC0415 - others do without it

    if parsed.daemon and parsed.wait is None:
        # Only this process can print the password.
        parsed.wait = _WAIT_S
    with boot_failures("the data directory cannot be used"):
        return SecureStart(parsed, environment)


def ready_line(record: RunRecord, parsed: argparse.Namespace, secure: SecureStart | None = None) -> str:
    """Return the line printed when the broker serves; `ready_ms` is the time since the command began.

    For a secured one, further facts follow below it.
    """
    facts = {
        "bootstrap": record.bootstrap,
        "status_url": record.status_url or None,
        "pid": record.pid,
        "data_dir": record.data_dir,
        "run_dir": record.run_dir,
        "ready_ms": (SystemClock.monotonic_ns() - parsed.began_ns) // 1_000_000,
    }
    if parsed.json:
        return json.dumps({**facts, **(secure.facts if secure else {})})
    line = "rotunda ready " + " ".join(f"{name}={value}" for name, value in facts.items() if value is not None)
    return "\n".join([line, *(secure.lines(record.bootstrap) if secure else ())])


def _run(
    parsed: argparse.Namespace,
    environment: Mapping[str, str],
    config: BrokerConfig,
    on_ready: _OnReady,
    prepare: Callable[[Path, BrokerConfig], LogFile | None],
    before_start: _BeforeStart,
) -> None:
    """Run the broker in this process until it has stopped.

    `prepare` is called first, with the run directory, and returns the log file if there is one.
    """
    log_format = parsed.log_format or environment.get("ROTUNDA_LOG_FORMAT") or "text"
    if log_format not in {"text", "json"}:
        raise UsageError(f"ROTUNDA_LOG_FORMAT={log_format}: expected text or json")
    named = parsed.run_dir or environment.get("ROTUNDA_RUN_DIR")
    with ExitStack() as undo:
        # Nearly all objects of a start survive: garbage collection is a seventh of the startup time, and finds next to
        # none. The supervisor and its children collect later objects.
        gc.disable()
        undo.callback(gc.enable)
        from rotunda.broker.server_log.log_file import LogOutput  # noqa: PLC0415 - a daemon's parent does without them
        from rotunda.broker.supervisor.broker_main import serve  # noqa: PLC0415

        with boot_failures("the temporary directory cannot be used"):
            if config.ephemeral:
                remove_dead_ephemeral()
                directory = Path(tempfile.mkdtemp(prefix=f"{EPHEMERAL_PREFIX}{new_instance()}-"))
                undo.callback(shutil.rmtree, directory, ignore_errors=True)
                config = dataclasses.replace(config, log_dirs=(str(directory / "data"),))
                named = named or directory / "run"
            run_path = Path(named).absolute() if named else run_dir.default_path(environment)
        with boot_failures(f"run directory {run_path} cannot be used"):
            run_dir.make(run_path)
            log_output = LogOutput(log_format, prepare(run_path, config))
        serve(config, run_path, log_output, on_ready, before_start=partial(before_start, config))


def remove_dead_ephemeral() -> None:
    """Delete the temporary directories of killed brokers; the name contains each one's process."""
    for directory in Path(tempfile.gettempdir()).glob(f"{EPHEMERAL_PREFIX}*"):
        pid, _, ticks = directory.name.removeprefix(EPHEMERAL_PREFIX).partition("-")[0].partition(".")
        if pid.isdecimal() and ticks.isdecimal() and not run_dir.is_running(int(pid), int(ticks)):
            shutil.rmtree(directory, ignore_errors=True)


def _start_daemon(
    parsed: argparse.Namespace,
    environment: Mapping[str, str],
    config: BrokerConfig,
    secure: SecureStart | None,
    before_start: _BeforeStart,
) -> int:
    """Fork the daemon; with --wait return its outcome, else only report its launch."""
    sys.stdout.flush()
    with boot_failures():
        reader, writer = os.pipe()
        pid = os.fork()
    if pid == 0:
        os.close(reader)
        _become_daemon(parsed, environment, config, writer, secure, before_start)
    os.close(writer)
    if parsed.wait is None:
        print(f"rotunda starting pid={pid}")
        return 0
    if not select.select((reader,), (), (), parsed.wait)[0]:
        raise BootFailed(f"pid {pid} is not ready after {parsed.wait:g} s and still starting; see `rotunda status`")
    with open(reader, encoding="utf-8") as pipe:
        said = pipe.readline()
    if not said:
        raise BootFailed(f"pid {pid} ended without a message")
    outcome = json.loads(said)
    if outcome["exit_code"]:
        raise BootFailed(outcome["text"], outcome["exit_code"])
    print(outcome["text"])
    return 0


def _become_daemon(
    parsed: argparse.Namespace,
    environment: Mapping[str, str],
    config: BrokerConfig,
    writer: int,
    secure: SecureStart | None,
    before_start: _BeforeStart,
) -> NoReturn:
    """Run the broker detached from the terminal, with a log file; report the outcome to the parent."""
    os.setsid()

    def report(exit_code: int, text: str) -> None:
        # Once: the parent reads one line, and the pipe must not outlive the wait. The parent may have exited.
        nonlocal writer
        if writer >= 0:
            with suppress(BrokenPipeError):
                os.write(writer, json.dumps({"exit_code": exit_code, "text": text}).encode() + b"\n")
            os.close(writer)
            writer = -1

    code = _FAILURE_EXIT_CODE
    try:

        def announce(record: RunRecord) -> None:
            if secure:
                secure.write_client_properties(record.bootstrap)
            report(0, ready_line(record, parsed, secure))

        _run(parsed, environment, config, announce, _detach, before_start)
        code = 0
    except BootFailed as failure:
        code = failure.exit_code
        report(code, failure.reason)
    except RotundaError as failure:
        report(code, str(failure))
    except Exception as failure:  # the daemon's outermost frame: the log gets the trace, the user the reason
        traceback.print_exc()
        report(code, f"{type(failure).__name__}: {failure}")
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _detach(run_path: Path, config: BrokerConfig) -> LogFile:
    """Redirect stdin from nothing, and stdout and stderr to the log in the run directory; return the log."""
    from rotunda.broker.server_log.log_file import LogFile  # noqa: PLC0415 - a daemon's parent does without it

    log_file = LogFile(
        run_path / run_dir.LOG_NAME,
        config.broker_log_max_bytes,
        config.broker_log_max_age_ms,
        config.broker_log_kept_files,
    )
    log_file.open()
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.chdir("/")
    return log_file
