"""A broker that was not started for tests has nothing of faults: neither the code nor the memory."""

from __future__ import annotations

import subprocess
import sys

LOAD = """
import sys
import broker.handler.handler_process, broker.network.processor.processor_process, broker.supervisor.broker_main
print([name for name in sys.modules if name.startswith("broker.faults")])
"""


def test_processes_do_not_load_it() -> None:
    done = subprocess.run([sys.executable, "-c", LOAD], capture_output=True, check=True, text=True)
    assert done.stdout.strip() == "[]"
