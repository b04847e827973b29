"""Listener for one endpoint: accepts connections and counts them (Kafka's SocketServer).

This file has the broad `except` for errors in request handling. Such an error closes the connection
of that client and affects no other client. A failed assertion is not caught: it ends the process.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from barnabas.network.connection import Connection
from barnabas.network.connection_options import ConnectionDependencies, ConnectionLimits
from barnabas.network.principal import ANONYMOUS
from barnabas.protocol.errors import ProtocolError
from barnabas.runtime.line_limit import LineLimit
from barnabas.runtime.sockets import ListenOptions
from barnabas.runtime.tls.tls_error import TlsError
from barnabas.server.listeners.connection_admission import ConnectionAdmission, address_of
from barnabas.server.listeners.principal import UnknownPrincipalError

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.runtime.sockets import Listening, Sockets
    from barnabas.server.configs.endpoint import Endpoint
    from barnabas.server.listeners.tls_principals import TlsPrincipals
    from barnabas.server.quotas.connection_quotas import ConnectionQuotas
    from barnabas.settings.definition import ParsedConfig

_log = logging.getLogger(__name__)

_IDLE_CHECKS_PER_PERIOD = 2
_IDLE_CHECK_MS_MAX = 20_000
# Connections that one turn of the loop checks. A slice takes about 0.1 ms.
_IDLE_SLICE = 500


class Listener:
    """One bound endpoint and its open connections."""

    def __init__(
        self,
        endpoint: Endpoint,
        config: ParsedConfig,
        dependencies: ConnectionDependencies,
        quotas: ConnectionQuotas,
        on_request: Callable[[Connection, memoryview], None],
        principals: TlsPrincipals | None = None,
    ) -> None:
        """Store the dependencies.

        Args:
            endpoint: name and address of the listener.
            config: configuration at the start.
            dependencies: dependencies of connections.
            quotas: limits of connections.
            on_request: called with each request.
            principals: determines the principals of clients. If None, all clients are anonymous.
        """
        self._principals = principals
        self._endpoint = endpoint
        self._dependencies = dependencies
        self._quotas = quotas
        self._on_request = on_request
        self._limits = ConnectionLimits(config.integer("socket.request.max.bytes"))
        self._options = ListenOptions(
            config.integer("socket.listen.backlog.size"),
            config.integer("socket.send.buffer.bytes"),
            config.integer("socket.receive.buffer.bytes"),
            config.integer("barnabas.busy.poll.us"),
        )
        self._idle_ms = config.integer("connections.max.idle.ms")
        # The bound socket. None before `bind`, and after the listener stops accepting.
        self._line_limit = LineLimit(dependencies.clock, _log, "Failed connections")
        self._listening: Listening | None = None
        # Id of the next connection.
        self._next_id = 0
        # Admitted open connections by connection id. Connections that wait for admission are not
        # included.
        self._connections: dict[int, Connection] = {}
        self._admission = ConnectionAdmission(
            endpoint.name, quotas, dependencies, self._options.backlog, self._on_admitted
        )
        quotas.add_holder(endpoint.name, self._longest_silent)
        # Called for each connection when it is admitted, before it is read.
        self.on_admitted: Callable[[Connection], None] | None = None
        # Called for each admitted connection after it has closed.
        self.on_gone: Callable[[Connection], None] | None = None
        # Whether admitted connections are read. Set by `serve`; connections are accepted before.
        self._serving = False
        # Counts since the start. The `_gone` fields keep the bytes of closed connections.
        self.accepted = 0
        self.closed = 0
        self.idle_closed = 0
        self._bytes_in_gone = 0
        self._bytes_out_gone = 0

    def __len__(self) -> int:
        return len(self._connections)

    @property
    def name(self) -> str:
        """Name of the listener, for example "PLAINTEXT"."""
        return self._endpoint.name

    @property
    def waiting(self) -> int:
        """Number of connections that wait for admission."""
        return len(self._admission)

    @property
    def connections(self) -> list[Connection]:
        """All admitted open connections."""
        return list(self._connections.values())

    def bytes_in_and_out(self) -> tuple[int, int]:
        """Return the bytes received and sent over all connections since the start."""
        open_ones = self._connections.values()
        return (
            self._bytes_in_gone + sum(each.bytes_in for each in open_ones),
            self._bytes_out_gone + sum(each.bytes_out for each in open_ones),
        )

    def bind(self, sockets: Sockets) -> Endpoint:
        """Bind the endpoint and accept connections, which are not read until `serve`.

        Returns:
            The endpoint with its real port.

        Raises:
            OSError: the address cannot be bound.
        """
        self._listening = sockets.listen(
            self._endpoint.host, self._endpoint.port, self._accept, self._options
        )
        self._endpoint = self._endpoint._replace(port=self._listening.port)
        self._schedule_idle_check()
        return self._endpoint

    def serve(self) -> None:
        """Begin to read from the open connections and from all later connections."""
        self._serving = True
        for connection in self.connections:
            connection.unmute()

    def drain(self) -> None:
        """Stop accepting and reading. Each connection closes after its pending responses."""
        self._stop_accepting()
        self._admission.close()
        for connection in self.connections:
            connection.close()

    def close(self) -> None:
        """Close all connections. Try to write the responses that are complete."""
        self._stop_accepting()
        self._admission.close()
        for connection in self.connections:
            connection.flush()
            if connection.stream is not None:
                connection.stream.close()

    def _stop_accepting(self) -> None:
        if self._listening is not None:
            self._listening.close()
            self._listening = None

    def _accept(self) -> Connection:
        self._next_id += 1
        connection = ServerConnection(
            self._next_id, self._dependencies, self._limits, self._serve, self._on_closed
        )
        connection.admission = self._admission
        return connection

    def _on_admitted(self, connection: Connection) -> None:
        self.accepted += 1
        self._connections[connection.id] = connection
        if self.on_admitted is not None:
            self.on_admitted(connection)
        if not self._serving:
            connection.mute()

    def _serve(self, connection: Connection, frame: memoryview) -> None:
        if connection.principal is None and not self._identify(connection):
            return
        try:
            self._on_request(connection, frame)
        except (ProtocolError, AssertionError):
            raise
        except Exception:  # noqa: BLE001 - only this connection fails
            _log.exception("Request failed, connection closed: client=%s", connection.peer)
            connection.abort()

    def _identify(self, connection: Connection) -> bool:
        """Determine the principal at the client's first request. Return whether it is known."""
        if self._principals is None:
            connection.principal = ANONYMOUS
            return True
        try:
            connection.principal = self._principals.identify(connection)
        except UnknownPrincipalError as error:
            if self._line_limit.allows("no principal"):
                _log.warning(
                    "Connection closed: listener=%s client=%s error=%s",
                    self.name,
                    connection.peer,
                    error,
                )
            connection.abort()
            return False
        return True

    def _on_closed(self, connection: Connection, error: Exception | None) -> None:
        if self._connections.pop(connection.id, None) is not None:
            self.closed += 1
            self._bytes_in_gone += connection.bytes_in
            self._bytes_out_gone += connection.bytes_out
            self._quotas.closed(self._endpoint.name, address_of(connection.peer))
            if self.on_gone is not None:
                self.on_gone(connection)
        else:
            self._admission.leave(connection)
        if connection.malformed is not None:
            if self._line_limit.allows("malformed"):
                _log.warning(
                    "Connection closed: client=%s error=%s", connection.peer, connection.malformed
                )
        elif isinstance(error, TlsError):
            if self._line_limit.allows(str(error)):
                _log.warning(
                    "TLS failed, connection closed: listener=%s client=%s reason=%s",
                    self.name,
                    connection.peer,
                    error,
                )
        elif error is not None:
            _log.debug("Connection lost: client=%s error=%s", connection.peer, error)

    def _longest_silent(self) -> Connection | None:
        return min(self._connections.values(), key=lambda each: each.last_activity_ms, default=None)

    def _schedule_idle_check(self) -> None:
        delay_ms: float = _IDLE_CHECK_MS_MAX
        if self._idle_ms > 0:
            delay_ms = min(self._idle_ms / _IDLE_CHECKS_PER_PERIOD, delay_ms)
        self._dependencies.timer.call_later(delay_ms, self._begin_idle_check)

    def _begin_idle_check(self) -> None:
        self._close_idle(self.connections)

    def _close_idle(self, unchecked: list[Connection]) -> None:
        """Close the idle connections of one slice, and continue with the rest in the next turn.

        Connections whose clients have not authenticated in time are closed, too.
        """
        if self._listening is None:
            return
        now_ms = self._dependencies.clock.monotonic_ms()
        checked = 0
        try:
            for connection in unchecked[:_IDLE_SLICE]:
                checked += 1
                if connection.login_due_ms < now_ms:
                    _log.info("Connection closed before its login: client=%s", connection.peer)
                    connection.abort()
                elif 0 < self._idle_ms < connection.idle_ms():
                    self._close_idle_one(connection)
        finally:
            # After an exception, the check continues with the next connection.
            rest = unchecked[checked:]
            if rest:
                self._dependencies.timer.call_soon(lambda: self._close_idle(rest))
            else:
                self._schedule_idle_check()

    def _close_idle_one(self, connection: Connection) -> None:
        if connection.is_open:
            self.idle_closed += 1
            connection.close()
        else:
            # The connection was closed earlier, but the client does not read the remaining
            # responses.
            connection.abort()


class ServerConnection(Connection):
    """A connection that requests admission once the address of its client is known."""

    __slots__ = ("admission",)

    admission: ConnectionAdmission

    def on_opened(self) -> None:
        """Request admission, which may be granted immediately."""
        super().on_opened()
        self.admission.arrive(self)
