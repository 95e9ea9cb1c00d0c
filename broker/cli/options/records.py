r"""The options of `rotunda consume` and `rotunda produce`.

One-letter options are those of kcat, where they mean the same.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from rotunda.broker.cli.options.common import client_options, run_dir_option
from rotunda.broker.cli.options.values import count

_CONSUME_EPILOG = r"""
Prints the records present at the start and exits; with --follow it continues until Ctrl-C. A topic that begins with ^
is a regular expression, matched from the beginning of a name.

FROM: beginning, end, an offset, -N for the last N of each partition, stored (with --group), or a time.
TIME: a duration ago such as 10m, @MILLISECONDS since 1970, or ISO 8601 such as 2024-05-31T18:00 (UTC without a zone).

With --group the command is a member of the group. It starts at the committed offsets, or at FROM without one. Printed
records are committed every 5 s, at the end and at Ctrl-C: after a crash a record may be printed twice, none is lost.

FORMAT: %s value, %S its length (-1: null), %R this length as four bytes; %k key, %K its length; %h headers as
name=value,...; %t topic, %p partition, %o offset, %T timestamp in ms, %% a percent sign. \n \r \t \xNN are bytes, in
-D and -K too.

--json prints an object a line: topic, partition, offset, timestamp (ms), timestamp_type (create, log_append), key,
value, headers [[name, value]]. UTF-8 is a string, other bytes {"base64": "..."}, null is null. `rotunda produce
--json` reads these lines.

exit codes: 0 ok, 1 failure, 2 bad usage, 130 Ctrl-C, 143 SIGTERM
"""

_PRODUCE_EPILOG = r"""
Writes one record for each line of standard input or of each --file; the last line needs no line break. Prints nothing
on success. At the first failed record it stops reading, waits for outstanding records, and prints the number of that
line and of the records written.

-K SEPARATOR splits each line at the first separator into key and value; a line without one is a value. -Z reads empty
keys and values as null, --null TEXT those equal to TEXT. A null value deletes its key from a compacted topic.

--json reads one object a line, as printed by `rotunda consume --json`: value, and optionally key, headers (pairs or an
object), timestamp (ms), partition (with `-p same`) and topic (if none is named). Strings are written as UTF-8,
{"base64": "..."} as bytes, null as null.

--transactional-id writes all records in one transaction, committed at the end, aborted on failure or Ctrl-C.

exit codes: 0 ok, 1 failure, 2 bad usage, 130 Ctrl-C, 143 SIGTERM
"""


def _partitions(text: str) -> tuple[int, ...]:
    """Return partition numbers; argparse names the option in the error."""
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
        help="a client property, such as security.protocol=SSL, overriding --command-config; repeatable. "
        "Put passwords into the file: other users can see command arguments",
    )
    command.add_argument(
        "-K", "--key-separator", metavar="TEXT", help="separator of key and value (default: values only)"
    )
    command.add_argument("-D", "--delimiter", default=r"\n", metavar="TEXT", help="end of each record (default: \\n)")
    command.add_argument("--null", metavar="TEXT", help="text of null keys and values")


def add_consume(command: argparse.ArgumentParser) -> None:
    """Add the options of `rotunda consume`."""
    _shared(command, _CONSUME_EPILOG)
    command.add_argument("topics", nargs="*", metavar="TOPIC", help="a topic, or ^ and a regular expression")
    command.add_argument(
        "-t", "--topic", action="append", default=[], dest="more_topics", metavar="TOPIC", help="a topic; repeatable"
    )
    command.add_argument(
        "-p", "--partition", "--partitions", type=_partitions, default=(), dest="partitions", metavar="N,...",
        help="only these partitions",
    )  # fmt: skip
    command.add_argument("-G", "--group", metavar="ID", help="read as a member of this group")
    command.add_argument(
        "-o", "--from", "--offset", dest="start", default="beginning", metavar="FROM",
        help="first record (default: beginning)",
    )  # fmt: skip
    command.add_argument("--until", metavar="TIME", help="stop a partition at its first record of this time or later")
    ends = command.add_mutually_exclusive_group()
    ends.add_argument("--follow", action="store_true", help="continue with new records until Ctrl-C")
    ends.add_argument("-e", "--exit", action="store_true", help="stop at the present end of the topics (default)")
    command.add_argument("-c", "--max-messages", "--limit", type=count, metavar="N", help="stop after N records")
    command.add_argument(
        "--isolation-level",
        choices=("read_committed", "read_uncommitted"),
        default="read_committed",
        help="read_committed (default) omits records of aborted and open transactions",
    )
    shape = command.add_mutually_exclusive_group()
    shape.add_argument("-f", "--format", metavar="FORMAT", help="format of a record")
    shape.add_argument("-J", "--json", action="store_true", help="print one JSON object a line")
    command.add_argument("--base64", action="store_true", help="with --json: print all keys and values as base64")
    command.add_argument("-O", "--print-offset", action="store_true", help="print the offset before each record")
    command.add_argument("-Z", action="store_true", help="print NULL for null; short for --null NULL")
    command.add_argument("-q", "--quiet", action="store_true", help="no notes on standard error about omitted records")


def add_produce(command: argparse.ArgumentParser) -> None:
    """Add the options of `rotunda produce`."""
    _shared(command, _PRODUCE_EPILOG)
    command.add_argument("topic", nargs="?", metavar="TOPIC", help="the topic (default with --json: that of each line)")
    command.add_argument("-t", "--topic", dest="named_topic", metavar="TOPIC", help="the topic, if TOPIC is not given")
    command.add_argument(
        "-p",
        "--partition",
        type=_partition,
        metavar="N",
        help="write to this partition; `same`: that of each JSON line",
    )
    command.add_argument("-k", "--key", metavar="TEXT", help="default key")
    command.add_argument(
        "-H", "--header", action="append", default=[], dest="headers", metavar="NAME=VALUE",
        help="add a header to every record; repeatable. NAME alone: null value",
    )  # fmt: skip
    command.add_argument("-J", "--json", action="store_true", help="read one JSON object a line")
    command.add_argument("-Z", action="store_true", help="read empty keys and values as null")
    sources = command.add_mutually_exclusive_group()
    sources.add_argument(
        "-l", "--file", action="append", default=[], dest="files", type=Path, metavar="FILE",
        help="read this file instead of standard input; repeatable",
    )  # fmt: skip
    sources.add_argument(
        "--whole-file", action="append", default=[], dest="whole_files", type=Path, metavar="FILE",
        help="write this file as one record; repeatable",
    )  # fmt: skip
    command.add_argument("-c", "--max-messages", type=count, metavar="N", help="stop after N records")
    command.add_argument(
        "-z",
        "--compression",
        choices=("none", "gzip", "snappy", "lz4", "zstd"),
        help="compression codec (default: none)",
    )
    command.add_argument("--acks", choices=("0", "1", "all"), help="required acknowledgements (default: all)")
    command.add_argument("--transactional-id", metavar="ID", help="write all records in one transaction")
    command.add_argument("-T", "--tee", action="store_true", help="copy the input to standard output")
