"""`rotunda consume`: prints records of topics on standard output.

Output is written as bytes, once for each fetch; a group commits the written records. The reader of a pipe may exit at
any time: records that it has not read are not committed.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from functools import partial
from typing import BinaryIO, Final

from rotunda.broker.cli.cluster.cluster_client import access, address, explained, of_options
from rotunda.broker.cli.held_signals import Signals
from rotunda.broker.cli.records.byte_streams import standard_output
from rotunda.broker.cli.records.record_format import Formatter, delimited, formatter, json_line, unescaped
from rotunda.broker.client.access import is_of_access
from rotunda.broker.client.consumer.reader import STORED, Reader, Wanted, parse_start, parse_time
from rotunda.broker.client.network.blocking_client import BlockingClient
from rotunda.broker.clock import SystemClock
from rotunda.broker.errors import UsageError

_CLIENT_ID: Final = "rotunda-consume"
_CHUNK_BYTES: Final = 1 << 16


def run(parsed: argparse.Namespace, environment: Mapping[str, str]) -> int:
    """Print records until the end, or until a signal. Raises UsageError, RotundaError and BrokenPipeError."""
    clock = SystemClock()
    wanted = _wanted(parsed, clock.wall_ms())
    show = _shape(parsed)
    unknown = sorted(name for name in of_options(parsed) if not is_of_access(name))
    if unknown:
        raise UsageError(f"-X {unknown[0]} has no effect: supported are security.protocol, ssl.* and sasl.*")
    ours = access(parsed, environment)
    out = standard_output()
    signals = Signals()
    with explained(ours), BlockingClient(address(parsed, environment, ours), ours, client_id=_CLIENT_ID) as client:
        reader = Reader(client, wanted, clock, _silent if parsed.quiet else _note)
        _copy(reader, show, out, parsed.max_messages, signals)
    return signals.exit_code


def _copy(reader: Reader, show: Formatter, out: BinaryIO, most: int | None, signals: Signals) -> None:
    """Write records until the end, until `most` are written, or until a signal."""
    left = -1 if most is None else most
    all_written = True
    try:
        for fetch in reader.fetches():
            waiting: list[bytes] = []
            size = 0
            with signals.held():
                all_written = False
                for each in fetch:
                    waiting.append(show(each))
                    size += len(waiting[-1])
                    left -= 1
                    if left == 0 or signals.has_come:
                        break
                    if size >= _CHUNK_BYTES:
                        out.write(b"".join(waiting))
                        waiting, size = [], 0
                out.write(b"".join(waiting))
                out.flush()
                all_written = True
            if left == 0 or signals.has_come:
                break
            reader.written()
    except BaseException:
        if all_written and signals.has_come:
            reader.interrupted()
        else:
            reader.abandon()
        raise
    reader.close()


def _wanted(parsed: argparse.Namespace, now_ms: int) -> Wanted:
    topics = (*parsed.topics, *parsed.more_topics)
    if not topics:
        raise UsageError("missing topic, or ^ and a regular expression; see `rotunda topic list`")
    start = parse_start(parsed.start, now_ms)
    if start.kind == STORED and not parsed.group:
        raise UsageError("--from stored needs --group")
    if parsed.group and parsed.partitions:
        raise UsageError("--group and --partition exclude each other: a group assigns partitions to its members")
    if parsed.base64 and not parsed.json:
        raise UsageError("--base64 needs --json")
    return Wanted(
        topics=topics,
        partitions=parsed.partitions,
        start=start,
        until_ms=parse_time(parsed.until, now_ms) if parsed.until else None,
        follow=parsed.follow,
        read_committed=parsed.isolation_level == "read_committed",
        group=parsed.group,
    )


def _shape(parsed: argparse.Namespace) -> Formatter:
    """Return the formatter of records."""
    if parsed.json:
        return partial(json_line, always_base64=parsed.base64)
    null = unescaped("NULL" if parsed.Z and parsed.null is None else parsed.null or "")
    if parsed.format is not None:
        return formatter(parsed.format, null)
    separator = None if parsed.key_separator is None else unescaped(parsed.key_separator)
    return delimited(unescaped(parsed.delimiter), separator, with_offset=parsed.print_offset, null=null)


def _note(text: str) -> None:
    print(f"rotunda: {text}", file=sys.stderr)


def _silent(_text: str) -> None:
    """Print nothing."""
