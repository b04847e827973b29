"""Admission of new connections: a queue for connections above a limit or a rate.

Kafka stops accepting connections in this case, so that they wait in the kernel's queue. This broker
accepts the connections but does not read from them, which clients cannot distinguish. The queue is
as long as the kernel's queue. Further connections are closed.
"""

from __future__ import annotations

import logging
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.network.connection import Connection
    from barnabas.network.connection_options import ConnectionDependencies
    from barnabas.runtime.clock import Cancellable
    from barnabas.server.quotas.connection_quotas import ConnectionQuotas

_log = logging.getLogger(__name__)


class ConnectionAdmission:
    """Queue of the connections that wait for admission to one listener, first in first out."""

    def __init__(
        self,
        listener: str,
        quotas: ConnectionQuotas,
        dependencies: ConnectionDependencies,
        queue_length_max: int,
        admit: Callable[[Connection], None],
    ) -> None:
        self._listener = listener
        self._quotas = quotas
        self._dependencies = dependencies
        self._queue_length_max = queue_length_max
        self._admit = admit
        # Muted connections in order of arrival, at most `queue_length_max`.
        self._waiting: dict[Connection, None] = {}
        # Rejected connections from addresses above their rate, until a timer closes them.
        self._delayed_closes: dict[Connection, Cancellable] = {}
        # When the rate limits admit the first connection (ms, monotonic); None before it is
        # counted.
        self._wait_until_ms: float | None = None
        # Timer of the next check of the queue. None if none is scheduled.
        self._timer: Cancellable | None = None
        # Whether a rejection was logged since the last connection was admitted.
        self._reported = False
        quotas.add_waiter(self.check)

    def __len__(self) -> int:
        return len(self._waiting)

    def arrive(self, connection: Connection) -> None:
        """Admit the connection, queue it, or close it if the queue is full."""
        if len(self._waiting) >= self._queue_length_max:
            self._reject(connection, "the queue of waiting connections is full")
            return
        self._waiting[connection] = None
        self.check()
        if connection in self._waiting:
            connection.mute()

    def leave(self, connection: Connection) -> None:
        """Remove a connection that closed before it was admitted."""
        if connection in self._delayed_closes:
            self._delayed_closes.pop(connection).cancel()
        if connection not in self._waiting:
            return
        first = next(iter(self._waiting))
        del self._waiting[connection]
        if connection is first:
            self._wait_until_ms = None
            self.check()

    def close(self) -> None:
        """Close all connections in the queue."""
        for connection in [*self._waiting, *self._delayed_closes]:
            connection.abort()

    def check(self) -> None:
        """Admit connections from the front of the queue as far as limits and rates allow."""
        while self._waiting:
            now_ms = self._dependencies.clock.monotonic_ms()
            if self._wait_until_ms is None:
                self._wait_until_ms = now_ms + self._quotas.count_arrival(self._listener)
            if now_ms < self._wait_until_ms:
                self._arm(self._wait_until_ms - now_ms)
                return
            if not self._quotas.has_room(self._listener):
                return
            connection = next(iter(self._waiting))
            del self._waiting[connection]
            self._wait_until_ms = None
            self._admit_or_reject(connection)

    def _admit_or_reject(self, connection: Connection) -> None:
        address = address_of(connection.peer)
        delay_ms = self._quotas.address_delay_ms(address)
        if delay_ms > 0:
            self._close_later(connection, delay_ms)
        elif not self._quotas.has_address_room(address):
            self._reject(connection, "its address has max.connections.per.ip connections")
        else:
            self._reported = False
            self._quotas.opened(self._listener, address)
            connection.unmute()
            self._admit(connection)

    def _close_later(self, connection: Connection, delay_ms: float) -> None:
        if len(self._delayed_closes) >= self._queue_length_max:
            self._reject(connection, "its address exceeds its connection rate")
            return
        connection.mute()
        self._delayed_closes[connection] = self._dependencies.timer.call_later(
            delay_ms, connection.abort
        )

    def _reject(self, connection: Connection, reason: str) -> None:
        if not self._reported:
            self._reported = True
            _log.warning("Connection rejected: client=%s reason=%s", connection.peer, reason)
        connection.abort()

    def _arm(self, delay_ms: float) -> None:
        if self._timer is None:
            self._timer = self._dependencies.timer.call_later(delay_ms, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self.check()


@lru_cache(maxsize=1024)
def address_of(peer: str) -> str:
    """Return the host of "HOST:PORT", with an IPv4-mapped IPv6 address converted to IPv4."""
    host = peer.rpartition(":")[0].strip("[]")
    return host.removeprefix("::ffff:") if "." in host else host
