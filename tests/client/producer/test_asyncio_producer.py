"""The producer's asyncio interface without a broker: no waiting call blocks the event loop."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys

from rotunda.broker.client import AsyncProducer
from rotunda.broker.client.errors import ProducerClosed
from tests.support.deadline import deadline_s

SENDS = 40
LIMIT_S = 30  # less than max.block.ms, for which a call may wait


def test_g36_close_is_not_delayed_by_waiting_sends_nor_are_other_threads() -> None:
    async def scenario(address: str) -> list[object]:
        producer = AsyncProducer(bootstrap_servers=address)
        sends = [asyncio.ensure_future(producer.send("t", b"v")) for _ in range(SENDS)]
        await asyncio.wait_for(asyncio.to_thread(int), LIMIT_S)
        await asyncio.wait_for(producer.close(0), LIMIT_S)
        await asyncio.wait_for(producer.close(0), LIMIT_S)
        found: list[object] = list(await asyncio.wait_for(asyncio.gather(*sends, return_exceptions=True), LIMIT_S))
        try:
            await producer.send("t", b"v")
        except ProducerClosed as failure:
            found.append(failure)
        return found

    with socket.create_server(("127.0.0.1", 0)) as silent:
        found = asyncio.run(scenario(f"127.0.0.1:{silent.getsockname()[1]}"))
    assert [type(each) for each in found] == [ProducerClosed] * (SENDS + 1)


def test_neither_the_end_of_the_loop_nor_that_of_the_process_waits_for_a_call() -> None:
    """Each would wait for `max.block.ms`."""
    program = """if True:
        import asyncio, sys
        from rotunda.broker.client import AsyncProducer

        async def main():
            producer = AsyncProducer(bootstrap_servers=sys.argv[1], max_block_ms=600_000)
            calls = [producer.send("t", b"v"), producer.partitions_for("t")]
            waiting = [asyncio.ensure_future(each) for each in calls]
            done, _ = await asyncio.wait(waiting, timeout=0.1)
            print(len(done))

        asyncio.run(main())
    """
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        command = [sys.executable, "-c", program, address]
        done = subprocess.run(command, capture_output=True, text=True, timeout=deadline_s(60), check=False)
    assert (done.returncode, done.stdout) == (0, "0\n"), done.stderr
