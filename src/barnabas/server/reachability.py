"""Whether somebody listens at an address."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.network.channel import Channel

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
    """Connect, disconnect, and say how it went: None if somebody listens."""
    channel = Channel(doors, None, lambda *_: None)

    def on_connected(error: NetworkError | None) -> None:
        if error is None:
            channel.close()
        on_result(error)

    channel.connect(host, port, PROBE_MS, on_connected)
