"""The door to the machine's name."""

from __future__ import annotations

import socket


def host_name() -> str:
    """Return the name of this machine, as its system knows it."""
    return socket.gethostname()
