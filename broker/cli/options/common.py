"""The options of `rotunda topic` and `rotunda group`, and options shared by several commands.

Imports nothing slow: the command line is parsed before anything else is loaded.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from rotunda.broker.cli.options.values import count, interval_s, milliseconds, seconds

_STATES = (
    "PreparingRebalance",
    "CompletingRebalance",
    "Stable",
    "Dead",
    "Empty",
    "Assigning",
    "Reconciling",
    "NotReady",
)
_TYPES = ("classic", "consumer", "share", "streams")


_LIST_JSON = """\
--json prints an array of objects: group, type, state, protocol_type
"""
_DESCRIBE_JSON = """\
lag_records counts the offsets from the committed one up to the log's end, with --read-committed up to the last
stable offset. lag_seconds is the age of the oldest record not yet consumed, by this machine's clock. Both are 0
for a group that has read everything, and "-" or null where unknown: nothing committed, or no such partition.

--json prints an object: group, type, state, protocol_type, assignor, epoch (of type consumer),
  coordinator {id, host, port}, isolation_level,
  members [{member_id, instance_id, client_id, host, epoch, assignment [{topic, partition}], silent_seconds,
    session_left_seconds}],
  partitions [{topic, partition, committed_offset, committed_leader_epoch, committed_metadata,
    log_start_offset, log_end_offset, last_stable_offset, lag_records, lag_seconds, member_id, notes []}];
  of a share group [{topic, partition, start_offset, lag_records, members, in_flight_records, waiting_records,
    highest_delivery_count, oldest_lock_left_seconds, dead_letters}]. From in_flight_records on they are null
  without --run-dir
