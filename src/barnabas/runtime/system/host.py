"""The interface to the host name of the machine."""

from __future__ import annotations

import socket


def host_name() -> str:
    """Return the host name that the operating system reports."""
    return socket.gethostname()
