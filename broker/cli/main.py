"""The command `rotunda`: parses the command line, calls the command, converts failures to exit codes.

Thin on purpose. A command's module is imported when that command is called, because starting must be quick. Results are
written to stdout, errors to stderr; `--json` prints JSON and nothing else. Exit codes: 0 ok, 1 failure, 2 bad usage or
configuration, 3 not running, 4 port or directory in use, 5 data of a newer version.
"""

from __future__ import annotations

import argparse
import errno
import importlib
import io
import os
import re
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from rotunda.broker.cli.options.acls import add_acl
from rotunda.broker.cli.options.bench import add_bench
from rotunda.broker.cli.options.common import (
    add_config,
    add_group,
    add_metrics,
    add_report,
    add_requests,
    add_top,
    add_topic,
    json_option,
    run_dir_option,
)
from rotunda.broker.cli.options.mirror import add_mirror_config
from rotunda.broker.cli.options.quotas import add_quota
from rotunda.broker.cli.options.records import add_consume, add_produce
from rotunda.broker.cli.options.security import add_doctor, add_tls
from rotunda.broker.cli.options.users import add_user
from rotunda.broker.cli.options.values import seconds
from rotunda.broker.clock import SystemClock
from rotunda.broker.errors import ApiError, BootFailed, ConfigError, RotundaError, UsageError
from rotunda.broker.release import KAFKA_VERSION, installed_version
from rotunda.broker.runtime.garbage import paused_search

_Add = Callable[[argparse.ArgumentParser], None]

#: Exit codes by failure; any other exception raised on purpose is 1.
_USAGE_EXIT_CODE = 2
_FAILURE_EXIT_CODE = 1
_INTERRUPTED_EXIT_CODE = 130
_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})

