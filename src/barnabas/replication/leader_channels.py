"""How a follower reaches the leaders of its partitions.

Each fetcher has a connection of its own, as in Kafka: answers of one connection come in order, and
that of a fetch which waits for data would hold up everybody else's.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from barnabas.network.channel import Channel
from barnabas.network.network_error import NetworkError, NetworkErrorKind

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.network.channel import ChannelDoors
    from barnabas.protocol.schema import Message

    # Called with (response, None) or (None, error).
    OnResponse: TypeAlias = Callable[[Any, NetworkError | None], None]
    # Host and port of a broker's listener for its peers; None if it has none now.
    EndpointOf: TypeAlias = Callable[[int], tuple[str, int] | None]


class LeaderChannel(Protocol):
    """A connection to one broker, made when there is something to send."""

    def send(
        self, request: Message, version: int, on_response: OnResponse, timeout_ms: float
    ) -> None:
        """Send a request, when the one before it has been answered.

        Args:
            on_response: called once, with (response, None) or (None, error), never before this
                returns. Views in the response die when it returns.
            timeout_ms: after this the request and the connection fail.
        """
        ...

    def close(self) -> None:
        """Cut the connection; `send` makes a new one. What is pending may still fail later."""
        ...


class LeaderChannels(Protocol):
    """The way to other brokers; implemented here, and joined by whoever knows their addresses."""

    def open(self, broker_id: int, client_id: str) -> LeaderChannel:
        """A channel of one's own to a broker; nothing is connected yet."""
        ...


class PeerChannels:
    """Channels over the network, to where the newest metadata says that a broker listens."""

    __slots__ = ("_connect_timeout_ms", "_doors", "_endpoint_of")

    def __init__(
        self, doors: ChannelDoors, endpoint_of: EndpointOf, connect_timeout_ms: float = 10_000.0
    ) -> None:
        """Args:
        endpoint_of: asked anew for each connection.
        """
        self._doors = doors
        self._endpoint_of = endpoint_of
        self._connect_timeout_ms = connect_timeout_ms

    def open(self, broker_id: int, client_id: str) -> PeerChannel:
        """A channel of one's own to a broker; nothing is connected yet."""
        endpoint_of = partial(self._endpoint_of, broker_id)
        return PeerChannel(self._doors, client_id, endpoint_of, self._connect_timeout_ms)


class PeerChannel:
    """One connection after another to the same broker."""

    __slots__ = ("_channel", "_client_id", "_connect_timeout_ms", "_doors", "_endpoint")

    def __init__(
        self,
        doors: ChannelDoors,
        client_id: str,
        endpoint: Callable[[], tuple[str, int] | None],
        connect_timeout_ms: float,
    ) -> None:
        self._doors = doors
        self._client_id = client_id
        self._endpoint = endpoint
        self._connect_timeout_ms = connect_timeout_ms
        # Connected, or being connected; None when neither.
        self._channel: Channel | None = None

    def send(
        self, request: Message, version: int, on_response: OnResponse, timeout_ms: float
    ) -> None:
        """Send a request, see `LeaderChannel`."""
        channel = self._channel
        if channel is not None and channel.is_open:
            channel.send(request, version, on_response, timeout_ms)
            return
        endpoint = self._endpoint()
        if endpoint is None:
            unknown = NetworkError(NetworkErrorKind.CONNECT_FAILED, "the broker has no address")
            self._doors.timer.call_soon(partial(on_response, None, unknown))
            return
        channel = self._channel = Channel(self._doors, self._client_id, self._on_closed)

        def connected(error: NetworkError | None) -> None:
            if self._channel is not channel:
                return
            if error is None:
                channel.send(request, version, on_response, timeout_ms)
            else:
                self._channel = None
                on_response(None, error)

        channel.connect(*endpoint, self._connect_timeout_ms, connected)

    def close(self) -> None:
        """Cut the connection, see `LeaderChannel`."""
        channel, self._channel = self._channel, None
        if channel is not None:
            channel.close()

    def _on_closed(self, channel: Channel, _: NetworkError) -> None:
        if self._channel is channel:
            self._channel = None
