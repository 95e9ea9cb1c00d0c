"""A broker that was not started for tests has nothing of faults: neither the code nor the memory."""

from __future__ import annotations

import subprocess
import sys

LOAD = """
import sys
import rotunda.broker.handler.handler_process, rotunda.broker.network.processor.processor_process
import rotunda.broker.supervisor.broker_main
print([name for name in sys.modules if name.startswith("rotunda.broker.faults")])
"""


def test_processes_do_not_load_it() -> None:
    done = subprocess.run([sys.executable, "-c", LOAD], capture_output=True, check=True, text=True)
    assert done.stdout.strip() == "[]"
