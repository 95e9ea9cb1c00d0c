"""Checks of a socket that work however many descriptors the test process has open."""

import select
import socket


def is_readable(sock: socket.socket, seconds: float) -> bool:
    """Return whether a socket becomes readable in time: bytes, or the end."""
    poll = select.poll()
    poll.register(sock, select.POLLIN)
    return bool(poll.poll(seconds * 1000))
