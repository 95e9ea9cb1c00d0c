"""The cost of limits that no client reaches: small Produce at one broker, in short turns with and without limits.

`python -m ops.benchmarks.limits_cost [TURNS]` prints processor time per request, which unlike a rate does not depend on
the load of the machine, and the increase with the limits. All of them are dynamic, so the same processes are measured
with and without them; two brokers would differ. Exit status 1 when they cost more than `MOST`, 2 when a program failed.
"""

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median

from ops.benchmarks import idle, programs, turns
from ops.benchmarks.cases import small_produce
from ops.benchmarks.programs import MeasurementError, RunningBroker

TURNS = 30
TURN_S = 0.5
#: A change is in force within a second.
IN_FORCE_S = 1.2
#: The maximum increase with all limits together.
MOST = 0.03
TOPIC = "limits"
LOAD = small_produce(64, 1, None)
ROLES = ("processor", "handler")
#: Limits that are far away, of every kind.
SETTINGS = (
    *("max.connections=100000", "max.connections.per.ip=100000", "max.connections.per.ip.overrides=127.0.0.1:90000"),
    *("max.connection.creation.rate=100000", "connection.refusal.rate=100000", "overload.queue.time.ms=10000"),
    *("broker.quota.produce.bytes=100000000000", "broker.quota.fetch.bytes=100000000000"),
    *("broker.quota.request.rate=100000000", "automq.retry.storm.backoff.enabled=true"),
)
QUOTAS = (
    *("producer_byte_rate=100000000000", "consumer_byte_rate=100000000000", "request_percentage=100000"),
    "controller_mutation_rate=100000",
)

Figures = dict[str, float]


def main(arguments: Sequence[str]) -> int:
    """Measure and print; returns the exit status."""
    number = int(arguments[0]) if arguments else TURNS
    try:
        with tempfile.TemporaryDirectory(prefix="rotunda-limits-") as name, ExitStack() as stack:
            directory = Path(name)
            programs.build(directory)
            broker = stack.enter_context(programs.broker(directory / "run", ["num.io.threads=1"]))
            programs.kload(directory, "create", broker.port, [TOPIC, "1"])
            turn = turn_of(directory, broker)
            turn()
            quotas = turns.alternate(number, lambda: limited(broker, turn, ()), turn)
            both = turns.alternate(number, lambda: limited(broker, turn, SETTINGS), turn)
    except MeasurementError as failure:
        print(f"limits: {failure}", file=sys.stderr)
        return 2
    report("client quotas", *quotas)
    return int(report("all limits", *both) > 1 + MOST)


def limited(broker: RunningBroker, turn: Callable[[], Figures], settings: Sequence[str]) -> Figures:
    """Return a turn's figures while quotas for each client id, and these settings, are in force."""
    whose = ("--run-dir", str(broker.run_dir), "--default", "client-id")
    brokers = ("--run-dir", str(broker.run_dir))
    rotunda("quota", "set", *whose, *QUOTAS)
    if settings:
        rotunda("config", "set", *brokers, *settings)
    time.sleep(IN_FORCE_S)
    found = turn()
    rotunda("quota", "delete", *whose)
    if settings:
        rotunda("config", "delete", *brokers, *(each.split("=")[0] for each in settings))
    time.sleep(IN_FORCE_S)
    return found


def rotunda(*arguments: str) -> None:
    """Run one of the broker's commands. Raises MeasurementError with its output."""
    done = subprocess.run(programs.rotunda(*arguments), capture_output=True, text=True, check=False)
    if done.returncode:
        raise MeasurementError(done.stdout + done.stderr)


def turn_of(directory: Path, broker: RunningBroker) -> Callable[[], Figures]:
    """Return a function that runs the load for a turn and returns ns of processor time a request, by role and total."""
    processes = broker.roles()

    def turn() -> Figures:
        before = {role: idle.cpu_ns(tuple(processes[role])) for role in ROLES}
        found = programs.kload(directory, LOAD.command, broker.port, LOAD.kload_arguments(TOPIC, 1, TURN_S))
        spent = {role: (idle.cpu_ns(tuple(processes[role])) - before[role]) / found["requests"] for role in ROLES}
        return {**spent, "both": sum(spent.values())}

    return turn


def report(what: str, ones: Sequence[Figures], others: Sequence[Figures]) -> float:
    """Print the cost of limits, by the median and the minimum of the turns; return the median ratio."""
    ratio = 1.0
    for role in (*ROLES, "both"):
        with_limits, without = [each[role] for each in ones], [each[role] for each in others]
        ratio = turns.ratio(with_limits, without)
        print(
            f"{what}, {role}: {median(with_limits):,.0f} ns a request, {median(without):,.0f} without: "
            f"{100 * (ratio - 1):+.1f} % (least: {min(with_limits):,.0f} and {min(without):,.0f})"
        )
    return ratio


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
