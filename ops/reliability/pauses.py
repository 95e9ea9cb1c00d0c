"""The causes of bystanders' pauses and closed connections: the journal's actions at that time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from ops.reliability.administration import FEWER
from ops.reliability.bystander import Pause
from ops.reliability.journal import Journal, Window
from ops.reliability.killing import KILL, STOP

RESTARTED = "the whole broker was restarted"
DIED = "its own processor died"
LEFT = "processors became fewer"
STOPPED = "its own processor was stopped"
HANDLER_STOPPED = "a handler was stopped"
BESIDE = "anything else"
CAUSES = (RESTARTED, DIED, LEFT, STOPPED, HANDLER_STOPPED, BESIDE)
#: Actions that end all processes at once.
WHOLE = ("restart", "crash of all")
#: The death of a processor is noted a moment before or after its connections see it.
SLACK_SECONDS = 0.5
#: A bystander may be slow to send again, and detects the death only then. A process id is not reused that soon.
DEATH_SECONDS = 10.0
#: Number of the longest ones that are reported individually.
MOST_EPISODES = 12


@dataclass
class CauseOfPauses:
    """All pauses with one cause."""

    cause: str
    pauses: int = 0
    worst_seconds: float = 0.0
    closed: int = 0


def by_cause(pauses: Iterable[Pause], journal: Journal) -> list[CauseOfPauses]:
    """Return a row for each cause, whether there was such a pause or not."""
    rows = {cause: CauseOfPauses(cause) for cause in CAUSES}
    for pause in pauses:
        row = rows[cause_of(pause, journal)]
        row.pauses += 1
        row.worst_seconds = max(row.worst_seconds, pause.seconds)
        row.closed += pause.was_closed
    return list(rows.values())


def cause_of(pause: Pause, journal: Journal) -> str:
    """Return the first of CAUSES that applies to a pause.

    A connection may be closed by the death of its processor alone, or of all; a stop that ended in a replacement is
    one. A connection whose processor died before it was identified may have been any processor's.
    """
    windows = journal.during(pause.begin - SLACK_SECONDS, pause.end)
    if any(window.action in WHOLE for window in windows):
        return RESTARTED
    longer = journal.during(pause.begin - DEATH_SECONDS, pause.end)
    own = [window for window in longer if window.pid and window.pid == pause.pid]
    if not pause.pid:
        own = [window for window in windows if window.role == "processor"]
    if any(is_death(window) for window in own):
        return DIED
    if pause.was_closed:
        return LEFT if any(window.action == FEWER for window in windows) else BESIDE
    if any(window.action == STOP for window in own if window in windows):
        return STOPPED
    if any(window.action == STOP and window.role == "handler" for window in windows):
        return HANDLER_STOPPED
    return BESIDE


def is_death(window: Window) -> bool:
    return window.action == KILL or (window.action == STOP and window.detail == "replaced")


class Episode(NamedTuple):
    """Pauses of several bystanders at one time."""

    begin: float
    end: float
    pauses: list[Pause]

    def words(self, journal: Journal) -> str:
        around = Counter(f"{w.action} {w.role}".strip() for w in journal.during(self.begin - SLACK_SECONDS, self.end))
        beside = ", ".join(name if count == 1 else f"{name} ({count} times)" for name, count in sorted(around.items()))
        asked = ", ".join(sorted({pause.what for pause in self.pauses}))
        worst = max(pause.seconds for pause in self.pauses)
        return (
            f"{worst:.2f} s at {self.begin:.2f}, {len(self.pauses)} bystanders ({asked}), beside {beside or 'nothing'}"
        )


def unexplained(pauses: Iterable[Pause], journal: Journal, longer_than: float) -> list[str]:
    """Return a line for each time with closed connections, or longer pauses, and no action that explains it."""
    episodes: list[Episode] = []
    for pause in sorted(pauses):
        if cause_of(pause, journal) != BESIDE or not (pause.was_closed or pause.seconds > longer_than):
            continue
        if episodes and pause.begin <= episodes[-1].end:
            last = episodes.pop()
            episodes.append(Episode(last.begin, max(last.end, pause.end), [*last.pauses, pause]))
        else:
            episodes.append(Episode(pause.begin, pause.end, [pause]))
    episodes.sort(key=lambda each: each.begin - each.end)
    return [episode.words(journal) for episode in episodes[:MOST_EPISODES]]
