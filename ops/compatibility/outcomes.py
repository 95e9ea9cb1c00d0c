"""The outcome of a feature, parsed from the output of a client program.

Client programs print a line for each feature: planned, passed or failed, a tab, the name, a tab, the error. A feature
that was planned and never finished has failed. Go's test tool has its own lines.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

GO_RESULT = re.compile(r"^\s*--- (PASS|FAIL|SKIP): (\S+) \(([\d.]+)s\)", re.MULTILINE)
GO_STARTED = re.compile(r"^=== RUN\s+(\S+)", re.MULTILINE)
GO_COMPLAINT = re.compile(
    r"^\s+\w+_test\.go:\d+: (?!deleting|creating|FAILED TESTING|.* completed in )(.*)$", re.MULTILINE
)
TAIL_CHARACTERS = 400


class Verdict(Enum):
    """The three possible values of a cell of the table."""

    PASSED = "passed"
    FAILED = "failed"
    NOT_RUN = "not run"


@dataclass(frozen=True)
class Outcome:
    """One feature of one client; `detail` is the reason why it failed or was not run."""

    feature: str
    verdict: Verdict
    detail: str = ""


def not_run(reason: str) -> list[Outcome]:
    """Return the row of a client that could not be run at all."""
    return [Outcome("everything", Verdict.NOT_RUN, reason)]


def of_lines(output: str, errors: str, status: int | None) -> list[Outcome]:
    """Return the outcomes that a client program printed; `status` is None when it had to be killed."""
    planned: dict[str, Outcome | None] = {}
    for line in output.splitlines():
        word, _, rest = line.partition("\t")
        name, _, detail = rest.partition("\t")
        if word == "planned":
            planned.setdefault(name, None)
        elif word in (Verdict.PASSED.value, Verdict.FAILED.value):
            planned[name] = Outcome(name, Verdict(word), detail)
    ended = "was killed after its time" if status is None else f"ended with status {status}"
    fault = f"the program {ended}: {tail(errors)}"
    if not planned:
        return [Outcome("everything", Verdict.FAILED, fault)]
    return [outcome or Outcome(name, Verdict.FAILED, fault) for name, outcome in planned.items()]


def of_go_tests(output: str, status: int | None, gates: tuple[str, ...]) -> list[Outcome]:
    """Return each subtest of the gates by its name, and all the other tests that ran as one outcome."""
    words = {"PASS": Verdict.PASSED, "FAIL": Verdict.FAILED, "SKIP": Verdict.NOT_RUN}
    verdicts: dict[str, Verdict] = dict.fromkeys(GO_STARTED.findall(output), Verdict.FAILED)
    verdicts.update({name: words[word] for word, name, _ in GO_RESULT.findall(output)})
    outcomes = list(gate_outcomes(verdicts, gates, output))
    others = {
        name: verdict for name, verdict in verdicts.items() if name.split("/")[0] not in gates and "/" not in name
    }
    failed = sorted(name for name, verdict in others.items() if verdict is Verdict.FAILED)
    passed = sum(verdict is Verdict.PASSED for verdict in others.values())
    if others:
        detail = f"failed: {', '.join(failed)}" if failed else f"{passed} tests"
        outcomes.append(Outcome("the other tests of its suite", Verdict.FAILED if failed else Verdict.PASSED, detail))
    if not outcomes or (status != 0 and all(outcome.verdict is not Verdict.FAILED for outcome in outcomes)):
        outcomes.append(Outcome("the suite", Verdict.FAILED, f"status {status}: {tail(output)}"))
    return outcomes


def gate_outcomes(verdicts: dict[str, Verdict], gates: tuple[str, ...], output: str) -> Iterator[Outcome]:
    """Yield the subtests of the gates, in the order of their names."""
    complaints = "; ".join(dict.fromkeys(GO_COMPLAINT.findall(output)))
    for name in sorted(verdicts):
        if name.split("/")[0] in gates and "/" in name:
            failed = verdicts[name] is Verdict.FAILED
            yield Outcome(name, verdicts[name], tail(complaints or output) if failed else "")


def tail(text: str) -> str:
    """Return the end of a text in one line."""
    return " ".join(text.split())[-TAIL_CHARACTERS:]
