"""Accepts connections on one endpoint and keeps count of them (Kafka's SocketServer).

Here is the broker's one broad `except`: whatever a request's bytes make our code raise costs that
peer its connection, and nobody else anything. A broken invariant is not caught: it ends the
process.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from barnabas.network.connection import Connection, ConnectionDoors, ConnectionLimits
from barnabas.protocol.protocol_error import ProtocolError

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.runtime.sockets import Listening, Sockets
    from barnabas.server.endpoint import Endpoint
    from barnabas.settings.definition import ParsedConfig

_log = logging.getLogger(__name__)

_IDLE_CHECKS_PER_PERIOD = 2
_IDLE_CHECK_MS_MAX = 60_000


class Listener:
    """One bound endpoint and its open connections."""

    def __init__(
        self,
        endpoint: Endpoint,
        config: ParsedConfig,
        doors: ConnectionDoors,
        on_request: Callable[[Connection, memoryview], None],
    ) -> None:
        self._endpoint = endpoint
        self._doors = doors
        self._on_request = on_request
        self._limits = ConnectionLimits(config.integer("socket.request.max.bytes"))
        self._connections_max = config.integer("max.connections")
        self._per_address_max = config.integer("max.connections.per.ip")
        self._idle_ms = config.integer("connections.max.idle.ms")
        self._listening: Listening | None = None
        self._next_id = 0
        # Open connections by id.
        self._connections: dict[int, Connection] = {}
        # Whether connections beyond the limit were reported since it was last kept.
        self._limit_reported = False
        # Connections are accepted before, and read from only after `serve`.
        self._serving = False

    def __len__(self) -> int:
        return len(self._connections)

    @property
    def connections(self) -> list[Connection]:
        """All that are open."""
        return list(self._connections.values())

    def bind(self, sockets: Sockets) -> Endpoint:
        """Accept from now on, read from `serve` on; returns the endpoint with its real port.

        Raises:
            OSError: the address cannot be bound.
        """
        self._listening = sockets.listen(self._endpoint.host, self._endpoint.port, self._accept)
        self._endpoint = self._endpoint._replace(port=self._listening.port)
        if self._idle_ms > 0:
            self._schedule_idle_check()
        return self._endpoint

    def serve(self) -> None:
        """Read from those that have connected, and from all that will."""
        self._serving = True
        for connection in self.connections:
            connection.unmute()

    def close(self) -> None:
        """Accept no more and close what is open; answers that are ready still leave."""
        if self._listening is not None:
            self._listening.close()
            self._listening = None
        for connection in self.connections:
            connection.flush()
            if connection.stream is not None:
                connection.stream.close()

    def _accept(self) -> Connection:
        self._next_id += 1
        connection = ServerConnection(
            self._next_id, self._doors, self._limits, self._serve, self._on_closed
        )
        connection.listener = self
        return connection

    def admits(self, connection: Connection) -> bool:
        """Take a new connection in; False when there are too many, of all or of its address."""
        if len(self._connections) >= self._connections_max:
            return self._refuse(connection, "max.connections")
        if self._per_address_max < len(self._connections) + 1:
            host = connection.peer.rpartition(":")[0]
            same = sum(each.peer.rpartition(":")[0] == host for each in self.connections)
            if same >= self._per_address_max:
                return self._refuse(connection, "max.connections.per.ip")
        self._connections[connection.id] = connection
        if not self._serving:
            connection.mute()
        return True

    def _refuse(self, connection: Connection, key: str) -> bool:
        if not self._limit_reported:
            self._limit_reported = True
            _log.warning("Connection of %s refused: %s is reached", connection.peer, key)
        return False

    def _serve(self, connection: Connection, frame: memoryview) -> None:
        try:
            self._on_request(connection, frame)
        except (ProtocolError, AssertionError):
            raise
        except Exception:  # noqa: BLE001
            _log.exception("Request of %s failed; its connection is closed", connection.peer)
            connection.abort()

    def _on_closed(self, connection: Connection, error: Exception | None) -> None:
        if self._connections.pop(connection.id, None) is not None:
            self._limit_reported = False
        if connection.malformed is not None:
            _log.warning("Connection of %s closed: %s", connection.peer, connection.malformed)
        elif error is not None:
            _log.debug("Connection of %s lost: %s", connection.peer, error)

    def _schedule_idle_check(self) -> None:
        delay_ms = min(self._idle_ms / _IDLE_CHECKS_PER_PERIOD, _IDLE_CHECK_MS_MAX)
        self._doors.timer.call_later(delay_ms, self._close_idle)

    def _close_idle(self) -> None:
        if self._listening is None:
            return
        for connection in self.connections:
            if connection.idle_ms() > self._idle_ms:
                connection.close()
        self._schedule_idle_check()


class ServerConnection(Connection):
    """A connection that asks its listener for admission once the peer is known."""

    __slots__ = ("listener",)

    listener: Listener

    def on_opened(self) -> None:
        """Cut it when there are too many."""
        super().on_opened()
        if not self.listener.admits(self):
            self.abort()
