"""Minutes of a request log whose trouble is known: a harmless random load, and one bottleneck planted in it.

Each condition is the log of such a broker: requests, its processes every ten seconds, and connections.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from tests.support.generated_log import request

Rows = dict[str, list[dict[str, Any]]]

INTERVAL_S, WINDOW_S = 10, 60
_MUTES = ("mutesPipeline", "mutesArena", "mutesRingFull", "mutesOutput", "mutesOrder", "mutesDraining")


@dataclass(frozen=True, slots=True)
class Planted:
    """A condition: the expected rule and bottleneck of a diagnosis, and how rows differ from harmless ones.

    `change` gets each request, `roles` has the values of processes, by role and index or by role alone; `more` makes
    rows.
    """

    rule: str | None
    bottleneck: str
    change: Callable[[dict[str, Any], random.Random], dict[str, Any]] = lambda row, _: row
    roles: Mapping[object, Mapping[str, object]] = field(default_factory=dict)
    more: Callable[[datetime, random.Random], Rows] = lambda *_: {}
    #: Whether requests alone show it.
    without_roles: bool = True
    requests: int = 240


def plant(planted: Planted, start: datetime, seed: int) -> Rows:
    """Return the rows of one minute from `start` on."""
    chance = random.Random(seed)
    found: Rows = {"requests": [], "roles": list(_roles(planted, start)), "connections": [], "gaps": [], "groups": []}
    for number in range(planted.requests):
        found["requests"].append(planted.change(_harmless(start, number, chance), chance))
    for dataset, rows in planted.more(start, chance).items():
        found[dataset] += rows
    return found


def moment(start: datetime, chance: random.Random) -> datetime:
    """Return any time in the minute."""
    return start + timedelta(microseconds=chance.randrange(WINDOW_S * 1_000_000))


def us(chance: random.Random, mean_ms: float) -> int:
    """Return microseconds about a mean."""
    return int(chance.uniform(0.5, 1.5) * mean_ms * 1000)


def connection(start: datetime, chance: random.Random, event: str, **columns: object) -> dict[str, Any]:
    """Return a row of `connections`."""
    return {"time": moment(start, chance), "event": event, "connection": "0-1-1", "address": "10.0.0.7", **columns}


def _harmless(start: datetime, number: int, chance: random.Random) -> dict[str, Any]:
    """Return a Produce, or sometimes a Fetch that waits for data for as long as it may."""
    phases = {
        "requestQueueTimeUs": us(chance, 0.1), "localTimeUs": us(chance, 0.2),
        "responseQueueTimeUs": us(chance, 0.1), "sendTimeUs": us(chance, 0.1),
    }  # fmt: skip
    columns = {
        "topic": f"t{number % 4}", "partition": 0, "handler": number % 2, "clientId": f"app-{number % 5}",
        "correlationId": number,
    }  # fmt: skip
    if number % 6 == 5:
        wait = {"requestApiKeyName": "FETCH", "maxWaitMs": 500, "remoteTimeUs": us(chance, 300)}
        return request(moment(start, chance), **columns, **phases, **wait)
    return request(moment(start, chance), **columns, **phases)


def _roles(planted: Planted, start: datetime) -> Iterator[dict[str, Any]]:
    for step in range(WINDOW_S // INTERVAL_S):
        time = start + timedelta(seconds=(step + 1) * INTERVAL_S, microseconds=-1)
        for role, index in (("acceptor", 0), ("processor", 0), ("processor", 1), ("handler", 0), ("handler", 1)):
            row = {
                "time": time, "intervalUs": INTERVAL_S * 1_000_000, "traffic": True, "role": role, "index": index,
                "generation": 1, "state": "running", "pid": 100, "cpus": 4, "cpuTimeUs": 800_000,
                "runQueueTimeUs": 20_000, "ringFill": 0.0, "ringFillPeak": 0.01,
            }  # fmt: skip
            row |= _OF_ROLE[role] | planted.roles.get(role, {}) | planted.roles.get((role, index), {})
            yield row


_OF_ROLE: dict[str, dict[str, Any]] = {
    "acceptor": {"connectionsRefused": 0, "blockedUs": 0, "ringFillPeak": None},
    "processor": {"idleShare": 0.9, "arenaDepletedUs": 0, **dict.fromkeys(_MUTES, 0)},
    "handler": {"idleShare": 0.9, "commitTimeUs": 50_000, "commits": 100},
}


def _timed(**phases: float) -> Callable[[dict[str, Any], random.Random], dict[str, Any]]:
    """Return a change that sets these phases, in milliseconds on average, for every request."""

    def change(row: dict[str, Any], chance: random.Random) -> dict[str, Any]:
        return _with(row, **{name: us(chance, mean_ms) for name, mean_ms in phases.items()})

    return change


def _with(row: dict[str, Any], **columns: object) -> dict[str, Any]:
    changed = row | columns
    names = ("requestQueueTimeUs", "localTimeUs", "remoteTimeUs", "responseQueueTimeUs", "sendTimeUs")
    return changed | {"totalTimeUs": sum(changed[name] for name in names)}


def _slow_log(row: dict[str, Any], chance: random.Random) -> dict[str, Any]:
    local_ms = 40 if row["requestApiKeyName"] == "PRODUCE" else 0.2
    return _with(row, localTimeUs=us(chance, local_ms), requestQueueTimeUs=us(chance, 15))


def _stalled(row: dict[str, Any], chance: random.Random) -> dict[str, Any]:
    """Delay the few requests that reach the first handler during its pause."""
    return _with(row, requestQueueTimeUs=us(chance, 1500)) if row["correlationId"] % 40 == 0 else row


def _hot(row: dict[str, Any], chance: random.Random) -> dict[str, Any]:
    if row["requestApiKeyName"] != "PRODUCE" or row["handler"] == 1:
        return row
    changed = _with(row, requestQueueTimeUs=us(chance, 60), localTimeUs=us(chance, 2))
    return changed | {"topic": "hot", "partition": 3} if chance.random() < 0.9 else changed


def _slow_reader(row: dict[str, Any], chance: random.Random) -> dict[str, Any]:
    if row["requestApiKeyName"] != "FETCH" or row["clientId"] != "app-0":
        return row
    return _with(row, sendTimeUs=us(chance, 900), remoteTimeUs=0) | {"clientId": "sleepy"}


def _own_latency(row: dict[str, Any], chance: random.Random) -> dict[str, Any]:
    """Give one client large responses over a slow connection, with all others served immediately."""
    return _with(row, sendTimeUs=us(chance, 120)) | {"clientId": "far away"} if row["clientId"] == "app-3" else row


def _storm(start: datetime, chance: random.Random) -> Rows:
    rows = [connection(start, chance, "open") for _ in range(900)]
    rows += [connection(start, chance, "close", durationUs=us(chance, 3), cause="client") for _ in range(890)]
    return {"connections": rows}


def _few_connections(start: datetime, chance: random.Random) -> Rows:
    return {"connections": [connection(start, chance, "open") for _ in range(40)]}


def _behind(start: datetime, _chance: random.Random) -> Rows:
    """Return the rows of a group that is 37 minutes behind for nearly a minute."""
    lag = {"group": "billing", "event": "lag", "topic": "orders", "kind": "classic"}
    begin = {"time": start, "records": 650_000, "durationUs": 37 * 60 * 1_000_000}
    end = {"time": start + timedelta(seconds=WINDOW_S - 1), "records": 0, "durationUs": 0}
    return {"groups": [lag | begin, lag | end]}


def _expired(start: datetime, _chance: random.Random) -> Rows:
    """Return the rows of a share group that removed four silent members."""
    expired = {"group": "jobs", "event": "expire", "kind": "share"}
    return {"groups": [expired | {"time": start + timedelta(seconds=number)} for number in range(4)]}


def _throttled(row: dict[str, Any], chance: random.Random) -> dict[str, Any]:
    return row | {"throttleTimeUs": us(chance, 800)} if row["clientId"] == "app-2" else row


def _refused(row: dict[str, Any], chance: random.Random) -> dict[str, Any]:
    is_refused = row["requestApiKeyName"] == "PRODUCE" and chance.random() < 0.5
    return row | {"errorCode": 56, "errorName": "KAFKA_STORAGE_ERROR"} if is_refused else row


_BUSY = {"idleShare": 0.03, "cpuTimeUs": 9_000_000}
_CROWDED = {"idleShare": 0.05, "cpuTimeUs": 4_500_000, "runQueueTimeUs": 4_900_000, "cpus": 2}

#: By name; those that begin with "healthy" are healthy.
PLANTED = {
    "healthy, low": Planted(None, "healthy", requests=30),
    "healthy": Planted(None, "healthy"),
    "healthy, high": Planted(
        None, "healthy", _timed(requestQueueTimeUs=1.2, localTimeUs=0.5, responseQueueTimeUs=0.6),
        {
            "handler": {"idleShare": 0.35, "cpuTimeUs": 6_000_000},
            "processor": {"idleShare": 0.3, "cpuTimeUs": 6_500_000},
        },
        _few_connections, requests=1500,
    ),
    "healthy, consumers that wait": Planted(
        None, "healthy",
        lambda row, chance: _with(row, requestApiKey=1, requestApiKeyName="FETCH", maxWaitMs=30_000,
                                  remoteTimeUs=us(chance, 20_000)),
    ),
    "healthy, members that wait": Planted(
        None, "healthy",
        lambda row, chance: _with(row, requestApiKey=11, requestApiKeyName="JOIN_GROUP",
                                  remoteTimeUs=us(chance, 3_000)),
    ),
    "healthy, large answers": Planted(None, "healthy", _timed(sendTimeUs=6, localTimeUs=0.4)),
    "healthy, one slow write": Planted(
        None, "healthy",
        lambda row, chance: _with(row, localTimeUs=us(chance, 300)) if row["correlationId"] == 7 else row,
    ),
    "slow log": Planted(
        "slow log", "log", _slow_log,
        {"handler": {"idleShare": 0.05, "commitTimeUs": 9_200_000, "cpuTimeUs": 300_000}},
    ),
    "stalled handler": Planted("stalled handler", "handler", _stalled,
                               {("handler", 0): {"idleShare": None, "cpuTimeUs": 100_000}}),
    "hot partition": Planted("hot partition", "handler", _hot, {("handler", 0): _BUSY}),
    "full ring": Planted(
        "full ring", "request queue", _timed(requestQueueTimeUs=3),
        {"processor": {"mutesRingFull": 40}, "handler": {"ringFillPeak": 0.95, "idleShare": 0.6}}, without_roles=False,
    ),
    "full arena": Planted(
        "full arena", "request queue", _timed(requestQueueTimeUs=2),
        {"processor": {"mutesArena": 30, "arenaDepletedUs": 3_000_000}}, without_roles=False,
    ),
    "connections wait": Planted(
        "connections wait", "connection set-up", roles={"acceptor": {"blockedUs": 6_000_000}}, more=_few_connections,
        without_roles=False,
    ),
    "connections refused": Planted(
        "connections refused", "connection set-up", roles={"acceptor": {"connectionsRefused": 200}},
        more=_few_connections, without_roles=False,
    ),
    "connection storm": Planted("connection storm", "connection set-up", more=_storm),
    "few processors": Planted(
        "few processors", "network", _timed(requestQueueTimeUs=1, responseQueueTimeUs=25),
        {"processor": _BUSY, "handler": {"idleShare": 0.5}},
    ),
    "no cpu": Planted(
        "no cpu", "cpu", _timed(requestQueueTimeUs=30, responseQueueTimeUs=20),
        {
            "acceptor": {"cpus": 2, "cpuTimeUs": 0},
            "handler": _CROWDED,
            "processor": _CROWDED,
        },
        without_roles=False,
    ),
    "few handlers": Planted(
        "few handlers", "handler", _timed(requestQueueTimeUs=50, localTimeUs=3), {"handler": _BUSY},
    ),
    "slow reads": Planted(
        "slow reads", "log",
        lambda row, chance: _with(row, localTimeUs=us(chance, 80), remoteTimeUs=0)
        if row["requestApiKeyName"] == "FETCH" else row,
    ),
    "slow reader": Planted("slow client", "client", _slow_reader, {"processor": {"mutesOutput": 4}}),
    "a client far away": Planted("slow client", "client", _own_latency),
    "full disk": Planted("full disk", "disk", _refused),
    "throttled clients": Planted("throttled clients", "quota", _throttled),
    "expired members": Planted("expired members", "consumer", more=_expired, without_roles=False),
    "consumer lag": Planted("consumer lag", "consumer", more=_behind, without_roles=False),
}  # fmt: skip
