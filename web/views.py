"""The views: the part of a snapshot that each screen's script draws, as plain values for JSON."""

from __future__ import annotations

from dataclasses import asdict
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from rotunda.shm.metrics.catalogue import PROCESSOR_METRICS
from rotunda.shm.metrics.target_metrics import HANDLER_METRICS
from rotunda.web.facts.groups import readers_of
from rotunda.web.facts.requests import slowest, tail

if TYPE_CHECKING:
    from rotunda.web.facts.readings import Reading
    from rotunda.web.facts.status import Snapshot
    from rotunda.web.reports.reports import Reports
    from rotunda.web.sources import Sources
    from rotunda.web.watch import View


_EXPLAINED = frozenset(
    {"mutes", "arena_used_bytes", "requests_kept_bytes", "answers_unwritten_bytes", "fetches_parked", "commits"}
)
#: Explanations in the picture of the broker, from the catalogue.
_TEXTS = {
    each.name: f"{each.line} {each.text}" for each in (*PROCESSOR_METRICS, *HANDLER_METRICS) if each.name in _EXPLAINED
}


class Views:
    """A view for each screen, by its name."""

    def __init__(self, sources: Sources, reports: Reports) -> None:
        self._sources = sources
        self._reports = reports
        self._names = sources.reader.names
        self.by_name: dict[str, View] = {
            "overview": self._overview,
            "clients": self._clients,
            "topics": self._topics,
            "groups": self._groups,
            "requests": self._requests,
            "processes": self._processes,
            "configuration": self._configuration,
            "reports": self._briefs,
            "history": self._history,
        }

    def _overview(self, now: Snapshot, reading: Reading) -> dict[str, Any]:
        diagnosis = self._reports.diagnosis()
        return {
            **_common(now),
            "diagnosis": None if diagnosis is None else asdict(diagnosis),
            "broker": asdict(now.broker),
            "acceptor": asdict(now.acceptor),
            "processors": [asdict(each) for each in now.processors],
            "handlers": [asdict(each) for each in now.handlers],
            "controller": asdict(now.controller),
            "rings": [asdict(each) for each in now.rings],
            "background": now.background,
            "apis": [asdict(each) for each in now.apis],
            "processes": [asdict(each) for each in now.processes],
            "listeners": list(self._sources.facts.listeners),
            "metadata_topics": len(reading.topics),
            "texts": _TEXTS,
        }

    def _clients(self, now: Snapshot, reading: Reading) -> dict[str, Any]:
        return {
            **_common(now),
            "connections": now.totals.connections,
            "clients": [asdict(each) for each in now.clients],
            "left_out": now.clients_left_out,
            "instances": [asdict(each) for each in now.client_instances],
            "instances_left_out": now.client_instances_left_out,
            "quotas": [asdict(each) for each in now.quotas],
            "quotas_left_out": now.quotas_left_out,
            "recorded": reading.recent is not None,
        }

    def _topics(self, now: Snapshot, reading: Reading) -> dict[str, Any]:  # noqa: ARG002
        return {
            **_common(now),
            "topics": [asdict(each) for each in now.topics],
            "readers": readers_of(now.groups),
            "shows_records": self._sources.records is not None,
        }

    def _groups(self, now: Snapshot, reading: Reading) -> dict[str, Any]:
        events = reading.recent.names.get("events", []) if reading.recent is not None else []
        return {
            **_common(now),
            "groups": [asdict(each) for each in now.groups],
            "left_out": now.groups_left_out,
            "transactions": [asdict(each) for each in now.transactions],
            "events": sorted(events, key=itemgetter("time"))[::-1],
        }

    def _requests(self, now: Snapshot, reading: Reading) -> dict[str, Any]:
        recent = reading.recent
        return {
            **_common(now),
            "requests_per_s": now.totals.requests_per_s,
            "apis": [asdict(each) for each in now.apis],
            "tail": tail(recent, self._names) if recent is not None else [],
            "slowest": slowest(recent, self._names) if recent is not None else [],
        }

    def _processes(self, now: Snapshot, reading: Reading) -> dict[str, Any]:  # noqa: ARG002
        return {**_common(now), "processes": [asdict(each) for each in now.processes]}

    def _configuration(self, now: Snapshot, reading: Reading) -> dict[str, Any]:  # noqa: ARG002
        return {**_common(now), "settings": [each._asdict() for each in self._sources.settings()]}

    def _briefs(self, now: Snapshot, reading: Reading) -> dict[str, Any]:  # noqa: ARG002
        return {**_common(now), "reports": [asdict(each) for each in self._reports.briefs()]}

    def _history(self, now: Snapshot, reading: Reading) -> dict[str, Any]:  # noqa: ARG002 - its series are loaded apart
        return _common(now)


def _common(now: Snapshot) -> dict[str, Any]:
    return {
        "time_ms": now.time_ms,
        "window_s": now.window_s,
        "ready": now.ready,
        "reasons": now.reasons,
        "remarks": now.remarks,
        "verdict": asdict(now.verdict),
        "totals": asdict(now.totals),
    }
