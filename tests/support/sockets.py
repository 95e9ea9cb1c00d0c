"""What can be seen of a socket from outside, however many descriptors the process of the tests has open."""

import select
import socket


def is_readable(sock: socket.socket, seconds: float) -> bool:
    """Return whether something comes within a time: bytes, or the end."""
    poll = select.poll()
    poll.register(sock, select.POLLIN)
    return bool(poll.poll(seconds * 1000))
