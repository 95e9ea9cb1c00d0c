"""The first process of a broker under test: `rotunda start` that ends with the tests, even if they crash."""

from __future__ import annotations

import os
import signal
import sys

from rotunda.broker.cli.main import main
from rotunda.broker.runtime.child_process import die_with

if __name__ == "__main__":
    die_with(int(sys.argv[1]), signal.SIGTERM)
    exit_code = main(sys.argv[2:])
    sys.stdout.flush()
    sys.stderr.flush()
    # Nothing remains to be done, and interpreter shutdown is a third of the stop time.
    os._exit(exit_code)
