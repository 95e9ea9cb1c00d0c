"""Send and receive one file descriptor with a short message over a SOCK_SEQPACKET pair.

Runs in the acceptor, the processors and the supervisor; knows nothing of the messages. The standard library's
`socket.recv_fds` ignores its flags, so a received descriptor would leak into children; `recvmsg` with MSG_CMSG_CLOEXEC
does not. A receiver without a free descriptor gets the message with truncated control data (MSG_CTRUNC): the descriptor
is then lost, and the caller must report it.
"""

from __future__ import annotations

import array
import os
import socket
from typing import NamedTuple

_FD_BYTES = array.array("i").itemsize
_CONTROL_BYTES = socket.CMSG_SPACE(_FD_BYTES)


class Received(NamedTuple):
    """One message. `fd` is -1 for a message without a descriptor; `truncated` marks a lost descriptor."""

    payload: bytes
    fd: int
    truncated: bool


def send_fd(pair_end: socket.socket, payload: bytes, fd: int) -> bool:
    """Send `payload` with `fd`; return False if the pair has no room now. Other OSErrors are raised."""
    control = array.array("i", (fd,)).tobytes()
    try:
        pair_end.sendmsg(
            (payload,),
            ((socket.SOL_SOCKET, socket.SCM_RIGHTS, control),),
            socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL,
        )
    except BlockingIOError:
        return False
    return True


def try_receive(pair_end: socket.socket, max_bytes: int) -> Received | None:
    """Return the next message of at most `max_bytes`, or None if none is queued. Never blocks.

    A closed peer reads as a message with an empty payload. The caller owns the descriptor.
    """
    try:
        payload, control, flags, _ = pair_end.recvmsg(
            max_bytes, _CONTROL_BYTES, socket.MSG_DONTWAIT | socket.MSG_CMSG_CLOEXEC
        )
    except BlockingIOError:
        return None
    fds = array.array("i")
    for level, kind, data in control:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            fds.frombytes(data[: len(data) - len(data) % _FD_BYTES])
    truncated = bool(flags & socket.MSG_CTRUNC)
    if truncated or len(fds) > 1:
        # A message carries at most one descriptor; reject the whole message otherwise and close all, so that none
        # leaks.
        for fd in fds:
            os.close(fd)
        return Received(payload, -1, truncated=True)
    return Received(payload, fds[0] if fds else -1, truncated=False)
