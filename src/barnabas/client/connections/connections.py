"""Calls over one connection per broker: version negotiation and error messages.

A connection is usable after the ApiVersions response. `ConnectionPool` connects, backs off and
closes idle connections. This module adds API versions and converts network errors to `ClientError`.

Responses are validated where they are used. `deliver_response` handles exceptions that the
validation has missed. Without it such an exception would be lost in the event loop, and the call
would never end.

A request with a response counts as in flight until the response arrives. A Produce request with
acks=0 has no response: `OutputGauge` bounds these requests. Such a request is done when the
buffered output is at most the stream's low-water mark; in Kafka's client it is done when its last
byte is written.

Sources: KIP-35, KIP-511.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from msgspec.structs import replace

from barnabas.client.connections.versions import VersionTable
from barnabas.client.errors import (
    AuthenticationError,
    ClientClosedError,
    ClientConfigError,
    ClientError,
    DisconnectedError,
    TlsFailedError,
    UnreachableBrokerError,
    UnsendableRequestError,
    UnsupportedVersionError,
    UnusableResponseError,
)
from barnabas.network.connection_pool import ConnectionPool, Node, PoolSettings
from barnabas.network.network_error import FOREIGN_PROTOCOLS, NetworkError, NetworkErrorKind
from barnabas.network.reconnect_backoff import ReconnectBackoff
from barnabas.protocol.errors import ErrorCode, ProtocolError
from barnabas.protocol.messages.connection import ApiVersionsRequest, ApiVersionsResponse
from barnabas.runtime.sockets import USUAL_OPTIONS
from barnabas.version import __version__

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.client.config import ClientConfig
    from barnabas.client.connections.metadata_cache import NodeInfo
    from barnabas.client.errors import NoBrokersError
    from barnabas.network.channel import Channel
    from barnabas.protocol.api_keys import ApiKey
    from barnabas.protocol.schema import Message
    from barnabas.runtime.clock import Cancellable
    from barnabas.runtime.loop import Runtime
    from barnabas.runtime.sockets import Listening, ListenOptions, Sockets, Stream, StreamHandler
    from barnabas.sasl.client_login import ClientLogin


__all__ = [
    "SOFTWARE_NAME",
    "SOFTWARE_VERSION",
    "Call",
    "Connections",
    "OutputGauge",
    "deliver_response",
]

T = TypeVar("T")
_log = logging.getLogger(__name__)
SOFTWARE_NAME = "barnabas"
SOFTWARE_VERSION = __version__
_API_VERSIONS_FIRST = 3
# Upper estimate of a fetch response's size without its records.
_RESPONSE_OVERHEAD_BYTES = 1 << 20
_MAY_WANT_SASL = (
    " after ApiVersions; if the listener wants a login, set security.protocol=SASL_PLAINTEXT, "
    "sasl.mechanism, sasl.username and sasl.password"
)


def deliver_response(
    on_done: Callable[[T | None, ClientError | None], None], result: T, api_name: str, address: str
) -> None:
    """Call `on_done(result, None)`; if that raises, log it and call `on_done` with an error.

    Args:
        on_done: The callback of the caller.
        result: The result.
        api_name: The API of the request, for the error.
        address: The address of the broker that responded.
    """
    try:
        on_done(result, None)
    except Exception as error:  # noqa: BLE001 - passed to on_done
        _log.error("response not usable: api=%s broker=%s", api_name, address, exc_info=error)
        on_done(None, UnusableResponseError(address, api_name, error))


class OutputGauge:
    """Wraps the sockets and observes how full each outgoing connection is."""

    def __init__(self, sockets: Sockets) -> None:
        self._sockets = sockets
        # Established connections: added when connected, removed when closed.
        self._watched: dict[StreamHandler, _Watched] = {}

    def listen(
        self,
        host: str,
        port: int,
        factory: Callable[[], StreamHandler],
        options: ListenOptions = USUAL_OPTIONS,
    ) -> Listening:
        """Listen as the wrapped sockets do."""
        return self._sockets.listen(host, port, factory, options)

    def connect(
        self,
        host: str,
        port: int,
        handler: StreamHandler,
        on_failed: Callable[[OSError], None],
        timeout_ms: float,
    ) -> Cancellable:
        """Connect as the wrapped sockets do, and observe the connection."""
        watched = _Watched(handler, self._watched)
        return self._sockets.connect(host, port, watched, on_failed, timeout_ms)

    def when_drained(self, handler: StreamHandler, on_drained: Callable[[bool], None]) -> None:
        """Call `on_drained(True)` when the handler's connection has room, possibly at once.

        `on_drained(False)` means that the connection is closed and buffered output is lost.
        """
        watched = self._watched.get(handler)
        if watched is None:
            on_drained(False)
        elif watched.writable:
            on_drained(True)
        else:
            watched.waiting.append(on_drained)


class _Watched:
    """Wraps a handler to observe its stream."""

    __slots__ = ("_connections", "_handler", "get_buffer", "on_received", "waiting", "writable")

    def __init__(self, handler: StreamHandler, connections: dict[StreamHandler, _Watched]) -> None:
        self._handler = handler
        self._connections = connections
        self.get_buffer = handler.get_buffer
        self.on_received = handler.on_received
        self.writable = True
        # Callbacks of requests that wait for room, oldest first.
        self.waiting: list[Callable[[bool], None]] = []

    def on_connected(self, stream: Stream) -> None:
        self._connections[self._handler] = self
        self._handler.on_connected(stream)

    def on_writable_changed(self, writable: bool) -> None:
        self.writable = writable
        self._handler.on_writable_changed(writable)
        if writable:
            self._report(drained=True)

    def on_closed(self, error: Exception | None) -> None:
        self._connections.pop(self._handler, None)
        self._handler.on_closed(error)
        self._report(drained=False)

    def _report(self, *, drained: bool) -> None:
        waiting, self.waiting = self.waiting, []
        for on_drained in waiting:
            on_drained(drained)


def client_sockets(runtime: Runtime, config: ClientConfig) -> Sockets:
    """Return the sockets for connections to brokers.

    Raises:
        ClientConfigError: a key store or another TLS option cannot be used.
    """
    if config.security_protocol in ("PLAINTEXT", "SASL_PLAINTEXT"):
        return runtime.sockets
    # Imported only if TLS is configured.
    from barnabas.client.tls_config import client_tls_options
    from barnabas.runtime.tls.contexts import client_context
    from barnabas.runtime.tls.handshakes import Handshakes
    from barnabas.runtime.tls.tls_options import TlsOptionsError
    from barnabas.runtime.tls.tls_sockets import TlsSockets
    from barnabas.runtime.tls.tls_stream import TlsDependencies

    try:
        context = client_context(client_tls_options(config))
    except TlsOptionsError as error:
        raise ClientConfigError(str(error)) from None
    handshakes = Handshakes(runtime.clock, runtime.timer, runtime.executor)
    dependencies = TlsDependencies(runtime.timer, handshakes)
    return TlsSockets(runtime.sockets, dependencies, lambda: context, lambda: context)


class Call(NamedTuple):
    """A request, built once the API version is known, and the callback for its response."""

    api_key: ApiKey
    # Builds the request for the negotiated version.
    build: Callable[[int], Message]
    # Called once with (response, None), (None, error), or (None, None) if no response is expected.
    # If it raises for a response, it is called again with an `UnusableResponseError`. Views into
    # the response are invalid after it returns.
    on_done: Callable[[Message | None, ClientError | None], None]
    # Timeout of the request (ms); None for request.timeout.ms.
    timeout_ms: float | None = None
    # An additional upper limit of the API version; None for no limit.
    max_version: int | None = None
    # Whether a response is expected; False only for Produce with acks=0.
    expects_response: bool = True


class Connections:
    """The connections of one client."""

    def __init__(self, runtime: Runtime, config: ClientConfig) -> None:
        self._config = config
        self._timer = runtime.timer
        settings = PoolSettings(
            client_id=config.client_id,
            connect_timeout_ms=config.socket_connection_setup_timeout_ms,
            idle_max_ms=config.connections_max_idle_ms,
            backoff=ReconnectBackoff(config.reconnect_backoff_ms, config.reconnect_backoff_max_ms),
            # Each connection keeps a receive buffer for the largest fetch response that the client
            # requests.
            kept_frame_bytes_max=config.fetch_max_bytes + _RESPONSE_OVERHEAD_BYTES,
            login=_login(config, runtime),
        )
        self._gauge = OutputGauge(client_sockets(runtime, config))
        watched = replace(runtime, sockets=self._gauge)
        self._pool = ConnectionPool(watched, settings, self._prepare)
        # Addresses whose response to ApiVersions v3 was not understood. Brokers before 2.4 respond
        # in version 0, so the next attempt uses version 0.
        self._old: set[str] = set()
        # Finalized features by name, from the response with the highest features epoch (KIP-584).
        self.features: dict[str, int] = {}
        self._features_epoch = -1
        # Addresses that have responded at least once, in order.
        self._responded: dict[str, None] = {}
        # Addresses that have responded to other requests than ApiVersions.
        self._served: set[str] = set()
        # The newest error of each broker address in the metadata that has never responded.
        self.unreachable: dict[str, UnreachableBrokerError] = {}
        # Why the last call to any broker reached none; None after any broker has responded.
        self.outage: NoBrokersError | None = None
        self._closed = False

    def is_ready(self, info: NodeInfo) -> bool:
        """Return whether a call would be sent at once."""
        return self._pool.ready_channel(info.id) is not None

    def is_backing_off(self, info: NodeInfo) -> bool:
        """Return whether a call would wait for the next connection attempt."""
        return self._pool.is_backing_off(info.id)

    def call(self, info: NodeInfo, call: Call) -> None:
        """Send a request to a broker; connect first if necessary."""

        def on_ready(channel: Channel | None, error: NetworkError | None) -> None:
            if channel is None:
                assert error is not None
                call.on_done(None, self._not_reached(info, error))
            else:
                self._send(channel, info.address, call)

        self._pool.acquire(Node(info.id, info.host, info.port), on_ready)

    def drop_when_unused(self, node_id: int) -> None:
        """Close an unneeded connection in the next turn of the loop, if no request is in flight."""

        def drop() -> None:
            channel = self._pool.ready_channel(node_id)
            if channel is not None and channel.in_flight == 0:
                self._pool.drop(node_id)

        self._timer.call_soon(drop)

    def drop(self, node_id: int) -> None:
        """Close a connection at once; calls in flight end with an error."""
        self._pool.drop(node_id)

    def note_outage(self, error: NoBrokersError) -> None:
        """Record that no broker was reached; log it only once per outage."""
        if self.outage is None and not self._closed:
            _log.warning("%s", error)
        self.outage = error

    def _end_outage(self, address: str) -> None:
        if self.outage is not None:
            self.outage = None
            _log.info("the broker responds again: address=%s", address)

    def close(self) -> None:
        """Close all connections; calls in flight end with `ClientClosedError`."""
        self._closed = True
        self._pool.close()

    def _send(self, channel: Channel, address: str, call: Call) -> None:
        table = VersionTable(channel.versions)
        version = table.choose(call.api_key, call.max_version)
        if version is None:
            reason = table.explain(call.api_key)
            call.on_done(None, UnsupportedVersionError(address, call.api_key.name, reason))
            return
        timeout_ms = self._config.request_timeout_ms if call.timeout_ms is None else call.timeout_ms

        def on_response(response: Message | None, error: NetworkError | None) -> None:
            if response is not None:
                if address not in self._served:
                    self._served.add(address)
                deliver_response(call.on_done, response, call.api_key.name, address)
            else:
                assert error is not None
                call.on_done(None, self._translated(address, error))

        expected = on_response if call.expects_response else None
        try:
            channel.send(call.build(version), version, expected, timeout_ms)
        except ProtocolError as error:
            reason = f"version {version} cannot carry the request: {error}"
            call.on_done(None, UnsupportedVersionError(address, call.api_key.name, reason))
            return
        except Exception as error:  # noqa: BLE001 - passed to on_done
            call.on_done(None, UnsendableRequestError(call.api_key.name, error))
            return
        if not call.expects_response:
            # In the next turn of the loop the request has been written to the stream.
            self._timer.call_soon(lambda: self._when_sent(channel, address, call))

    def _when_sent(self, channel: Channel, address: str, call: Call) -> None:
        """End a call without a response once its connection can accept the next request."""

        def on_drained(drained: bool) -> None:
            if drained:
                call.on_done(None, None)
            elif self._closed:
                call.on_done(None, ClientClosedError("the client was closed"))
            else:
                error = DisconnectedError(address, "the connection ended before all was sent")
                call.on_done(None, error)

        self._gauge.when_drained(channel, on_drained)

    def _prepare(self, channel: Channel, done: Callable[[NetworkError | None], None]) -> None:
        """Negotiate API versions on a new connection, before other requests are sent."""
        version = 0 if channel.address in self._old else _API_VERSIONS_FIRST
        request = ApiVersionsRequest(
            client_software_name=SOFTWARE_NAME, client_software_version=SOFTWARE_VERSION
        )

        def on_response(response: Any, error: NetworkError | None) -> None:
            if error is not None:
                if error.kind is NetworkErrorKind.MALFORMED and version:
                    self._old.add(channel.address)
                done(error)
                return
            assert isinstance(response, ApiVersionsResponse)
            if response.error_code == ErrorCode.UNSUPPORTED_VERSION and version:
                self._old.add(channel.address)
                self._prepare(channel, done)
            elif response.error_code:
                code = response.error_code
                detail = f"{channel.address}: ApiVersions returned error code {code}"
                done(NetworkError(NetworkErrorKind.MALFORMED, detail))
            else:
                channel.versions = {
                    entry.api_key: (entry.min_version, entry.max_version)
                    for entry in response.api_keys
                }
                self._note_features(response)
                self._responded[channel.address] = None
                self.unreachable.pop(channel.address, None)
                self._end_outage(channel.address)
                done(None)

        channel.send(request, version, on_response, self._config.request_timeout_ms)

    def _note_features(self, response: ApiVersionsResponse) -> None:
        if response.finalized_features_epoch > self._features_epoch:
            self._features_epoch = response.finalized_features_epoch
            self.features = {
                feature.name: feature.max_version_level for feature in response.finalized_features
            }

    def _not_reached(self, info: NodeInfo, error: NetworkError) -> ClientError:
        """Return the error for a broker to which no connection could be made."""
        plain = self._translated(info.address, error)
        if error.kind is NetworkErrorKind.CLOSED:
            # The client closed the connection itself.
            return plain
        if info.id < 0 or info.address in self._responded:
            return plain
        if not isinstance(plain, DisconnectedError) or isinstance(plain, TlsFailedError):
            return plain
        bootstrap = [f"{host}:{port}" for host, port in self._config.bootstrap_servers]
        found = UnreachableBrokerError(
            info.id, info.address, plain.reason, bootstrap, list(self._responded)
        )
        if info.address not in self.unreachable:
            # Log it once, because connection attempts repeat.
            _log.warning("%s", found)
        self.unreachable[info.address] = found
        return found

    def _translated(self, address: str, error: NetworkError) -> ClientError:
        if self._closed:
            return ClientClosedError("the client was closed")
        reason = error.detail.removeprefix(f"{address}: ")
        if error.kind is NetworkErrorKind.NOT_AUTHENTICATED:
            return AuthenticationError(address, reason)
        if (
            error.kind is NetworkErrorKind.DISCONNECTED
            and address in self._responded
            and address not in self._served
            and self._config.security_protocol == "PLAINTEXT"
        ):
            # Kafka's listeners with SASL answer ApiVersions, and close at another request.
            reason += _MAY_WANT_SASL
        if error.kind is NetworkErrorKind.MALFORMED:
            if reason not in FOREIGN_PROTOCOLS:
                reason = f"the listener does not speak Kafka's protocol: {reason}"
        elif error.kind is NetworkErrorKind.TLS_FAILED:
            return TlsFailedError(address, reason)
        elif error.kind is NetworkErrorKind.CLOSED:
            reason = "the connection was closed"
        return DisconnectedError(address, reason)


def _login(config: ClientConfig, runtime: Runtime) -> ClientLogin | None:
    """Return the credentials of the client; None if it does not log in."""
    if not config.security_protocol.startswith("SASL_"):
        return None
    # Imported only for clients that log in.
    from barnabas.client.sasl import client_login

    return client_login(config, runtime)
