"""The command `rotunda` in a process that may have few files open."""

import resource
import sys

from rotunda.broker.cli.main import main

FEW = 256

if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_NOFILE, (FEW, FEW))
    sys.exit(main())
