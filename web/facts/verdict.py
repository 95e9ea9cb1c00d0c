"""The verdict: whether clients are served, and where requests wait, in a sentence. Pure.

Order: processes that are down, then full queues, then saturated roles.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING

from rotunda.broker.text_table import counted
from rotunda.shm.tables.process_slots import SILENT_NS
from rotunda.web.facts.status import Group, Member, Process, Processor, Ring, Target, Verdict

if TYPE_CHECKING:
    from rotunda.shm.storage import StorageReading

REQUEST_RING, RESPONSE_RING, RECORDER_RING = "request", "response", "recorder"

#: A ring, or the arena, at least this full delays requests.
QUEUING_FILL = 0.10
#: Fill from which the recorder samples ordinary requests.
SAMPLING_FILL = 0.5
#: A process hangs when its loop has not run for this long.
SILENT_S = SILENT_NS / 1e9
#: A process with less idle time than this is the bottleneck.
BUSY_IDLE = 0.10

#: Clients are served even without these roles.
_BESIDE = frozenset(("cleaner", "recorder", "web"))

#: Effects of a hanging process of these roles. Clients are served meanwhile.
_WITHOUT = MappingProxyType(
    {
        "supervisor": "processes that die are not replaced meanwhile",
        "cleaner": "logs are not compacted and do not expire meanwhile",
        "recorder": "the request log is not written meanwhile",
        "web": "the status page is not served meanwhile",
    }
)

#: Most offline partitions that are named.
MOST_NAMED = 5

_CALM = Verdict(level="calm", text="All rings are nearly empty; every process has spare capacity.", where=[])


def verdict(
    processors: list[Processor],
    targets: list[Target],
    rings: list[Ring],
    processes: list[Process],
    warned: Sequence[str] = (),
    groups: Sequence[Group] = (),
    *,
    is_refusing: bool = False,
) -> Verdict:
    """Return the verdict; the last of `targets` is the controller. `warned` are problems that need attention."""
    return (
        _down(processes)
        or _warned(warned, is_refusing)
        or _silent(processes, rings, len(targets) - 1)
        or _overloaded(targets)
        or _held_back(processors)
        or _full_ring(rings, len(targets) - 1)
        or _full_arena(processors)
        or _busy(processors, targets)
        or _silent_member(groups)
        or _CALM
    )


def not_ready(processes: list[Process], *, is_draining: bool, storage: StorageReading | None = None) -> list[str]:
    """Return the causes for which clients are not served; empty if they are.

    A broker that cannot store a record counts as not serving.
    """
    reasons = [
        f"{label(each)} is {each.state}" + (f": {each.last_error}" if each.last_error else "")
        for each in processes
        if not each.serves and each.role not in _BESIDE
    ]
    reasons += [_still(each) for each in processes if hangs(each) and each.role not in _WITHOUT]
    if storage is not None and storage.rejection:
        reasons.append(storage.rejection)
    return [*reasons, "the broker is shutting down"] if is_draining else reasons


def remarks(processes: list[Process]) -> list[str]:
    """Return the problems that exist although clients are served."""
    return [f"{_still(each)}: {_WITHOUT[each.role]}" for each in processes if hangs(each) and each.role in _WITHOUT]


def hangs(process: Process) -> bool:
    """Return whether a process is ready and its loop does not run."""
    return process.serves and process.silent_s is not None and process.silent_s >= SILENT_S


def _still(process: Process) -> str:
    return f"{label(process)} has been hanging for {process.silent_s or 0:.0f} s"


def storage_remarks(storage: StorageReading, offline: Sequence[str]) -> list[str]:
    """Return the storage problems that need attention: the disk, and partitions that are not served."""
    found = [storage.rejection or storage.warning]
    if offline:
        more = f" and {len(offline) - MOST_NAMED} more" if len(offline) > MOST_NAMED else ""
        found.append(f"Offline, see the broker's log: {', '.join(offline[:MOST_NAMED])}{more}.")
    return [each for each in found if each]


def label(process: Process) -> str:
    """Return a process's display name."""
    return f"{process.role} {process.index}" if process.role in {"processor", "handler"} else process.role


def _down(processes: list[Process]) -> Verdict | None:
    down = [each for each in processes if not each.serves and each.role not in {"supervisor", "web"}]
    if not down:
        return None
    named = ", ".join(label(each) for each in down)
    where = [f"{each.role}-{each.index}" for each in down]
    return Verdict(level="stuck", text=f"Being replaced: {named}. Its requests wait; none is lost.", where=where)


def _warned(warned: Sequence[str], is_refusing: bool) -> Verdict | None:
    if not warned:
        return None
    return Verdict(level="stuck" if is_refusing else "busy", text=" ".join(warned), where=[])


