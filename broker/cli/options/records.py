r"""The options of `rotunda consume` and `rotunda produce`.

One-letter options are those of kcat, where they mean the same.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from broker.cli.options.common import client_options, run_dir_option
from broker.cli.options.values import count

_CONSUME_EPILOG = r"""
Reads what is there when it begins, and ends; with --follow it goes on until Ctrl-C. A topic that begins with ^ is a
regular expression, matched from a name's beginning.

FROM and UNTIL: beginning, end, an offset, -N for the last N of each partition, a length of time ago such as 10m,
@MILLISECONDS since 1970, or an ISO time such as 2024-05-31T18:00, UTC unless it names a zone.

With --group the group's partitions are shared with its other members. Reading begins at what the group has committed,
where it has committed nothing at FROM. What was written is committed every 5 s, at the end, and at Ctrl-C; a record may
come again after a death, none is left out.

FORMAT: %s value, %S its length (-1: null), %R that as four bytes; %k key, %K its length; %h headers as name=value,...;
%t topic, %p partition, %o offset, %T timestamp in ms, %% a percent sign. \n \r \t \xNN stand for bytes, in -D
and -K too.

--json prints an object a line: topic, partition, offset, timestamp (ms), timestamp_type (create, log_append), key,
value, headers [[name, value]]. Bytes that are UTF-8 are a string, others {"base64": "..."}, null is null. `rotunda
produce --json` reads these lines.

exit codes: 0 all was read, 1 failure, 2 bad usage, 130 ended by Ctrl-C, 143 by SIGTERM
"""

_PRODUCE_EPILOG = r"""
Reads lines from standard input, or from each --file, and writes a record for each; the last one needs no line break.
Nothing is said when all is well. At the first record that cannot be written it reads no further, waits for those under
way, and says which line it was and how many were written.

-K SEPARATOR splits each line at its first separator into key and value; a line without one is a value. -Z makes keys
and values null that are empty, --null TEXT those that are TEXT: a null value deletes its key from a compacted topic.

--json reads an object a line, as `rotunda consume --json` prints it: value, and if there are key, headers (pairs or an
object), timestamp (ms), partition (used with `-p same`) and topic (used where none is named). Strings are written as
UTF-8, {"base64": "..."} as the bytes that it stands for, null as null.

--transactional-id writes all in one transaction, which is committed at the end and aborted by a failure or by Ctrl-C.

