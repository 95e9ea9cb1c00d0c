"""`rotunda doctor`: what a client would meet at a broker, one line for each step, and what to change."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from dataclasses import replace

from broker.cli.cluster_client import access, address
from broker.client.admin.checkup import Checkup, Wanted
from broker.client.admin.findings import FAIL
from broker.clock import SystemClock
from broker.text_table import printable

_FAILURE_EXIT_CODE = 1


def run(parsed: argparse.Namespace, environment: Mapping[str, str]) -> int:
    """Print each finding as it comes; the exit code is 1 if one of them keeps the client from its work."""
    ours = access(parsed, environment)
    ours = replace(ours, bootstrap=address(parsed, environment, ours))
    wanted = Wanted(parsed.topic, parsed.group, parsed.timeout, SystemClock().wall_ms())
    findings = []
    for each in Checkup(ours, wanted).run():
        findings.append(each)
        if not parsed.json:
            print(f"{each.level.upper():8}{each.what}: {printable(each.text)}", flush=True)
    if parsed.json:
        print(json.dumps([each._asdict() for each in findings], indent=1))
    return _FAILURE_EXIT_CODE if any(each.level == FAIL for each in findings) else 0
