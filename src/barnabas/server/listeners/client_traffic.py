"""Requests and bytes by client: the principal and client id of a connection.

Open connections count for themselves, so requests cost nothing more. Clients choose their ids, and
may open connections with ever new ones. Ids are therefore truncated, and the number of remembered
clients is limited: those with the least traffic are forgotten.
"""

from __future__ import annotations

from heapq import nlargest
from typing import TYPE_CHECKING, NamedTuple

from barnabas.network.principal import ANONYMOUS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from barnabas.network.connection import Connection

# Maximum length of a client id here.
CLIENT_ID_CHARS_MAX = 100
# Clients that stay when too many are remembered.
CLIENTS_KEPT = 500
# Number of remembered clients at which the smallest are forgotten.
_CLIENTS_MAX = 2 * CLIENTS_KEPT


class ClientKey(NamedTuple):
    """The client of a connection."""

    # TYPE:NAME, for example "User:alice".
    principal: str
    client_id: str


class Traffic(NamedTuple):
    """Counts of one client since the start of the node."""

    requests: int
    bytes_in: int
    bytes_out: int

    def plus(self, other: Traffic) -> Traffic:
        """Return the sums."""
        return Traffic(
            self.requests + other.requests,
            self.bytes_in + other.bytes_in,
            self.bytes_out + other.bytes_out,
        )

    def minus(self, other: Traffic) -> Traffic:
        """Return the growth since earlier counts."""
        return Traffic(
            self.requests - other.requests,
            self.bytes_in - other.bytes_in,
            self.bytes_out - other.bytes_out,
        )


NO_TRAFFIC = Traffic(0, 0, 0)


class ClientTraffic:
    """The traffic of all clients of one listener."""

    __slots__ = ("_gone",)

    def __init__(self) -> None:
        # Traffic of closed connections. Invariant: at most `_CLIENTS_MAX`.
        self._gone: dict[ClientKey, Traffic] = {}

    def on_gone(self, connection: Connection) -> None:
        """Keep the counts of a connection that has closed."""
        _add(self._gone, connection)
        if len(self._gone) > _CLIENTS_MAX:
            self._gone = largest(self._gone)

    def with_open(self, connections: Iterable[Connection]) -> dict[ClientKey, Traffic]:
        """Return the traffic by client, of closed connections and of these open ones."""
        found = self._gone.copy()
        for connection in connections:
            _add(found, connection)
        return found


def largest(traffic: dict[ClientKey, Traffic]) -> dict[ClientKey, Traffic]:
    """Return the clients with the most bytes, and those with the most requests."""
    half = CLIENTS_KEPT // 2
    by_bytes = nlargest(half, traffic, lambda key: traffic[key].bytes_in + traffic[key].bytes_out)
    by_requests = nlargest(half, traffic, lambda key: traffic[key].requests)
    return {key: traffic[key] for key in (*by_bytes, *by_requests)}


def _add(found: dict[ClientKey, Traffic], connection: Connection) -> None:
    if connection.client_id is None:
        # The connection has had no request.
        return
    key = ClientKey(str(connection.principal or ANONYMOUS), connection.client_id)
    own = Traffic(connection.requests, connection.bytes_in, connection.bytes_out)
    found[key] = found.get(key, NO_TRAFFIC).plus(own)