_EPILOG = """\
examples:
  rotunda start --daemon --wait
  rotunda topic create orders --partitions 3
  rotunda consume orders --follow

exit codes: 0 ok, 1 failure, 2 bad usage or configuration, 3 not running, 4 port or directory in use,
5 data of a newer version. `rotunda COMMAND --help` describes a command.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    began_ns = SystemClock.monotonic_ns()
    if isinstance(sys.stdout, io.TextIOWrapper):
        # Escape characters that the terminal's encoding lacks, rather than fail to print.
        sys.stdout.reconfigure(errors="backslashreplace")
    arguments = [_as_utf_8(each) for each in (sys.argv[1:] if arguments is None else arguments)]
    if "_ARGCOMPLETE" in os.environ:
        _complete()
    try:
        parsed = _parser(arguments).parse_args(_asked(arguments), argparse.Namespace(began_ns=began_ns))
        module, function = parsed.run
        with paused_search():
            command = getattr(importlib.import_module(module), function)
        code: int = command(parsed, os.environ)
        if sys.stdout is not None:
            sys.stdout.flush()
    except (ConfigError, UsageError, UnicodeEncodeError) as failure:
        return _complain(failure, _USAGE_EXIT_CODE)
    except BootFailed as failure:
        return _complain(failure, failure.exit_code)
    except (ApiError, RotundaError) as failure:
        return _complain(failure, _FAILURE_EXIT_CODE)
    except KeyboardInterrupt:
        return _INTERRUPTED_EXIT_CODE
    except OSError as failure:
        return _unwritable(failure)
    return code


def _complete() -> None:
    """Print the completions of the command line that the shell has put into the environment, and exit."""
    import argcomplete  # noqa: PLC0415 - only for a shell's question

    argcomplete.autocomplete(_parser(list(_COMMANDS)))


def _asked(arguments: Sequence[str]) -> Sequence[str]:
    """Return the arguments with `rotunda` and `rotunda help [COMMAND ...]` as --help."""
    if not arguments:
        return ["--help"]
    return [*arguments[1:], "--help"] if arguments[0] == "help" else arguments


def _as_utf_8(argument: str) -> str:
    """Return an argument decoded as UTF-8, whatever the locale; a path that is not UTF-8 is unchanged."""
    with suppress(UnicodeError):
        return os.fsencode(argument).decode()
    return argument


def _unwritable(failure: OSError) -> int:
    """Print a write failure, except for a pipe whose reader has exited, such as `head`. Raises other failures."""
    if failure.errno not in _NO_ROOM and not isinstance(failure, BrokenPipeError):
        raise failure
    if sys.stdout is not None:
        # Prevent an error message of the interpreter at its exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if isinstance(failure, BrokenPipeError):
        return _FAILURE_EXIT_CODE
    text = f"cannot write to {failure.filename or 'standard output'}: {failure.strerror}"
    return _complain(RotundaError(text), _FAILURE_EXIT_CODE)


def _complain(failure: Exception, code: int) -> int:
    text = str(failure)
    if isinstance(failure, UnicodeEncodeError):
        text = f"invalid argument {failure.object!a}: not UTF-8"
    for line in text.splitlines():
        print(f"rotunda: {line}", file=sys.stderr)
    return code


class _Parser(argparse.ArgumentParser):
    """A parser whose errors suggest the command or option that was meant."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Reject unknown options here, where the known ones of their command are."""
        parsed, rest = super().parse_known_args(args, namespace)
        if rest:
            from rotunda.broker.text_table import did_you_mean  # noqa: PLC0415 - only for an error

            hint = did_you_mean(rest[0].partition("=")[0], self._option_string_actions)
            self.error(f"unrecognized arguments: {' '.join(rest)}{hint}; see {self.prog} --help")
        return parsed, rest

    def error(self, message: str) -> NoReturn:
        """Print the usage and the error, and exit. Raises SystemExit."""
        found = _INVALID_CHOICE.fullmatch(message)
        if found is not None:
            from rotunda.broker.text_table import did_you_mean  # noqa: PLC0415 - only for an error

            name, known = found["name"], re.findall(r"[\w-]+", found["known"])
            hint = did_you_mean(name, known)
            if found["kind"] == "COMMAND" and name in importlib.import_module("rotunda.spark.jobs").JOBS:
                hint = f" (did you mean {self.prog} report {name}?)"
            message = f"unknown {found['kind'].lower()} {name}{hint}; see {self.prog} --help"
        super().error(message)


#: argparse quotes the choices up to Python 3.11.
_INVALID_CHOICE = re.compile(r"argument (?P<kind>[A-Z]+): invalid choice: '(?P<name>.*)' \(choose from (?P<known>.*)\)")


