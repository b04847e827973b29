"""Free ports for child processes, reserved before these processes bind them.

A child must get the same port each time it is started. A socket that is bound and does not listen
keeps its port from all other programs that ask for a free one. Linux lets another socket of the
same user bind such a port and listen, if both have SO_REUSEADDR, as all listeners here have.
"""

from __future__ import annotations

import socket
import sys


class PortReservations:
    """Reserves ports until `close`. Other systems than Linux only find ports that are free now."""

    def __init__(self) -> None:
        self._held: list[socket.socket] = []

    def reserve(self, host: str) -> int:
        """Return a free port of a host; the empty host means all interfaces.

        Raises:
            OSError: the host is no address of this machine.
        """
        found = socket.getaddrinfo(
            host or None, 0, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        family, _, _, _, address = found[0]
        held = socket.socket(family, socket.SOCK_STREAM)
        try:
            held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            held.bind(address)
        except OSError:
            held.close()
            raise
        port: int = held.getsockname()[1]
        if sys.platform == "linux":
            self._held.append(held)
        else:
            held.close()
        return port

    def close(self) -> None:
        """Give all ports back."""
        for held in self._held:
            held.close()
        self._held.clear()
