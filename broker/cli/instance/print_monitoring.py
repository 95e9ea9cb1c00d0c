"""`rotunda print-alerts` and `rotunda print-dashboard`: the files for Prometheus and Grafana in this distribution."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from importlib.resources import files

_PACKAGE = "rotunda.broker.metrics"


def alerts(parsed: argparse.Namespace, environment: Mapping[str, str]) -> int:  # noqa: ARG001 - as every command
    """Print the alert rules."""
    return _print("alerts.yml")


def dashboard(parsed: argparse.Namespace, environment: Mapping[str, str]) -> int:  # noqa: ARG001 - as every command
    """Print the dashboard."""
    return _print("dashboard.json")


def _print(name: str) -> int:
    print(files(_PACKAGE).joinpath(name).read_text(encoding="utf-8"), end="")
    return 0
