"""Run real clients against the broker and print one table; `--record` also writes docs/compatibility.md.

With `--only`, `--record` replaces the rows of those clients and leaves the other rows unchanged.

Exit status 1 when a feature failed, 2 when the broker itself could not be run. A client whose tools are missing on this
machine is "not run", with the reason.
"""

import argparse
import contextlib
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from ops.broker import SETTINGS, Broker, ProgramError
from ops.compatibility import clients, outcomes, preparation
from ops.compatibility.clients import CLIENTS, Client
from ops.compatibility.page import Table
from ops.compatibility.target import Target

PAGE = preparation.REPOSITORY / "docs" / "compatibility.md"


def main() -> int:
    options = parse_options()
    if options.tests is not None:
        return subprocess.call([sys.executable, "-m", "pytest", "--compat", *options.tests], cwd=preparation.REPOSITORY)
    chosen = [client for client in CLIENTS if not options.only or client.key in options.only]
    if options.list:
        for client in chosen:
            print(f"{client.key:16} {client.name} {client.version()}")
        return 0
    table = Table()
    try:
        for client in chosen:
            table.add(client, outcomes_of(client, options))
    except ProgramError as failure:
        print(f"ops/compat: {failure}", file=sys.stderr)
        return 2
    print(table.summary())
    if options.record:
        table.record(PAGE, clients.KAFKA(), CLIENTS)
    return int(table.failures() > 0)


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="ops/compat", description=(__doc__ or "").splitlines()[0])
    keys = [client.key for client in CLIENTS]
    parser.add_argument(
        "--only", action="append", choices=keys, metavar="CLIENT", help="only this client; may be repeated"
    )
    parser.add_argument("--feature", action="append", default=[], help="only the feature of this name; may be repeated")
    tests = "run the tests of clients that ops/test leaves out; what follows goes to pytest"
    parser.add_argument("--tests", nargs=argparse.REMAINDER, metavar="ARGUMENT", help=tests)
    parser.add_argument("--list", action="store_true", help="print the clients and end")
    parser.add_argument("--against", metavar="HOST:PORT", help="a broker that runs already, Apache Kafka for example")
    parser.add_argument("--keep", metavar="DIRECTORY", help="keep the broker's log and data below this directory")
    what = f"rewrite {PAGE.relative_to(preparation.REPOSITORY)}; with --only the rows of those clients"
    parser.add_argument("--record", action="store_true", help=what)
    options = parser.parse_args()
    if options.record and (options.feature or options.against):
        parser.error("--record writes down whole clients at a broker of our own: leave --feature and --against out")
    return options


def outcomes_of(client: Client, options: argparse.Namespace) -> list[outcomes.Outcome]:
    """Prepare one client and run it; without its tools it is not run."""
    if options.against and (client.reads_files or client.kill_seconds):
        return outcomes.not_run("needs a broker of our own")
    try:
        preparation.prepare(client.part)
    except preparation.PreparationError as failure:
        return outcomes.not_run(str(failure))
    with place(options) as directory, target_for(client, options, directory) as target:
        return client.run(target, tuple(options.feature))


@contextlib.contextmanager
def place(options: argparse.Namespace) -> Iterator[Path]:
    if options.keep:
        Path(options.keep).mkdir(parents=True, exist_ok=True)
        yield Path(tempfile.mkdtemp(prefix="broker-", dir=options.keep))
        return
    with tempfile.TemporaryDirectory(prefix="rotunda-compat-") as name:
        yield Path(name)


@contextlib.contextmanager
def target_for(client: Client, options: argparse.Namespace, directory: Path) -> Iterator[Target]:
    """Yield the given broker, or a new one; for clients that read its files, one stopped after clients used it."""
    if options.against:
        yield Target(options.against)
        return
    with Broker(directory, {**SETTINGS, **client.settings}) as broker:
        target = Target(broker.bootstrap, broker.data_dir, broker)
        if not client.reads_files:
            yield target
            return
        clients.write_files(target)
    yield target


if __name__ == "__main__":
    sys.exit(main())
