"""Ports for servers whose addresses must be known before they start, as KRaft's voters must."""

from __future__ import annotations

import os
import random
import socket
from collections import deque
from pathlib import Path

HOST = "127.0.0.1"
_RANGE_FILE = Path("/proc/sys/net/ipv4/ip_local_port_range")
# Those of servers that may not have begun to listen yet, or are down for a while.
_given: deque[int] = deque(maxlen=1000)
# Below what Linux, macOS and BSD give to outgoing connections unless told otherwise.
_FIRST, _END = 10_000, 32_768


def free_ports(count: int) -> list[int]:
    """Ports of 127.0.0.1 on which nothing listens now, none of them given out lately.

    They lie below those that outgoing connections take. A server that is down for a while would
    else find its port taken by a client's connection, even by a client that tries to reach it: a
    connection from a port to itself succeeds.
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
    """The part of a process of pytest-xdist: another's server that is down keeps its port."""
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
        # Servers bind with it too, which lets them have a port that was closed a moment ago.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True
