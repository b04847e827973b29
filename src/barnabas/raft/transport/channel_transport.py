"""Sends the requests of this replica to other replicas, over one connection per destination.

A new connection first exchanges ApiVersions. Each request then uses the latest version that both
sides support. A request usually ends in one response or one `RequestFailed`. It ends in neither if
its deadline passes before the connection is ready; the core sends again after its own timeout.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from barnabas.network.connection_pool import ConnectionPool, Node, PoolSettings
from barnabas.network.network_error import NetworkError, NetworkErrorKind
from barnabas.network.reconnect_backoff import NODE_BACKOFF
from barnabas.protocol.api_keys import last_stable_version, schema_versions
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.connection import ApiVersionsResponse
from barnabas.raft.core import messages as core
from barnabas.raft.transport.conversion import (
    api_key_of,
    api_versions_request,
    core_response,
    request_message,
)
from barnabas.raft.transport.fields import UnusableResponseError
from barnabas.raft.transport.transport import TransportStatistics
from barnabas.runtime.line_limit import LineLimit

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.network.channel import Channel
    from barnabas.protocol.api_table import ApiKey
    from barnabas.raft.config import RaftConfig
    from barnabas.raft.core.messages import Message, Request
    from barnabas.raft.voter_set import Address
    from barnabas.runtime.loop import Runtime
    from barnabas.sasl.client_login import ClientLogin

_log = logging.getLogger(__name__)

# The first version that includes features with a minimum level of 0, such as kraft.version.
_API_VERSIONS_VERSION = 4
# The peer refused the connection or closed it.
_UNREACHABLE = (NetworkErrorKind.CONNECT_FAILED, NetworkErrorKind.DISCONNECTED)


class _Sending(msgspec.Struct, frozen=True):
    """A request that waits for a connection."""

    request: Request
    # When the core stops waiting for the response, monotonic ms.
    deadline_ms: float


class ChannelTransport:
    """The `RaftTransport` that uses network connections."""

    def __init__(
        self, runtime: Runtime, config: RaftConfig, login: ClientLogin | None = None
    ) -> None:
        """Create the transport without a connection.

        Args:
            runtime: clock, timer and sockets.
            config: identity and timeouts of this replica.
            login: credentials for the other replicas; None: no login.
        """
        self._clock = runtime.clock
        self._timer = runtime.timer
        self._config = config
        settings = PoolSettings(
            client_id=f"raft-client-{config.node_id}",
            connect_timeout_ms=config.request_timeout_ms,
            backoff=NODE_BACKOFF,
            login=login,
        )
        self._pool = ConnectionPool(runtime, settings, self._prepare)
        self._receive: Callable[[Message], None] | None = None
        self._is_closed = False
        self._line_limit = LineLimit(runtime.clock, _log, "Unusable responses of voters", 1)
        # Error of the last response if it had nothing else, such as that of a refused request.
        self.refusal = ErrorCode.NONE
        # Counters: connections created, requests sent, responses received.
        self._created = self._requests = self._responses = 0

    def start(self, receive: Callable[[Message], None]) -> None:
        """Set the callback that receives responses and failures."""
        self._receive = receive

    def send(self, destination: int, address: Address | None, request: Request) -> None:
        """Send a request. The result is never delivered before this returns."""
        if address is None:
            self._timer.call_soon(partial(self._fail, request, False))
            return
        sending = _Sending(request, self._clock.monotonic_ms() + self._config.request_timeout_ms)
        node = Node(destination, address.host, address.port)
        self._pool.acquire(node, partial(self._on_ready, sending))

    def statistics(self) -> TransportStatistics:
        """Return the current counters."""
        return TransportStatistics(
            self._pool.ready_count, self._created, self._requests, self._responses
        )

    def close(self) -> None:
        """Close all connections. After this call no result is delivered."""
        self._is_closed = True
        self._pool.close()

    def _on_ready(
        self, sending: _Sending, channel: Channel | None, error: NetworkError | None
    ) -> None:
        request = sending.request
        if channel is None:
            assert error is not None
            self._timer.call_soon(partial(self._fail, request, error.kind in _UNREACHABLE))
            return
        left_ms = sending.deadline_ms - self._clock.monotonic_ms()
        if left_ms <= 0:
            # The core's request has timed out, and the core may send another request meanwhile.
            return
        api_key = api_key_of(request)
        version = _version(api_key, channel)
        if version is None:
            if self._line_limit.allows(f"{channel.address} {api_key.name}"):
                _log.warning(
                    "API is not supported by a voter: address=%s api=%s",
                    channel.address,
                    api_key.name,
                )
            self._timer.call_soon(partial(self._fail, request, False))
            return
        message = request_message(request, version, self._config)
        self._requests += 1
        channel.send(message, version, partial(self._on_response, request), left_ms)

    def _on_response(self, request: Request, response: Any, error: NetworkError | None) -> None:
        if self._is_closed or self._receive is None:
            return
        if error is not None:
            self._fail(request, error.kind in _UNREACHABLE)
            return
        self._responses += 1
        try:
            converted = core_response(response, request.token, self._config.listener_name)
        except UnusableResponseError as unusable:
            self.refusal = unusable.error
            if self._line_limit.allows(str(unusable)):
                _log.warning("Response of a voter cannot be used: error=%s", unusable)
            self._receive(core.RequestFailed(request.token, is_refused=True))
            return
        if not isinstance(request, core.SupportedVersionsRequest):
            # That request needs no rights, so its response does not end a refusal.
            self.refusal = ErrorCode.NONE
        self._receive(converted)

    def _fail(self, request: Request, is_unreachable: bool) -> None:
        if not self._is_closed and self._receive is not None:
            self._receive(core.RequestFailed(request.token, is_unreachable))

    def _prepare(self, channel: Channel, done: Callable[[NetworkError | None], None]) -> None:
        """Request the peer's supported versions before any other request is sent."""
        self._created += 1

        def on_response(response: Any, error: NetworkError | None) -> None:
            if error is not None:
                done(error)
                return
            assert isinstance(response, ApiVersionsResponse)
            if response.error_code:
                detail = f"{channel.address}: ApiVersions returned error code {response.error_code}"
                done(NetworkError(NetworkErrorKind.MALFORMED, detail))
                return
            channel.versions = {
                each.api_key: (each.min_version, each.max_version) for each in response.api_keys
            }
            done(None)

        request = api_versions_request()
        channel.send(request, _API_VERSIONS_VERSION, on_response, self._config.request_timeout_ms)


def _version(api_key: ApiKey, channel: Channel) -> int | None:
    """Return the latest version that both sides support; None if there is none."""
    lowest, highest = channel.versions.get(api_key, (0, -1))
    version = min(highest, last_stable_version(api_key))
    return version if version >= max(lowest, schema_versions(api_key)[0]) else None
