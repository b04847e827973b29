"""Listener for one endpoint: accepts, admits and counts connections (Kafka's SocketServer).

Above a limit or a rate, new connections wait in a queue. Kafka stops accepting connections in this
case, so that they wait in the kernel's queue. This broker accepts the connections but does not read
from them, which clients cannot distinguish. The queue is as long as the kernel's queue. Further
connections are closed.
"""

from __future__ import annotations

import logging
from functools import lru_cache
from typing import TYPE_CHECKING

from barnabas.network.connection import Connection
from barnabas.network.connection_limits import ConnectionDependencies, ConnectionLimits
from barnabas.network.principal import ANONYMOUS, UnknownPrincipalError
from barnabas.protocol.codec import decode_request_header
from barnabas.runtime.line_limit import LineLimit
from barnabas.runtime.sockets import ListenOptions
from barnabas.runtime.tls.tls_error import TlsError
from barnabas.server.listeners.client_traffic import CLIENT_ID_CHARS_MAX, ClientTraffic

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.runtime.clock import Cancellable
    from barnabas.runtime.sockets import Listening, Sockets
    from barnabas.server.configs.endpoints import Endpoint
    from barnabas.server.listeners.client_traffic import ClientKey, Traffic
    from barnabas.server.listeners.tls_principals import TlsPrincipals
    from barnabas.server.quotas.connection_quotas import ConnectionQuotas
    from barnabas.settings.definition import ParsedConfig


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
        self._client_traffic = ClientTraffic()

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

    def traffic_by_client(self) -> dict[ClientKey, Traffic]:
        """Return requests and bytes by client since the start."""
        return self._client_traffic.with_open(self._connections.values())

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
            self._next_id, self._dependencies, self._limits, self._serve_first, self._on_closed
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

    def _serve_first(self, connection: Connection, frame: memoryview) -> None:
        """Determine the client at the first request, and serve this and all later requests."""
        if self._identify(connection):
            client_id = decode_request_header(frame)[3] or ""
            connection.client_id = client_id[:CLIENT_ID_CHARS_MAX]
            connection.on_request = self._on_request
            self._on_request(connection, frame)

    def _identify(self, connection: Connection) -> bool:
        """Determine the principal of a client. Return whether it is known."""
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
            self._client_traffic.on_gone(connection)
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
