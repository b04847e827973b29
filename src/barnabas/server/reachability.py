"""Whether a node answers at an address."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.network.channel import Channel
from barnabas.protocol.messages.api_versions import ApiVersionsRequest

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.network.channel import ChannelDoors
    from barnabas.network.network_error import NetworkError

# A machine that does not answer in that time is not reached.
PROBE_MS = 1_000.0


def probe(
    doors: ChannelDoors,
    host: str,
    port: int,
    on_result: Callable[[NetworkError | None], None],
) -> None:
    """Connect, ask for its versions, and say how it went: None if it answers.

    An answer, since what takes connections may be something before the node (a relay, a balancer
    of loads) that ends them when nobody is behind it.
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
