"""The cost of ACLs: small Produce at a broker with an authorizer and at two without one, in short turns.

`python -m ops.benchmarks.acls_cost [ROUNDS]` prints processor time per request, which unlike a rate does not depend on
the load of the machine, and the increase with ACLs. An authorizer exists from a broker's start or not at all, and two
brokers differ by some per cent because of their memory layout. So each round starts new brokers; the difference between
the two without ACLs is the noise. Exit status 1 when ACLs cost more than `MOST`, 2 when a program failed.
"""

import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median

from ops.benchmarks import programs
from ops.benchmarks.limits_cost import IN_FORCE_S, MOST, ROLES, TOPIC, rotunda, turn_of
from ops.benchmarks.programs import MeasurementError, RunningBroker

ROUNDS = 10
TURNS_IN_A_ROUND = 6
AUTHORIZER = (
    "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found=true",
)
BROKERS = {"with ACLs": AUTHORIZER, "without": (), "another without": ()}
WITH, WITHOUT, CHANCE = BROKERS
#: Additional ACLs, of users without connections.
OTHERS = 100

#: By role of process, and of both: ns of processor time per request.
Figures = dict[str, float]


def main(arguments: Sequence[str]) -> int:
    """Measure and print; returns the exit status."""
    number = int(arguments[0]) if arguments else ROUNDS
    rounds = []
    try:
        with tempfile.TemporaryDirectory(prefix="rotunda-acls-") as name:
            directory = Path(name)
            programs.build(directory)
            for index in range(number):
                rounds.append(measured(directory, index))
                print(f"round {index + 1}: {ratio(rounds[-1:], WITH, 'both'):.3f}", flush=True)
    except MeasurementError as failure:
        print(f"ACLs: {failure}", file=sys.stderr)
        return 2
    return int(report(rounds) > 1 + MOST)


def measured(directory: Path, index: int) -> dict[str, Figures]:
    """Return the figures of one round for each broker: medians of its turns."""
    names = list(BROKERS)
    # Rotate the order: the first broker measured finds a different state of the machine.
    names = names[index % len(names) :] + names[: index % len(names)]
    with ExitStack() as stack:
        turns = {}
        for name in names:
            run_dir = directory / f"{index}-{names.index(name)}"
            broker = stack.enter_context(programs.broker(run_dir, ["num.io.threads=1", *BROKERS[name]]))
            programs.kload(directory, "create", broker.port, [TOPIC, "1"])
            if name == WITH:
                guard(broker)
            turns[name] = turn_of(directory, broker)
        found: dict[str, list[Figures]] = {name: [] for name in names}
        for turn in range(-1, TURNS_IN_A_ROUND):
            names.append(names.pop(0))
            for name in names:
                figures = turns[name]()
                if turn >= 0:
                    found[name].append(figures)
    return {name: {what: median(each[what] for each in some) for what in some[0]} for name, some in found.items()}


def guard(broker: RunningBroker) -> None:
    """Add the ACLs that allow the load, and others for users without connections."""
    principals = ["User:ANONYMOUS", *(f"User:{number}" for number in range(OTHERS))]
    allowed = [text for principal in principals for text in ("--allow-principal", principal)]
    rotunda("acl", "add", "--run-dir", str(broker.run_dir), *allowed, "--producer", "--topic", TOPIC)
    time.sleep(IN_FORCE_S)


def ratio(rounds: Sequence[dict[str, Figures]], name: str, what: str) -> float:
    """Return the median ratio of a broker's figures to those of the one without ACLs."""
    return median(each[name][what] / each[WITHOUT][what] for each in rounds)


def report(rounds: Sequence[dict[str, Figures]]) -> float:
    """Print the cost of ACLs and the noise; return the median ratio."""
    for what in (*ROLES, "both"):
        for name in (WITH, CHANCE):
            ratios = sorted(each[name][what] / each[WITHOUT][what] for each in rounds)
            print(
                f"{what}, {name}: {median(each[name][what] for each in rounds):,.0f} ns a request, "
                f"{median(each[WITHOUT][what] for each in rounds):,.0f} without: "
                f"{100 * (median(ratios) - 1):+.1f} % "
                f"(from {100 * (ratios[0] - 1):+.1f} to {100 * (ratios[-1] - 1):+.1f})"
            )
    return ratio(rounds, WITH, "both")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
