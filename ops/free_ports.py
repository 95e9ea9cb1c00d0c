"""Free ports for brokers whose ports must be known before they start.

They lie below the kernel's range of ephemeral ports, so no outgoing connection can occupy one between the check and the
start of a broker, which for Apache Kafka lasts seconds, or while a killed broker is down. That includes connections of
its own client, which could otherwise use the port that it tries to reach as its source port, and reach itself.
"""

import secrets
import socket
from contextlib import ExitStack
from pathlib import Path
from typing import Final

LOWEST: Final = 10_000

_GIVEN_BY_THE_KERNEL: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")


def free_ports(count: int) -> list[int]:
    """Return this many unused ports of 127.0.0.1, chosen at random: other processes may be searching as well."""
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
