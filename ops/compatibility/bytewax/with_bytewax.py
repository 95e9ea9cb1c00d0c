"""Bytewax: windowed sums and a join of two topics, continued from a recovery store after the dataflow was killed."""

import json
import os
import subprocess
import sys
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from applications import (
    COUNT,
    Application,
    Record,
    committed,
    fill,
    new_topics,
    records,
    scratch,
    timestamp_of,
    wait_for,
    window_sums,
)
from checks import require, run

FIRST_MS = int(datetime(2023, 11, 14, tzinfo=UTC).timestamp() * 1000)
WINDOW_MS = 10_000
WORKERS = 2


def order(number: int) -> dict[str, int]:
    return {"number": number, "amount": number * 3}


def payments(first: int, end: int) -> list[Record]:
    """Return the payments of these orders, in another order and of other keys."""
    return [
        (str(number), json.dumps({"number": number, "amount": number * 7}).encode(), timestamp_of(number) + 1)
        for number in reversed(range(first, end))
    ]


def dataflow(store: str, **environment: str) -> Application:
    """Return the dataflow with its recovery store; it makes a snapshot every second."""
    os.environ.update(environment)
    place = f"{Path(__file__).parent / 'application.py'}:flow"
    return Application("-m", "bytewax.run", place, "-w", str(WORKERS), "-r", store, "-s", "1", "-b", "0")


def windows_and_join(bootstrap: str, deaths: bool) -> None:
    """Process half of the records, end the process, and let a second one continue to the end."""
    order_topic, payment_topic, sums, paid = new_topics(bootstrap, "orders", "payments", "sums", "paid")
    half = COUNT // 2
    with scratch() as store:
        subprocess.run([sys.executable, "-m", "bytewax.recovery", store, str(WORKERS)], check=True)
        topics = {"ORDERS": order_topic, "PAYMENTS": payment_topic, "SUMS": sums, "PAID": paid}
        fill(bootstrap, order_topic, records(0, half, order))
        fill(bootstrap, payment_topic, payments(0, half))
        with dataflow(store, BOOTSTRAP=bootstrap, TAIL="1", **topics) as flow:
            wait_for("some are joined", (flow,), lambda: committed(bootstrap, paid))
            fill(bootstrap, order_topic, records(half, COUNT, order))
            (flow.kill if deaths else flow.stop)()
            fill(bootstrap, payment_topic, payments(half, COUNT))
            del os.environ["TAIL"]
            flow.start()
            flow.finish()
    # Records sent after the last snapshot are sent again by the second process, with the same values.
    found = {}
    for key, value in committed(bootstrap, sums):
        window = json.loads(value)
        found[key, FIRST_MS + window["window"] * WINDOW_MS] = window["sum"]
    require(found == window_sums(COUNT), f"{len(found)} windows, with other sums than their records'")
    joined = {key: json.loads(value)["amounts"] for key, value in committed(bootstrap, paid)}
    require(
        joined == {str(number): [number * 3, number * 7] for number in range(COUNT)},
        f"{len(joined)} orders are paid, or not by their own payments",
    )


if __name__ == "__main__":
    run(
        {
            "recovery: windows and a join over a restart": partial(windows_and_join, deaths=False),
            "recovery: windows and a join, the dataflow killed": partial(windows_and_join, deaths=True),
        }
    )
