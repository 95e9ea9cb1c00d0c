"""`python -m rotunda`: the same as the command `rotunda`."""

import sys

from rotunda.broker.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
