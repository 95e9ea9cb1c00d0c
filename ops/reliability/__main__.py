"""Attack the broker under real clients for a given time, check every record, and print a table at the end.

Exit status 1 when a record was lost, repeated, reordered, or read although aborted, or when the broker has ended; 2
when the campaign could not begin.
"""

import argparse
import secrets
import signal
import sys
import tempfile
from pathlib import Path

from ops.broker import REPOSITORY, ProgramError
from ops.reliability import report
from ops.reliability.campaign import ATTACKS, Campaign, Orders

PAGE = REPOSITORY / "docs" / "reliability.md"


def main() -> int:
    options = parse_options()
    orders = Orders(
        seed=options.seed if options.seed is not None else secrets.randbits(32),
        minutes=options.minutes,
        kills=options.kills,
        frames=options.frames,
        load=options.load,
        attacks=tuple(options.only or ATTACKS),
        settings=dict(pair.split("=", 1) for pair in options.set),
    )
    # On SIGTERM, stop the broker and the clients, and unmount the disk, before exiting.
    signal.signal(signal.SIGTERM, lambda _number, _frame: sys.exit(1))
    directory = Path(options.directory or tempfile.mkdtemp(prefix="rotunda-campaign-"))
    directory.mkdir(parents=True, exist_ok=True)
    print(f"seed {orders.seed}, directory {directory}", flush=True)
    try:
        campaign = Campaign(
            orders, directory, lambda line: print(line, flush=True), keeps_data=options.directory is not None
        )
        result = campaign.run()
    except ProgramError as failure:
        print(f"ops/campaign: {failure}", file=sys.stderr)
        return 2
    words = report.text(result)
    print(words)
    if options.record:
        report.record(PAGE, report.summary(result))
    return int(result.is_bad)


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="ops/campaign", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--minutes", type=float, default=5.0, help="how long it attacks (%(default)s)")
    parser.add_argument("--kills", type=int, metavar="N", help="SIGKILLs of each role, spread over that time")
    parser.add_argument("--frames", type=int, metavar="N", help="mutated frames, spread over that time")
    parser.add_argument("--load", type=float, default=1.0, help="a factor on what the clients write (%(default)s)")
    parser.add_argument("--only", action="append", choices=ATTACKS, help="only this attack; may be repeated")
    parser.add_argument("--seed", type=int, help="repeat the chance of another campaign")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a setting of the broker")
    parser.add_argument("--directory", help="keep log, journal and data here")
    parser.add_argument("--record", action="store_true", help=f"rewrite the table of {PAGE.relative_to(REPOSITORY)}")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
