"""Whether clients are served, and where requests wait, in a sentence. Pure.

What is down comes first, then full queues, then whoever has no time left.
"""

from __future__ import annotations

from web.status import Process, Processor, Ring, Target, Verdict

REQUEST_RING, RESPONSE_RING, RECORDER_RING = "request", "response", "recorder"

#: A ring, or the arena, as full as this holds up requests.
QUEUING_FILL = 0.10
#: From there on the recorder samples ordinary requests.
SAMPLING_FILL = 0.5
#: Processes say twice a second that their loop turns; one that has not for so long hangs, if something waits for it.
SILENT_S = 3.0
#: A process with less idle time than this is what limits the rest.
BUSY_IDLE = 0.10

#: Clients are served without these as well as with them.
_BESIDE = frozenset(("cleaner", "recorder", "web"))

_CALM = Verdict(level="calm", text="Nothing queues: every ring is nearly empty and everyone has time.", where=[])


def verdict(processors: list[Processor], targets: list[Target], rings: list[Ring], processes: list[Process]) -> Verdict:
    """Return the verdict; the last of `targets` is the controller."""
    return (
        _down(processes)
        or _silent(processes, rings, len(targets) - 1)
        or _full_ring(rings, len(targets) - 1)
        or _full_arena(processors)
        or _busy(processors, targets)
        or _CALM
    )


def not_ready(processes: list[Process], *, is_draining: bool) -> list[str]:
    """Return why clients are not served; empty if they are."""
    reasons = [
        f"{label(each)} is {each.state}" + (f": {each.last_words}" if each.last_words else "")
        for each in processes
        if not each.serves and each.role not in _BESIDE
    ]
    return [*reasons, "the broker is shutting down"] if is_draining else reasons


def label(process: Process) -> str:
    """Return what a process is called."""
    return f"{process.role} {process.index}" if process.role in {"processor", "handler"} else process.role


def _down(processes: list[Process]) -> Verdict | None:
    down = [each for each in processes if not each.serves and each.role not in {"supervisor", "web"}]
    if not down:
        return None
    named = ", ".join(label(each) for each in down)
    where = [f"{each.role}-{each.index}" for each in down]
    return Verdict(level="stuck", text=f"Being replaced: {named}. What was asked of it waits and is kept.", where=where)


def _silent(processes: list[Process], rings: list[Ring], controller: int) -> Verdict | None:
    """Return a verdict on a process that is there and does not take what waits for it."""
    for each in processes:
        if each.silent_s is None or each.silent_s < SILENT_S:
            continue
        what, waiting = "requests", 0
        if each.role == "processor":
            what = "answers"
            waiting = sum(ring.frames for ring in rings if ring.kind == RESPONSE_RING and ring.processor == each.index)
        elif each.role in {"handler", "controller"}:
            target = each.index if each.role == "handler" else controller
            waiting = sum(ring.frames for ring in rings if ring.kind == REQUEST_RING and ring.target == target)
        if waiting:
            text = f"{label(each).capitalize()} has not moved for {each.silent_s:.0f} s while {waiting} {what} wait."
            return Verdict(level="stuck", text=text, where=[f"{each.role}-{each.index}"])
    return None


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
        text = f"{ring.frames} requests queue for {target}: the ring from processor {ring.processor} is {share} full."
        return Verdict(level="stuck", text=text, where=where)
    if ring.kind == RESPONSE_RING:
        text = f"Answers queue for processor {ring.processor}: its ring from {target} is {share} full."
        return Verdict(level="stuck", text=text, where=where)
    text = f"The recorder lags: the ring to it is {share} full, and ordinary requests are sampled."
    return Verdict(level="busy", text=text, where=["recorder-0"])


def _full_arena(processors: list[Processor]) -> Verdict | None:
    for each in processors:
        if each.arena_bytes and each.arena_used_bytes / each.arena_bytes > 1 - QUEUING_FILL:
            text = f"Large requests wait for memory: the arena of processor {each.index} is used up."
            return Verdict(level="stuck", text=text, where=[f"processor-{each.index}"])
    return None


def _busy(processors: list[Processor], targets: list[Target]) -> Verdict | None:
    shares = {f"handler-{each.index}": each.idle for each in targets[:-1]}
    shares |= {"controller-0": targets[-1].idle} if targets else {}
    shares |= {f"processor-{each.index}": each.idle for each in processors}
    busy = [name for name, idle in shares.items() if idle is not None and idle < BUSY_IDLE]
    if not busy:
        return None
    named = ", ".join(name.replace("-", " ") for name in busy)
    return Verdict(level="busy", text=f"Nothing queues. No time to spare: {named}.", where=busy)
