"""Free ports for brokers whose ports are known before they start.

They lie below those that the kernel gives to whoever connects: what is free there is not taken by a connection between
the look and the start of a broker, which for Apache Kafka lasts seconds, or while one that was killed is away: not even
by that of its own client, which may otherwise come from the port that it tries to reach, and reaches itself.
"""

import secrets
import socket
from contextlib import ExitStack
from pathlib import Path
from typing import Final

LOWEST: Final = 10_000

_GIVEN_BY_THE_KERNEL: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")


def free_ports(count: int) -> list[int]:
    """Return so many ports of 127.0.0.1 that nobody listens on, chosen by chance: others look for some as well."""
    above = int(_GIVEN_BY_THE_KERNEL.read_text().split()[0])
    found: list[int] = []
    with ExitStack() as held:
        while len(found) < count:
            probe, port = held.enter_context(socket.socket()), LOWEST + secrets.randbelow(above - LOWEST)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            found.append(port)
    return found
