"""Connections from a follower to the leaders of its partitions.

Each fetcher has its own connection, as in Kafka. Responses on one connection arrive in order, so a
pending fetch would block all later requests on a shared connection.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from barnabas.network.channel import Channel
from barnabas.network.network_error import NetworkError, NetworkErrorKind

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.network.channel import ChannelDependencies
    from barnabas.protocol.schema import Message

    # Called with (response, None) or (None, error).
    OnResponse: TypeAlias = Callable[[Any, NetworkError | None], None]
    # Returns host and port of a broker's inter-broker listener, or None if there is none now.
    EndpointOf: TypeAlias = Callable[[int], tuple[str, int] | None]


class LeaderChannel(Protocol):
    """A connection to one broker, opened when the first request is sent."""

    @property
    def is_connected(self) -> bool:
        """Whether the connection is open."""
        ...

    @property
    def connections_created(self) -> int:
        """Number of connections that were opened. Only increases."""
        ...

    def send(
        self, request: Message, version: int, on_response: OnResponse, timeout_ms: float
    ) -> None:
        """Send a request after the response to the previous request.

        Args:
            request: any request that the leader serves.
            version: the version in which the request is encoded.
            on_response: called once, with (response, None) or (None, error), never before `send`
                returns. The error has the kind NOT_SENT if the request cannot be encoded. Views in
                the response are invalid after the callback returns.
            timeout_ms: after this time the request and the connection fail.
        """
        ...

    def close(self) -> None:
        """Close the connection; `send` opens a new one. Pending requests may still fail later."""
        ...


class LeaderChannels(Protocol):
    """Opens connections to other brokers. `PeerChannels` implements it."""

    def open(self, broker_id: int, client_id: str) -> LeaderChannel:
        """Return a dedicated channel to a broker, not yet connected."""
        ...


class PeerChannels:
    """Opens network connections to the brokers' listeners in the latest metadata."""

    __slots__ = ("_connect_timeout_ms", "_dependencies", "_endpoint_of", "_on_lost")

    def __init__(
        self,
        dependencies: ChannelDependencies,
        endpoint_of: EndpointOf,
        on_lost: Callable[[int], None],
        connect_timeout_ms: float = 10_000.0,
    ) -> None:
        """Create the factory.

        Args:
            dependencies: network and timers.
            endpoint_of: returns the address of a broker; called for each new connection.
            on_lost: called with the broker id when the peer closes or resets a connection.
            connect_timeout_ms: limit of the time to connect, in ms.
        """
        self._dependencies = dependencies
        self._endpoint_of = endpoint_of
        self._on_lost = on_lost
        self._connect_timeout_ms = connect_timeout_ms

    def open(self, broker_id: int, client_id: str) -> PeerChannel:
        """Return a dedicated channel to a broker, not yet connected."""
        endpoint_of = partial(self._endpoint_of, broker_id)
        on_lost = partial(self._on_lost, broker_id)
        return PeerChannel(
            self._dependencies, client_id, endpoint_of, on_lost, self._connect_timeout_ms
        )


class PeerChannel:
    """A connection to one broker, reopened after it closes."""

    __slots__ = (
        "_channel",
        "_client_id",
        "_connect_timeout_ms",
        "_dependencies",
        "_endpoint",
        "_on_lost",
        "connections_created",
    )

    def __init__(
        self,
        dependencies: ChannelDependencies,
        client_id: str,
        endpoint: Callable[[], tuple[str, int] | None],
        on_lost: Callable[[], None],
        connect_timeout_ms: float,
    ) -> None:
        self._dependencies = dependencies
        self._client_id = client_id
        self._endpoint = endpoint
        self._on_lost = on_lost
        self._connect_timeout_ms = connect_timeout_ms
        # The open or connecting channel, or None.
        self._channel: Channel | None = None
        # Number of connections that were opened. Only increases.
        self.connections_created = 0

    @property
    def is_connected(self) -> bool:
        """Whether the connection is open."""
        return self._channel is not None and self._channel.is_open

    def send(
        self, request: Message, version: int, on_response: OnResponse, timeout_ms: float
    ) -> None:
        """Send a request, see `LeaderChannel`."""
        channel = self._channel
        if channel is not None and channel.is_open:
            self._send_on(channel, request, version, on_response, timeout_ms)
            return
        endpoint = self._endpoint()
        if endpoint is None:
            unknown = NetworkError(NetworkErrorKind.CONNECT_FAILED, "the broker has no address")
            self._dependencies.timer.call_soon(partial(on_response, None, unknown))
            return
        channel = self._channel = Channel(self._dependencies, self._client_id, self._on_closed)

        def connected(error: NetworkError | None) -> None:
            if self._channel is not channel:
                return
            if error is None:
                self.connections_created += 1
                self._send_on(channel, request, version, on_response, timeout_ms)
            else:
                self._channel = None
                on_response(None, error)

        channel.connect(*endpoint, self._connect_timeout_ms, connected)

    def _send_on(
        self,
        channel: Channel,
        request: Message,
        version: int,
        on_response: OnResponse,
        timeout_ms: float,
    ) -> None:
        """Send a request on an open connection. An exception is the result of the request."""
        try:
            channel.send(request, version, on_response, timeout_ms)
        except Exception as error:  # noqa: BLE001 - only this request fails
            detail = f"{type(request).__name__} version {version}: {error}"
            failed = NetworkError(NetworkErrorKind.NOT_SENT, detail)
            self._dependencies.timer.call_soon(partial(on_response, None, failed))

    def close(self) -> None:
        """Close the connection, see `LeaderChannel`."""
        channel, self._channel = self._channel, None
        if channel is not None:
            channel.close()

    def _on_closed(self, channel: Channel, reason: NetworkError) -> None:
        if self._channel is channel:
            self._channel = None
        # The callback of a pending request may have closed this channel first.
        if reason.kind is NetworkErrorKind.DISCONNECTED:
            self._on_lost()
