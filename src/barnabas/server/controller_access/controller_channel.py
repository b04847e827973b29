"""Connection to the active controller (Kafka's NodeToControllerChannelManager).

When the active controller changes, the channel connects to the new one. Requests in flight on the
old connection fail, so that their senders can retry.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from barnabas.network.channel import Channel
from barnabas.network.network_error import NetworkError, NetworkErrorKind
from barnabas.network.reconnect_backoff import NODE_BACKOFF, ReconnectBackoff
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.connection import ApiVersionsRequest
from barnabas.version import __version__

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.network.channel import ChannelDependencies
    from barnabas.protocol.schema import Message
    from barnabas.runtime.clock import Cancellable
    from barnabas.runtime.rng import Rng

_SOFTWARE = "apache-kafka-compatible-barnabas"
_API_VERSIONS_VERSION = 3


class ControllerAddress(NamedTuple):
    """Node id and address of the active controller."""

    node_id: int
    host: str
    port: int


class ChannelSettings(msgspec.Struct, frozen=True):
    """Client id and timeouts (ms) of the connection."""

    client_id: str
    # A request without a response for this time closes the connection.
    request_timeout_ms: float
    connect_timeout_ms: float = 1_000.0
    backoff: ReconnectBackoff = NODE_BACKOFF


class ControllerChannel:
    """Keeps a connection to its target controller, and reports when it is ready or lost."""

    def __init__(
        self,
        dependencies: ChannelDependencies,
        settings: ChannelSettings,
        rng: Rng,
        on_ready: Callable[[], None],
        on_lost: Callable[[], None],
    ) -> None:
        """Create without a connection.

        Args:
            dependencies: dependencies of the connection.
            settings: client id and timeouts.
            rng: randomness of the backoff.
            on_ready: called when requests can be sent.
            on_lost: called when a ready connection is lost. The channel already reconnects.
        """
        self._dependencies = dependencies
        self._settings = settings
        self._rng = rng
        self._on_ready = on_ready
        self._on_lost = on_lost
        # The controller to connect to. Set by `connect_to`. None if it is unknown or in this
        # process.
        self._target: ControllerAddress | None = None
        # The connection, connecting or ready. None during a backoff and without a target.
        self._channel: Channel | None = None
        # Whether the API versions of the controller are known, so that requests can be sent.
        self._is_ready = False
        # Number of consecutive failed attempts.
        self._failures = 0
        # Timer of the next attempt. None except during a backoff.
        self._retry: Cancellable | None = None

    @property
    def is_ready(self) -> bool:
        """Whether `send` can be called: the controller is connected and its versions are known."""
        return self._is_ready

    @property
    def in_flight(self) -> int:
        """Number of requests that wait for a response."""
        return 0 if self._channel is None else self._channel.in_flight

    def connect_to(self, address: ControllerAddress | None) -> None:
        """Connect to this controller, or disconnect if `address` is None."""
        if address == self._target:
            return
        self._target = address
        self._failures = 0
        self._drop()
        if address is not None:
            self._open()

    def close(self) -> None:
        """Disconnect. Requests in flight fail."""
        self.connect_to(None)

    def version_of(self, api_key: int, preferred: int) -> int | None:
        """Return the supported version nearest to `preferred`, or None for an unknown API."""
        assert self._channel is not None
        versions = self._channel.versions.get(api_key)
        return None if versions is None else min(max(preferred, versions[0]), versions[1])

    def send(
        self,
        request: Message,
        version: int,
        on_response: Callable[[Any, NetworkError | None], None],
    ) -> None:
        """Send a request on a ready connection, see `Channel.send`.

        Raises:
                ProtocolError: the message has values that the version cannot represent.
        """
        assert self._channel is not None
        self._channel.send(request, version, on_response, self._settings.request_timeout_ms)

    def _drop(self) -> None:
        """Close the connection or the attempt, and cancel a retry."""
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None
        channel, self._channel = self._channel, None
        self._is_ready = False
        if channel is not None:
            channel.close()

    def _open(self) -> None:
        self._retry = None
        target = self._target
        assert target is not None
        channel = Channel(self._dependencies, self._settings.client_id, self._on_closed)
        self._channel = channel

        def on_connected(error: NetworkError | None) -> None:
            if self._channel is not channel:
                return
            if error is None:
                self._negotiate_versions(channel)
            else:
                self._on_failure()

        channel.connect(target.host, target.port, self._settings.connect_timeout_ms, on_connected)

    def _negotiate_versions(self, channel: Channel) -> None:
        request = ApiVersionsRequest(
            client_software_name=_SOFTWARE, client_software_version=__version__
        )

        def on_response(response: Any, error: NetworkError | None) -> None:
            if self._channel is not channel:
                return
            if error is not None or response.error_code != ErrorCode.NONE:
                # `_on_closed` is called too if the connection was lost. It ignores the dropped
                # channel.
                self._on_failure()
                return
            channel.versions = {
                each.api_key: (each.min_version, each.max_version) for each in response.api_keys
            }
            self._failures = 0
            self._is_ready = True
            self._on_ready()

        timeout_ms = self._settings.request_timeout_ms
        channel.send(request, _API_VERSIONS_VERSION, on_response, timeout_ms)

    def _on_closed(self, channel: Channel, error: NetworkError) -> None:
        if self._channel is not channel:
            return
        assert error.kind is not NetworkErrorKind.CLOSED, (
            "only this object closes a channel, and it drops the channel first"
        )
        was_ready = self._is_ready
        if was_ready:
            # The first attempt after a lost connection is immediate.
            self._drop()
            self._open()
            self._on_lost()
        else:
            self._on_failure()

    def _on_failure(self) -> None:
        self._drop()
        self._failures += 1
        delay_ms = self._settings.backoff.delay_ms(self._failures, self._rng)
        self._retry = self._dependencies.timer.call_later(delay_ms, self._open)
