"""Signs of life of child processes, received with the watchdog messages of `service_manager`.

A parent acts as the service manager of its children: they send it the messages that they would send
to systemd. The kernel adds the sender's process id to each message, so that a process cannot send
signs of life for another one. Only Linux has this.
"""

from __future__ import annotations

import os
import socket
import struct
from typing import TYPE_CHECKING

from barnabas.runtime.service_manager import WATCHDOG_LINE, manager_environment

if TYPE_CHECKING:
    from collections.abc import Callable

# The process id, user and group of a sender (struct ucred).
_CREDENTIALS = struct.Struct("3i")
_MESSAGE_BYTES_MAX = 4096
# Messages that are read in one turn of the loop.
_MESSAGES_MAX = 100


class LifeSigns:
    """Receives the signs of life of children.

    Args:
        limit_ms: time within which each child has to give signs of life.
        on_sign: called with the process id at each sign.
    """

    def __init__(self, limit_ms: float, on_sign: Callable[[int], None]) -> None:
        self._on_sign = on_sign
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setblocking(False)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        # An abstract address leaves no file behind.
        address = f"@barnabas-{os.getpid()}-{os.urandom(8).hex()}"
        self._socket.bind("\0" + address[1:])
        # Variables for the children.
        self.environment = manager_environment(address, limit_ms)

    def fileno(self) -> int:
        """Return the descriptor; `read` is to be called when it has input."""
        return self._socket.fileno()

    def read(self) -> None:
        """Read the messages that have arrived."""
        for _ in range(_MESSAGES_MAX):
            try:
                message, ancillary, _, _ = self._socket.recvmsg(
                    _MESSAGE_BYTES_MAX, socket.CMSG_SPACE(_CREDENTIALS.size)
                )
            except BlockingIOError:
                return
            if WATCHDOG_LINE in message.splitlines():
                for _, kind, data in ancillary:
                    if kind == socket.SCM_CREDENTIALS:
                        self._on_sign(_CREDENTIALS.unpack(data[: _CREDENTIALS.size])[0])

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()


def can_receive_life_signs() -> bool:
    """Return whether this system tells the sender of a message."""
    return hasattr(socket, "SO_PASSCRED") and hasattr(socket, "SCM_CREDENTIALS")
