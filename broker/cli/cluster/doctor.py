"""`rotunda doctor`: checks each step of a client's connection, one line each, with advice."""

from __future__ import annotations

import argparse
import json
import resource
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from rotunda.broker.cli.cluster.cluster_client import access, address, running
from rotunda.broker.client.admin.checkup import FAIL, OK, WARN, Checkup, Finding, Wanted
from rotunda.broker.clock import SystemClock
from rotunda.broker.log.data_dir import want_of_privacy
from rotunda.broker.log.descriptor_limit import partitions_in, want_of_descriptors
from rotunda.broker.text_table import counted, printable

if TYPE_CHECKING:
    from rotunda.broker.runtime.run_dir import RunRecord

_FAILURE_EXIT_CODE = 1


def run(parsed: argparse.Namespace, environment: Mapping[str, str]) -> int:
    """Print each finding immediately; the exit code is 1 if one of them would stop the client."""
    ours = access(parsed, environment)
    is_here = not parsed.bootstrap and (parsed.run_dir or not ours.bootstrap)
    ours = replace(ours, bootstrap=address(parsed, environment, ours))
    wanted = Wanted(parsed.topic, parsed.group, parsed.timeout, SystemClock().wall_ms())
    findings = []
    here = _of_this_machine(running(parsed, environment)) if is_here else ()
    for each in chain(Checkup(ours, wanted).run(), here):
        findings.append(each)
        if not parsed.json:
            print(f"{each.level.upper():8}{each.what}: {printable(each.text)}", flush=True)
    if parsed.json:
        print(json.dumps([each._asdict() for each in findings], indent=1))
    return _FAILURE_EXIT_CODE if any(each.level == FAIL for each in findings) else 0


def _of_this_machine(record: RunRecord) -> Iterator[Finding]:
    """Check facts visible only on the broker's machine; nothing without permission."""
    with suppress(OSError):
        limit, data_dir = resource.prlimit(record.pid, resource.RLIMIT_NOFILE)[0], Path(record.data_dir)
        wanting = want_of_descriptors(data_dir, record.handlers, limit)
        enough = f"{limit:,} in each process are enough for {counted(partitions_in(data_dir), 'partition')}"
        yield Finding(OK if wanting is None else WARN, "open files", wanting or enough)
        exposed = want_of_privacy(data_dir)
        private = f"{data_dir} is closed to other users of this machine"
        yield Finding(OK if exposed is None else WARN, "data directory", exposed or private)