def _silent(processes: list[Process], rings: list[Ring], controller: int) -> Verdict | None:
    """Return a verdict on hanging processes: first on one that clients wait for."""
    silent = sorted((each for each in processes if hangs(each)), key=lambda each: each.role in _WITHOUT)
    for each in silent:
        what, waiting = "waiting request", 0
        if each.role == "processor":
            what = "waiting response"
            waiting = sum(ring.frames for ring in rings if ring.kind == RESPONSE_RING and ring.processor == each.index)
        elif each.role in {"handler", "controller"}:
            target = each.index if each.role == "handler" else controller
            waiting = sum(ring.frames for ring in rings if ring.kind == REQUEST_RING and ring.target == target)
        text = _still(each).capitalize()
        if each.role in _WITHOUT:
            text += f"; clients are served, and {_WITHOUT[each.role]}"
        elif waiting:
            text += f" with {counted(waiting, what)}"
        level = "busy" if each.role in _WITHOUT else "stuck"
        return Verdict(level=level, text=f"{text}.", where=[f"{each.role}-{each.index}"])
    return None


def _overloaded(targets: list[Target]) -> Verdict | None:
    """Return a verdict on handlers that throttle all clients (`overload.queue.time.ms`)."""
    throttling = [each for each in targets[:-1] if each.overload_throttle_ms]
    if not throttling:
        return None
    worst = max(throttling, key=lambda each: each.overload_throttle_ms)
    named = ", ".join(f"handler {each.index}" for each in throttling)
    text = f"Overloaded: {named}. Clients are throttled by {worst.overload_throttle_ms} ms a response."
    return Verdict(level="busy", text=text, where=[f"handler-{each.index}" for each in throttling])


def _held_back(processors: list[Processor]) -> Verdict | None:
    """Return a verdict on responses delayed because their clients fail again and again."""
    holding = [each for each in processors if each.answers_held_back]
    if not holding:
        return None
    count = sum(each.answers_held_back for each in holding)
    delayed = counted(count, "delayed response")
    text = f"{delayed}: to clients that repeat failing requests (see the log) or by a test."
    return Verdict(level="busy", text=text, where=[f"processor-{each.index}" for each in holding])


def _full_ring(rings: list[Ring], controller: int) -> Verdict | None:
    least = {REQUEST_RING: QUEUING_FILL, RESPONSE_RING: QUEUING_FILL, RECORDER_RING: SAMPLING_FILL}
    full = [ring for ring in rings if ring.fill >= least[ring.kind]]
    if not full:
        return None
    ring = max(full, key=lambda each: (each.kind != RECORDER_RING, each.fill))
    target = "the controller" if ring.target == controller else f"handler {ring.target}"
    share = f"{ring.fill:.0%}"
    where = [f"ring-{ring.processor}-{ring.target}"]
    if ring.kind == REQUEST_RING:
        queue = f"a queue of {counted(ring.frames, 'request')}"
        text = f"{target.capitalize()} has {queue}: the ring from processor {ring.processor} is {share} full."
        return Verdict(level="stuck", text=text, where=where)
    if ring.kind == RESPONSE_RING:
        text = f"Responses queue for processor {ring.processor}: its ring from {target} is {share} full."
        return Verdict(level="stuck", text=text, where=where)
    text = f"The recorder lags: the ring to it is {share} full, and ordinary requests are sampled."
    return Verdict(level="busy", text=text, where=["recorder-0"])


def _full_arena(processors: list[Processor]) -> Verdict | None:
    for each in processors:
        if each.arena_bytes and each.arena_used_bytes / each.arena_bytes > 1 - QUEUING_FILL:
            text = f"Large requests wait for memory: the arena of processor {each.index} is used up."
            return Verdict(level="stuck", text=text, where=[f"processor-{each.index}"])
    return None


def _silent_member(groups: Sequence[Group]) -> Verdict | None:
    """Return a verdict on the member whose partitions are unread for the longest time, as it sends no heartbeats."""
    silent = [(member, group) for group in groups for member in group.members if is_silent(member)]
    unread = [(member, group) for member, group in silent if _reads_alone(member, group)]
    if not unread:
        return None
    member, group = max(unread, key=lambda each: each[0].silent_s or 0)
    more = f" {counted(len(unread) - 1, 'other member')} likewise." if len(unread) > 1 else ""
    text = (
        f"Member {member.instance_id or member.id} of group {group.id} has been silent for {member.silent_s:.0f} s; "
        f"its partitions are read again in {member.session_left_s:.0f} s.{more}"
    )
    return Verdict(level="busy", text=text, where=[])


def is_silent(member: Member) -> bool:
    """Return whether a member has sent no heartbeat for more than half of its session."""
    return member.silent_s is not None and member.session_left_s is not None and member.silent_s > member.session_left_s


def _reads_alone(member: Member, group: Group) -> bool:
    """Return whether no other member reads one of its partitions."""
    others = {
        (topic, partition)
        for each in group.members
        if each is not member and not is_silent(each)
        for topic, partitions in (each.partitions or {}).items()
        for partition in partitions
    }
    own = {(topic, partition) for topic, partitions in (member.partitions or {}).items() for partition in partitions}
    return not own <= others


def _busy(processors: list[Processor], targets: list[Target]) -> Verdict | None:
    shares = {f"handler-{each.index}": each.idle for each in targets[:-1]}
    shares |= {"controller-0": targets[-1].idle} if targets else {}
    shares |= {f"processor-{each.index}": each.idle for each in processors}
    busy = [name for name, idle in shares.items() if idle is not None and idle < BUSY_IDLE]
    if not busy:
        return None
    named = ", ".join(name.replace("-", " ") for name in busy)
    return Verdict(level="busy", text=f"No queues. Without spare capacity: {named}.", where=busy)
