"""The numbers of processors and handlers change, up and down as Kafka allows it, during all other attacks."""

from __future__ import annotations

import random
import time

from ops.reliability.administration import BROKER_RESOURCE, SET
from ops.reliability.attacks import Battlefield
from ops.reliability.wire import Wire
from rotunda.broker.protocol.api_keys import ApiKey

#: The role that each setting counts.
ROLES = {"num.network.threads": "processor", "num.io.threads": "handler"}
MOST = 4
FEWER, OTHER = "fewer processors", "more processors, or other handlers"
#: Processes that are removed first finish their pending requests.
LONGEST_SECONDS = 30.0
LOOK_SECONDS = 0.05


class Threads:
    """Sets one of the numbers to another valid one."""

    def __init__(self, field: Battlefield, chance: random.Random) -> None:
        self._field, self._chance = field, chance

    def __call__(self) -> None:
        name = self._chance.choice(sorted(ROLES))
        with Wire(self._field.broker.port) as wire:
            resource = {"resource_type": BROKER_RESOURCE, "resource_name": "1", "configuration_keys": [name]}
            described = wire.ask(ApiKey.DESCRIBE_CONFIGS, 4, {"resources": [resource]})
            now = int(described.results[0].configs[0].value)
            number = self._chance.choice([n for n in range(max(1, now // 2), min(MOST, 2 * now) + 1) if n != now])
            change = {"name": name, "config_operation": SET, "value": str(number)}
            wanted = {"resource_type": BROKER_RESOURCE, "resource_name": "1", "configs": [change]}
            action = FEWER if ROLES[name] == "processor" and number < now else OTHER
            with self._field.journal.window(action, detail=f"{name} {now} -> {number}"):
                answer = wire.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, {"resources": [wanted]})
                self._wait_for(ROLES[name], number)
        for refused in answer.responses:
            if refused.error_code:
                self._field.journal.note("setting refused", detail=f"{name}: {refused.error_message}")

    def _wait_for(self, role: str, number: int) -> None:
        end = time.monotonic() + LONGEST_SECONDS
        while len(self._field.broker.processes()[role]) != number and time.monotonic() < end:
            if self._field.ended.wait(LOOK_SECONDS):
                return