exit codes: 0 all was written, 1 failure, 2 bad usage, 130 ended by Ctrl-C, 143 by SIGTERM
"""


def _partitions(text: str) -> tuple[int, ...]:
    """Return partition numbers; argparse names the option that the complaint is about."""
    parts = [each.strip() for each in text.split(",")]
    if not all(each.isascii() and each.isdecimal() for each in parts):
        raise argparse.ArgumentTypeError(f"{text!r} is not a partition's number, or several with commas")
    return tuple(sorted({int(each) for each in parts}))


def _partition(text: str) -> int | str | None:
    """Return a partition's number, `same`, or None for the producer's choice."""
    if text in ("same", "-1"):
        return "same" if text == "same" else None
    if not (text.isascii() and text.isdecimal()):
        raise argparse.ArgumentTypeError(f"{text!r} is not a partition's number, nor `same`")
    return int(text)


def _shared(command: argparse.ArgumentParser, epilog: str) -> None:
    command.formatter_class = argparse.RawDescriptionHelpFormatter
    command.epilog = epilog
    run_dir_option(command)
    client_options(command, "-b")
    command.add_argument(
        "-X",
        "--property",
        action="append",
        default=[],
        dest="properties",
        metavar="KEY=VALUE",
        help="a client's property, such as security.protocol=SSL, before those of --command-config; repeatable. "
        "Passwords belong in the file: others see a command's arguments",
    )
    command.add_argument(
        "-K", "--key-separator", metavar="TEXT", help="between key and value; without it only values are there"
    )
    command.add_argument("-D", "--delimiter", default=r"\n", metavar="TEXT", help="behind each record (default: \\n)")
    command.add_argument("--null", metavar="TEXT", help="what stands for null keys and values")


def add_consume(command: argparse.ArgumentParser) -> None:
    """Add the options of `rotunda consume`."""
    _shared(command, _CONSUME_EPILOG)
    command.add_argument("topics", nargs="*", metavar="TOPIC", help="a topic, or ^ and an expression")
    command.add_argument(
        "-t", "--topic", action="append", default=[], dest="more_topics", metavar="TOPIC", help="the same; repeatable"
    )
    command.add_argument(
        "-p", "--partition", "--partitions", type=_partitions, default=(), dest="partitions", metavar="N,...",
        help="only these partitions",
    )  # fmt: skip
    command.add_argument("-G", "--group", metavar="ID", help="read as a member of this group")
    command.add_argument(
        "-o", "--from", "--offset", dest="start", default="beginning", metavar="FROM",
        help="where to begin (default: beginning)",
    )  # fmt: skip
    command.add_argument(
        "--until", metavar="UNTIL", help="end before the first record of this time, a partition at a time"
    )
    ends = command.add_mutually_exclusive_group()
    ends.add_argument("--follow", action="store_true", help="go on with what comes")
    ends.add_argument("-e", "--exit", action="store_true", help="end where the topics end now (default)")
    command.add_argument("-c", "--max-messages", "--limit", type=count, metavar="N", help="end after N records")
    command.add_argument(
        "--isolation-level",
        choices=("read_committed", "read_uncommitted"),
        default="read_committed",
        help="whether records of aborted and open transactions are left out (default: read_committed)",
    )
    shape = command.add_mutually_exclusive_group()
    shape.add_argument("-f", "--format", metavar="FORMAT", help="how each record is printed")
    shape.add_argument("-J", "--json", action="store_true", help="print an object a line")
    command.add_argument(
        "--base64", action="store_true", help="with --json: all keys and values as base64, also those that are text"
    )
    command.add_argument("-O", "--print-offset", action="store_true", help="the offset before each record")
    command.add_argument("-Z", action="store_true", help="print NULL for what is null; the same as --null NULL")
    command.add_argument("-q", "--quiet", action="store_true", help="do not say on standard error what was left out")


def add_produce(command: argparse.ArgumentParser) -> None:
    """Add the options of `rotunda produce`."""
    _shared(command, _PRODUCE_EPILOG)
    command.add_argument(
        "topic", nargs="?", metavar="TOPIC", help="the topic; with --json that of each line by default"
    )
    command.add_argument("-t", "--topic", dest="named_topic", metavar="TOPIC", help="the same")
    command.add_argument(
        "-p", "--partition", type=_partition, metavar="N", help="to this partition; `same`: to that of each JSON line"
    )
    command.add_argument("-k", "--key", metavar="TEXT", help="the key of every record that has none of its own")
    command.add_argument(
        "-H", "--header", action="append", default=[], dest="headers", metavar="NAME=VALUE",
        help="a header of every record; repeatable. NAME alone: its value is null",
    )  # fmt: skip
    command.add_argument("-J", "--json", action="store_true", help="read an object a line")
    command.add_argument("-Z", action="store_true", help="empty keys and values are null")
    sources = command.add_mutually_exclusive_group()
    sources.add_argument(
        "-l", "--file", action="append", default=[], dest="files", type=Path, metavar="FILE",
        help="read lines of this file instead of standard input; repeatable",
    )  # fmt: skip
    sources.add_argument(
        "--whole-file", action="append", default=[], dest="whole_files", type=Path, metavar="FILE",
        help="the file as it is becomes one record; repeatable",
    )  # fmt: skip
    command.add_argument("-c", "--max-messages", type=count, metavar="N", help="end after N records")
    command.add_argument(
        "-z", "--compression", choices=("none", "gzip", "snappy", "lz4", "zstd"), help="the codec (default: none)"
    )
    command.add_argument("--acks", choices=("0", "1", "all"), help="whose acknowledgement counts (default: all)")
    command.add_argument("--transactional-id", metavar="ID", help="write all in one transaction")
    command.add_argument("-T", "--tee", action="store_true", help="print what was read on standard output")
