"""The whole broker, with a supervisor that gives a change of handlers one second and retries it one second later.

python -m tests.support.hasty_supervisor start ...
"""

import sys

from rotunda.broker.cli.main import main
from rotunda.broker.supervisor import handler_count

if __name__ == "__main__":
    handler_count._HOLD_NS = handler_count._RETRY_NS = 1_000_000_000  # type: ignore[misc]
    sys.exit(main())
