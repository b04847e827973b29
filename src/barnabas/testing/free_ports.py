"""Free ports for servers whose addresses must be known before they start (KRaft voters)."""

from __future__ import annotations

import os
import random
import socket
from collections import deque
from pathlib import Path

HOST = "127.0.0.1"
_RANGE_FILE = Path("/proc/sys/net/ipv4/ip_local_port_range")
# Recently returned ports; their servers may not listen yet, or may be down for a while.
_given: deque[int] = deque(maxlen=1000)
# Below the default range of ports for outgoing connections on Linux, macOS and BSD.
_FIRST, _END = 10_000, 32_768


def free_ports(count: int) -> list[int]:
    """Return unused ports of 127.0.0.1 that were not returned recently.

    The ports are outside the range for outgoing connections. Otherwise a client's connection could
    take the port of a server that is down. Even the connection attempt to that server could take
    it: a connection from a port to itself succeeds.
    """
    end = _first_of_outgoing()
    first, end = _share(_FIRST, end)
    found: list[int] = []
    chance = random.SystemRandom()
    while len(found) < count:
        port = chance.randrange(first, end)
        if port not in _given and is_free(port):
            _given.append(port)
            found.append(port)
    return found


def _share(first: int, end: int) -> tuple[int, int]:
    """Return this pytest-xdist worker's share of the range, to avoid ports of other workers."""
    worker = os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    size = (end - first) // workers
    return first + size * int(worker), first + size * (int(worker) + 1)


def _first_of_outgoing() -> int:
    try:
        first = int(_RANGE_FILE.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return _END
    return min(first, _END) if first > _FIRST + 1000 else _END


def is_free(port: int) -> bool:
    """Whether a server can listen on this port of 127.0.0.1."""
    with socket.socket() as probe:
        # Servers set this option too; it permits a port that was closed recently.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True