def _parser(arguments: Sequence[str]) -> argparse.ArgumentParser:
    """Return the parser of a command line. Only the named commands' options are added, because each costs time."""
    groups = [f"{group}:\n" + "\n".join(_line(name) for name in names) for group, names in _GROUPS.items()]
    parser = _Parser(
        prog="rotunda",
        description="A Kafka-compatible broker.",
        epilog="\n\n".join([*groups, _EPILOG]),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version and exit")
    commands = parser.add_subparsers(required=True, metavar="COMMAND", help="a command listed below")
    for name, (module, function, text, add) in _COMMANDS.items():
        command = commands.add_parser(name, description=text)
        command.set_defaults(run=(module, function))
        if name in arguments:
            add(command)
    return parser


def _line(name: str) -> str:
    return f"  {name:<17}{_COMMANDS[name][2]}"


class _Version(argparse.Action):
    """Prints the installed version, which is looked up only on request."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        print(f"rotunda {installed_version() or '(not installed)'}, follows Apache Kafka {KAFKA_VERSION}")
        parser.exit()


def _config_options(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--config", type=Path, metavar="FILE", help="a server.properties file (default: $ROTUNDA_CONFIG, or none)"
    )
    command.add_argument(
        "--set",
        action="append",
        default=[],
        dest="sets",
        metavar="KEY=VALUE",
        help="set a property; repeatable",
    )
    command.add_argument(
        "--data-dir",
        metavar="DIR",
        help="the data directory; the same as --set log.dirs=DIR (default: $ROTUNDA_DATA_DIR, or ./rotunda-data if "
        "there is one, or $XDG_DATA_HOME/rotunda)",
    )
    command.add_argument(
        "--listen",
        metavar="HOST:PORT",
        help="listen address; port 0: any free port. Short for --set listeners=PLAINTEXT://HOST:PORT",
    )
    command.add_argument(
        "--advertise",
        action="append",
        default=[],
        metavar="HOST[:PORT]",
        help="address returned to clients; NAME://HOST[:PORT] for one of several listeners, repeatable "
        "(default: the listen address; for 0.0.0.0 the address each client connected to)",
    )
    command.add_argument(
        "--ephemeral", action="store_true", help="keep data in a temporary directory, removed at the end"
    )


def _add_start(command: argparse.ArgumentParser) -> None:
    _config_options(command)
    run_dir_option(command)
    json_option(command)
    command.add_argument(
        "--secure",
        action="store_true",
        help="use TLS and SCRAM, with one user; the first start prints its password. Stored in the data directory",
    )
    command.add_argument(
        "--new-password", action="store_true", help="with --secure: set a new password for the user and print it"
    )
    command.add_argument(
        "--topic",
        action="append",
        default=[],
        dest="topics",
        metavar="NAME[:PARTITIONS]",
        help="create this topic unless it exists; repeatable",
    )
    command.add_argument(
        "--create",
        type=Path,
        metavar="FILE",
        help="create topics and users unless they exist; its lines are topic NAME[:PARTITIONS] [KEY=VALUE ...], or "
        "user NAME PASSWORD",
    )
    command.add_argument("--daemon", action="store_true", help="run in the background")
    command.add_argument(
        "--wait",
        type=seconds,
        nargs="?",
        const=60.0,
        metavar="SECONDS",
        help="with --daemon: wait until the broker is ready, at most this time (60)",
    )
    command.add_argument("--log-format", choices=("text", "json"), help="format of log lines (default: text)")
    # Only for `broker.testing`.
    command.add_argument("--for-tests", action="store_true", help=argparse.SUPPRESS)


def _add_stop(command: argparse.ArgumentParser) -> None:
    run_dir_option(command)
    command.add_argument("--quick", action="store_true", help="stop at once, without finishing open requests")
    command.add_argument(
        "--wait",
        type=seconds,
        default=60.0,
        metavar="SECONDS",
        help="wait at most this time (default: 60)",
    )


def _add_status(command: argparse.ArgumentParser) -> None:
    run_dir_option(command)
    json_option(command)
    command.add_argument(
        "--wait",
        type=seconds,
        nargs="?",
        const=60.0,
        metavar="SECONDS",
        help="wait until the broker is ready, at most this time (60)",
    )


def _add_print_config(command: argparse.ArgumentParser) -> None:
    _config_options(command)
    command.add_argument(
        "--run-dir", type=Path, metavar="DIR", help="print the settings of the broker running with this run directory"
    )
    json_option(command)


def _add_completion(command: argparse.ArgumentParser) -> None:
    command.epilog = 'for example: eval "$(rotunda completion bash)" in ~/.bashrc'
    command.add_argument("shell", choices=("bash", "zsh", "fish"), help="the shell")


def _add_print_unit(command: argparse.ArgumentParser) -> None:
    command.add_argument("--config", type=Path, metavar="FILE", help="the server.properties file")
    command.add_argument("--user", metavar="NAME", help="user that runs the broker (default: systemd's dynamic user)")


def _no_options(_command: argparse.ArgumentParser) -> None:
    """Add nothing."""


_COMMANDS: dict[str, tuple[str, str, str, _Add]] = {
    "completion": (
        "rotunda.broker.cli.completion",
        "run",
        "print the code that completes commands and options in a shell",
        _add_completion,
    ),
    "start": (
        "rotunda.broker.cli.instance.start",
        "start",
        "start a broker, by default in the foreground",
        _add_start,
    ),
    "stop": (
        "rotunda.broker.cli.instance.status",
        "stop",
        "stop a running broker and wait until it has ended",
        _add_stop,
    ),
    "reload": (
        "rotunda.broker.cli.instance.status",
        "reload",
        "reload the configuration file of a running broker",
        run_dir_option,
    ),
    "status": ("rotunda.broker.cli.instance.status", "status", "show a running broker and its processes", _add_status),
    "top": ("rotunda.broker.cli.instance.top", "run", "show a running broker live in the terminal", add_top),
    "check-config": ("rotunda.broker.cli.config", "check", "validate the configuration", _config_options),
    "print-config": (
        "rotunda.broker.cli.instance.print_config",
        "run",
        "print every property with its value and source",
        _add_print_config,
    ),
    "mirror-config": (
        "rotunda.broker.cli.cluster.mirror_config",
        "run",
        "print MirrorMaker 2 properties that copy this broker to Apache Kafka",
        add_mirror_config,
    ),
    "print-unit": (
        "rotunda.broker.cli.instance.print_unit",
        "run",
        "print a systemd unit that runs the broker",
        _add_print_unit,
    ),
    "print-alerts": (
        "rotunda.broker.cli.instance.print_monitoring",
        "alerts",
        "print alert rules for Prometheus",
        _no_options,
    ),
    "print-dashboard": (
        "rotunda.broker.cli.instance.print_monitoring",
        "dashboard",
        "print a dashboard for Grafana",
        _no_options,
    ),
    "config": (
        "rotunda.broker.cli.cluster.settings",
        "run",
        "show and change dynamic settings",
        add_config,
    ),
    "topic": ("rotunda.broker.cli.cluster.topics", "run", "create, list, describe, alter and delete topics", add_topic),
    "produce": ("rotunda.broker.cli.records.produce", "run", "write lines as records of a topic", add_produce),
    "consume": ("rotunda.broker.cli.records.consume", "run", "print the records of topics", add_consume),
    "acl": ("rotunda.broker.cli.cluster.acls", "run", "list, add and delete access control lists", add_acl),
    "quota": ("rotunda.broker.cli.cluster.quotas", "run", "set and delete quotas, and show their use", add_quota),
    "tls": (
        "rotunda.broker.cli.cluster.tls",
        "run",
        "create certificates for development, with client settings",
        add_tls,
    ),
    "doctor": (
        "rotunda.broker.cli.cluster.doctor",
        "run",
        "check a broker from a client's side, with advice",
        add_doctor,
    ),
    "user": (
        "rotunda.broker.cli.cluster.users",
        "run",
        "add, list, describe and delete users with passwords",
        add_user,
    ),
    "requests": (
        "rotunda.broker.cli.analysis.requests",
        "run",
        "print single requests from the request log",
        add_requests,
    ),
    "report": ("rotunda.broker.cli.analysis.report", "run", "run a Spark report over the request log", add_report),
    "bench": (
        "rotunda.broker.cli.analysis.bench",
        "run",
        "replay a load profile or produce records, against any Kafka broker",
        add_bench,
    ),
    "metrics": ("rotunda.broker.cli.instance.metrics", "run", "print every metric in Prometheus format", add_metrics),
    "group": (
        "rotunda.broker.cli.cluster.groups",
        "run",
        "list, describe, reset and delete groups",
        add_group,
    ),
}

#: The commands as the help lists them.
_GROUPS: dict[str, tuple[str, ...]] = {
    "run a broker": ("start", "stop", "status", "top", "reload"),
    "records": ("produce", "consume"),
    "topics and groups": ("topic", "group"),
    "settings": ("config", "check-config", "print-config"),
    "security": ("user", "acl", "quota", "tls", "doctor"),
    "inspect and measure": ("requests", "report", "metrics", "bench"),
    "deploy": ("print-unit", "print-alerts", "print-dashboard", "mirror-config", "completion"),
}
