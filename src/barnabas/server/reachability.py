"""Probe of an address: checks whether a node responds there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.network.channel import Channel
from barnabas.protocol.messages.api_versions import ApiVersionsRequest

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.network.channel import ChannelDoors
    from barnabas.network.network_error import NetworkError

# Timeout of the connection, and again of the response.
PROBE_MS = 1_000.0


def probe(
    doors: ChannelDoors,
    host: str,
    port: int,
    on_result: Callable[[NetworkError | None], None],
) -> None:
    """Connect and send ApiVersions, then call `on_result` with the error, or None after a response.

    An accepted connection is not enough: a proxy or load balancer may accept connections for a node
    that is down.
    """
    channel = Channel(doors, None, lambda *_: None)

    def on_connected(error: NetworkError | None) -> None:
        if error is None:
            channel.send(ApiVersionsRequest(), 0, on_answer, PROBE_MS)
        else:
            on_result(error)

    def on_answer(_response: object, error: NetworkError | None) -> None:
        channel.close()
        on_result(error)

    channel.connect(host, port, PROBE_MS, on_connected)
