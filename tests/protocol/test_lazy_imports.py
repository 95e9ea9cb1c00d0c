"""Slow imports that the protocol package must avoid, so that processes start quickly."""

import subprocess
import sys
from pathlib import Path

_PROGRAM = """
import sys
import rotunda.broker.protocol.headers, rotunda.broker.protocol.routing, rotunda.broker.records.record_batch
import rotunda.broker.records.record_reader, rotunda.broker.protocol.codec, rotunda.broker.protocol.error_codes
import rotunda.broker.protocol.messages.produce, rotunda.broker.protocol.messages.fetch
import rotunda.broker.records.record_writer, rotunda.broker.records.compression
rotunda.broker.protocol.codec.encode_response(19, 7, 1, {"topics": [{"name": "orders"}]})
names = {name.split(".")[0] for name in sys.modules}
print(sorted(names & {"kio", "hypothesis", "asyncio", "ssl", "numpy", "cramjam"}))
"""


def test_no_module_of_the_protocol_imports_what_is_slow() -> None:
    root = Path(__file__).parents[2]
    run = subprocess.run([sys.executable, "-c", _PROGRAM], cwd=root, capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
