"""Faults of the machine: its disk fills up and is freed again, the whole broker ends and is started again."""

from __future__ import annotations

import random
import time

from ops.reliability.attacks import Battlefield

LONGEST_FULL_SECONDS = 4.0
LONGEST_DOWN_SECONDS = 1.0


def fill_disk(field: Battlefield, chance: random.Random) -> None:
    """Leave the broker no room for some seconds."""
    with field.journal.window("disk full"):
        try:
            field.disk.fill()
            field.ended.wait(chance.uniform(0.5, LONGEST_FULL_SECONDS))
        finally:
            field.disk.free()


def restart(field: Battlefield, chance: random.Random) -> None:
    """End the whole broker, in order or not, and start it again on the same data."""
    broker = field.broker
    is_crash = chance.random() < 1 / 2
    with field.journal.window("crash of all" if is_crash else "restart"):
        if is_crash:
            broker.kill()
        else:
            broker.terminate()
        time.sleep(chance.uniform(0, LONGEST_DOWN_SECONDS))
        broker.start()
        field.broker_has_changed()
