"""A single request to an address, over a connection of its own; probes whether a node responds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from barnabas.network.channel import Channel
from barnabas.protocol.messages.connection import ApiVersionsRequest

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.network.channel import ChannelDependencies
    from barnabas.network.network_error import NetworkError
    from barnabas.protocol.schema import Message

# Timeout of the connection, and again of the response.
PROBE_MS = 1_000.0


def send_once(
    dependencies: ChannelDependencies,
    address: tuple[str, int],
    request: Message,
    version: int,
    timeout_ms: float,
    on_result: Callable[[Any, NetworkError | None], None],
) -> None:
    """Connect, send a request, and close the connection after the response.

    Args:
        dependencies: dependencies of the connection.
        address: host and port.
        request: any request with a response.
        version: version of the request. No ApiVersions request is sent before it.
        timeout_ms: timeout of the connection, and again of the response.
        on_result: called once with the response and None, or with None and the error.
    """
    channel = Channel(dependencies, None, lambda *_: None)

    def on_connected(error: NetworkError | None) -> None:
        if error is None:
            channel.send(request, version, on_response, timeout_ms)
        else:
            on_result(None, error)

    def on_response(response: Any, error: NetworkError | None) -> None:
        channel.close()
        on_result(response, error)

    channel.connect(*address, timeout_ms, on_connected)


def probe(
    dependencies: ChannelDependencies,
    host: str,
    port: int,
    on_result: Callable[[NetworkError | None], None],
) -> None:
    """Connect and send ApiVersions, then call `on_result` with the error, or None after a response.

    An accepted connection is not enough: a proxy or load balancer may accept connections for a node
    that is down.
    """
    send_once(
        dependencies,
        (host, port),
        ApiVersionsRequest(),
        0,
        PROBE_MS,
        lambda _, error: on_result(error),
    )