"""
_DELETE_JSON = """\
--json prints an array of objects: group, deleted, error (Kafka's name, or null), message;
the exit code is 1 if one of them could not be deleted
"""
_RESET_JSON = """\
Changes nothing without --execute. The group must have no members. An offset out of range is moved to the nearest
offset in range. A time after the newest record selects the latest offset.

--json prints an object: group, executed,
  partitions [{topic, partition, before, after, warning, error}]
"""
_ALTER_JSON = """\
--json prints an object: topic, changes [{name, before, after}]; name is partitions or a setting, null is a setting
without a value of the topic's own
"""
_CONFIG_JSON = """\
--json prints an array of objects: name, value, origin, dynamic, otherwise [{name, value, origin}]
"""
_CHANGED_JSON = """\
--json prints an array of objects: name, before, after; null is a setting that is not set
"""
_TOPIC_JSON = """\
--json prints an object: name, topic_id, internal, configs {key: value} of the topic's own settings,
  partitions [{partition, leader, replicas, in_sync, log_start_offset, log_end_offset}]
"""
_TOPICS_JSON = """\
RECORDS counts offsets: records that compaction removed, and those of transactions, count too. "-" and null are unknown.

--json prints an array of objects: name, partitions, records, size_bytes
"""


class Action(NamedTuple):
    """One action of a command: its help, the function that adds its options, and the text below its help."""

    text: str
    add: Callable[[argparse.ArgumentParser], None]
    epilog: str | None = None
    module: str | None = None


def run_dir_option(command: argparse.ArgumentParser) -> None:
    """Add --run-dir."""
    command.add_argument(
        "--run-dir",
        type=Path,
        metavar="DIR",
        help="run directory, one for each running broker (default: $ROTUNDA_RUN_DIR, or one for this user)",
    )


def json_option(command: argparse.ArgumentParser) -> None:
    """Add --json."""
    command.add_argument("--json", action="store_true", help="print JSON")


def client_options(command: argparse.ArgumentParser, *letters: str) -> None:
    """Add the options for reaching a broker; `letters` are further names of --bootstrap."""
    command.add_argument(
        *letters,
        "--bootstrap",
        "--bootstrap-server",
        metavar="HOST:PORT",
        help="the broker (default: the one of --run-dir)",
    )
    command.add_argument(
        "--command-config",
        metavar="FILE",
        help="client properties, such as security.protocol (default: $ROTUNDA_COMMAND_CONFIG)",
    )


def add_topic(command: argparse.ArgumentParser) -> None:
    """Add the actions of `rotunda topic`."""
    add_actions(command, _TOPIC_ACTIONS)


def add_requests(command: argparse.ArgumentParser) -> None:
    """Add the options of `rotunda requests`."""
    run_dir_option(command)
    json_option(command)
    command.add_argument("--data-dir", metavar="DIR", help="read the log of this data directory, without a broker")
    command.add_argument("--slow", action="store_true", help="only slow requests, slowest first")
    command.add_argument("--errors", action="store_true", help="only requests with an error")
    end = command.add_mutually_exclusive_group()
    end.add_argument("--follow", action="store_true", help="print new requests until Ctrl-C")
    end.add_argument("--until", metavar="TIME", help="only requests before this time, in the format of --since")
    command.add_argument(
        "--since", default="1h", metavar="TIME", help="a duration such as 10m, or an ISO 8601 time (default: 1h)"
    )
    command.add_argument("--limit", type=count, default=100, metavar="N", help="print at most N (default: 100)")
    command.add_argument(
        "--timeout",
        type=seconds,
        metavar="SECONDS",
        help="end the search, newest first, after this time (default: none)",
    )
    command.add_argument("--slower-than", type=milliseconds, metavar="MS", help="only requests of this time or longer")
    command.add_argument("--api", metavar="NAME", help="only this API, such as Fetch")
    command.add_argument("--client", metavar="ID", help="only this client id")
    command.add_argument("--user", metavar="NAME", help="only this user")
    command.add_argument("--topic", metavar="NAME", help="only this topic: that of the request's first partition")
    command.add_argument("--error", metavar="NAME", help="only this error, such as NOT_LEADER_OR_FOLLOWER")
    command.formatter_class = argparse.RawDescriptionHelpFormatter
    command.epilog = "In these names * matches any text, and case is then ignored: --client 'billing-*'"


def add_report(command: argparse.ArgumentParser) -> None:
    """Add the options of `rotunda report`; arguments after the job's name are the job's."""
    run_dir_option(command)
    command.add_argument("--data-dir", metavar="DIR", help="read the log of this data directory, without a broker")
    command.add_argument("name", nargs="?", metavar="NAME", help="the report; without it all reports are listed")
    command.add_argument(
        "arguments",
        nargs=argparse.REMAINDER,
        metavar="...",
        help="options of the report; see `rotunda report NAME --help`",
    )


def add_top(command: argparse.ArgumentParser) -> None:
    """Add the options of `rotunda top`."""
    run_dir_option(command)
    command.add_argument(
        "--once", action="store_true", help="print one snapshot and exit (default when stdout is not a terminal)"
    )
    command.add_argument(
        "--interval", type=interval_s, default=1.0, metavar="SECONDS", help="refresh interval (default: 1)"
    )


def add_metrics(command: argparse.ArgumentParser) -> None:
    """Add the options of `rotunda metrics`."""
    run_dir_option(command)
    command.add_argument("--per-partition", action="store_true", help="include metrics of each partition")
    command.add_argument(
        "--describe", metavar="NAME", help="describe one metric, of Rotunda or of Kafka, without a broker"
    )


def add_group(command: argparse.ArgumentParser) -> None:
    """Add the actions of `rotunda group`."""
    add_actions(command, _GROUP_ACTIONS)


def add_config(command: argparse.ArgumentParser) -> None:
    """Add the actions of `rotunda config`."""
    add_actions(command, _CONFIG_ACTIONS)


def add_actions(command: argparse.ArgumentParser, actions: dict[str, Action]) -> None:
    """Add the actions of a command that is a client of a broker."""
    parsers = command.add_subparsers(title="actions", required=True, metavar="ACTION", dest="action")
    for name, (text, add, epilog, module) in actions.items():
        action = parsers.add_parser(
            name,
            help=text,
            description=text,
            epilog=epilog,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        run_dir_option(action)
        client_options(action)
        add(action)
        if module is not None:
            action.set_defaults(run=(module, "run"))


def _topic_name(action: argparse.ArgumentParser) -> None:
    action.add_argument("name", help="the topic's name")


def _config_option(action: argparse.ArgumentParser) -> None:
    action.add_argument(
        "--config",
        action="append",
        default=[],
        dest="configs",
        metavar="KEY=VALUE",
        help="a setting of the topic, such as retention.ms=60000; repeatable",
    )


def _create_topic(action: argparse.ArgumentParser) -> None:
    _topic_name(action)
    action.add_argument("--partitions", type=int, default=-1, metavar="N", help="default: the broker's num.partitions")
    action.add_argument(
        "--replication-factor", type=int, default=-1, metavar="N", help="1 (default): there is one broker"
    )
    _config_option(action)


def _describe_topic(action: argparse.ArgumentParser) -> None:
    _topic_name(action)
    json_option(action)


def _alter_topic(action: argparse.ArgumentParser) -> None:
    _topic_name(action)
    json_option(action)
    action.add_argument("--partitions", type=int, metavar="N", help="new number of partitions; it can only grow")
    _config_option(action)
    action.add_argument(
        "--delete-config",
        action="append",
        default=[],
        dest="deleted_configs",
        metavar="KEY",
        help="reset this setting to the broker's value; repeatable",
    )


def _group_name(action: argparse.ArgumentParser) -> None:
    action.add_argument("name", metavar="GROUP", help="the group's id")
    json_option(action)


def _state(text: str) -> str:
    """Return a state in Kafka's spelling; argparse names the option in the error."""
    for state in _STATES:
        if state.lower() == text.strip().lower():
            return state
    raise argparse.ArgumentTypeError(f"{text!r} is none of {', '.join(_STATES)}")


def _list_groups(action: argparse.ArgumentParser) -> None:
    json_option(action)
    action.add_argument(
        "--state",
        type=_state,
        action="append",
        default=[],
        dest="states",
        metavar="STATE",
        help=f"only groups in this state: {', '.join(_STATES)}; repeatable",
    )
    action.add_argument(
        "--type",
        choices=_TYPES,
        action="append",
        default=[],
        dest="types",
        help="only groups of this type; repeatable",
    )


def _describe_group(action: argparse.ArgumentParser) -> None:
    _group_name(action)
    action.add_argument(
        "--read-committed",
        action="store_true",
        help="count to the last stable offset, without aborted records, as isolation.level=read_committed does",
    )


def _delete_groups(action: argparse.ArgumentParser) -> None:
    action.add_argument("names", nargs="+", metavar="GROUP", help="the group's id")
    json_option(action)


def _reset_offsets(action: argparse.ArgumentParser) -> None:
    _group_name(action)
    scope = action.add_mutually_exclusive_group(required=True)
    scope.add_argument(
        "--topic",
        action="append",
        default=[],
        dest="topics",
        metavar="TOPIC[:P,...]",
        help="a topic, or some partitions of it; repeatable",
    )
    scope.add_argument("--all-topics", action="store_true", help="every partition with an offset of the group")
    goal = action.add_mutually_exclusive_group(required=True)
    goal.add_argument("--to-earliest", action="store_true", help="to the oldest record")
    goal.add_argument("--to-latest", action="store_true", help="past the newest record")
    goal.add_argument("--to-offset", type=int, metavar="N", help="to this offset")
    goal.add_argument("--shift-by", type=int, metavar="N", help="N records forward, or back if negative")
    goal.add_argument(
        "--to-datetime", metavar="TIME", help="to the first record at or after this ISO 8601 time (UTC without a zone)"
    )
    goal.add_argument(
        "--by-duration", metavar="DURATION", help="to the first record of this duration ago: P1DT2H3M4S in ISO 8601"
    )
    goal.add_argument("--to-current", action="store_true", help="to the group's offset, or the latest without one")
    run = action.add_mutually_exclusive_group()
    run.add_argument("--execute", action="store_true", help="set the offsets")
    run.add_argument("--dry-run", action="store_true", help="only show the new offsets (default)")


def _whose_config(action: argparse.ArgumentParser) -> None:
    whose = action.add_mutually_exclusive_group()
    whose.add_argument("--cluster", action="store_true", help="defaults of all brokers (default: this broker)")
    whose.add_argument("--topic", metavar="NAME", help="the settings of a topic")
    whose.add_argument("--group", metavar="ID", help="the settings of a group")
    whose.add_argument("--loggers", action="store_true", help="log levels, until the next start")
    json_option(action)


def _list_config(action: argparse.ArgumentParser) -> None:
    _whose_config(action)
    action.add_argument("--all", action="store_true", help="all settings, not only changed ones")


def _named_config(action: argparse.ArgumentParser) -> None:
    _whose_config(action)
    action.add_argument("names", nargs="+", metavar="KEY", help="the name of a setting or a logger")


def _set_config(action: argparse.ArgumentParser) -> None:
    _whose_config(action)
    action.add_argument("assignments", nargs="+", metavar="KEY=VALUE", help="a setting and its value")


_CONFIG_ACTIONS = {
    "list": Action("list dynamic settings", _list_config, _CONFIG_JSON),
    "describe": Action("describe settings: value, source and meaning", _named_config, _CONFIG_JSON),
    "set": Action("set settings, all or none", _set_config, _CHANGED_JSON),
    "delete": Action("delete settings, so that their defaults are in force", _named_config, _CHANGED_JSON),
}

_TOPIC_ACTIONS = {
    "create": Action("create a topic", _create_topic),
    "list": Action("list all topics with their partitions, records and size", json_option, _TOPICS_JSON),
    "describe": Action("show a topic's partitions and configuration", _describe_topic, _TOPIC_JSON),
    "alter": Action("change a topic's settings or number of partitions", _alter_topic, _ALTER_JSON),
    "delete": Action("delete a topic and its records", _topic_name),
}

_GROUP_ACTIONS = {
    "list": Action("list all groups", _list_groups, _LIST_JSON),
    "describe": Action("show a group's members, offsets and lag", _describe_group, _DESCRIBE_JSON),
    "delete": Action("delete groups without members, with their offsets", _delete_groups, _DELETE_JSON),
    "reset-offsets": Action(
        "set the offsets of a group without members",
        _reset_offsets,
        _RESET_JSON,
        module="rotunda.broker.cli.cluster.reset",
    ),
}
