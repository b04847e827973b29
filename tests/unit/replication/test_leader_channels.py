"""Channels to other brokers: a request that cannot be encoded gets an error, like any failure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from barnabas.network.channel import ChannelDependencies
from barnabas.network.framed_protocol import new_receive_buffer
from barnabas.network.network_error import NetworkError, NetworkErrorKind
from barnabas.protocol.messages.connection import ApiVersionsRequest
from barnabas.replication.fetcher.leader_channels import PeerChannel, PeerChannels
from barnabas.sim.world import SimWorld
from barnabas.waiting.timing_wheel import TimingWheel
from unit.network.scripted_broker import Broker

if TYPE_CHECKING:
    from collections.abc import Callable

GOOD = ApiVersionsRequest()
BAD = ApiVersionsRequest(client_software_name="\ud800")
VERSION = 3


class Scene:
    """A channel of host "c" to a broker that responds in another version."""

    def __init__(self) -> None:
        self.world = SimWorld(1)
        self.broker = Broker(self.world)
        runtime = self.world.host("c").runtime
        dependencies = ChannelDependencies(
            runtime.clock,
            runtime.timer,
            runtime.sockets,
            TimingWheel(runtime.clock, runtime.timer),
            new_receive_buffer(4096),
        )
        channels = PeerChannels(dependencies, lambda _: ("b", 9092), lambda _: None)
        self.channel: PeerChannel = channels.open(2, "client")
        self.results: list[tuple[Any, NetworkError | None]] = []

    def ask(self, request: ApiVersionsRequest, version: int = 0) -> NetworkErrorKind | None:
        """Send a request, and return the kind of its error."""
        self.results.clear()
        collect: Callable[..., None] = lambda *result: self.results.append(result)  # noqa: E731
        self.channel.send(request, version, collect, 1_000.0)
        assert not self.results, "the result comes after the call"
        assert self.world.run_until(lambda: bool(self.results))
        self.world.run_for(2_000)
        ((_, error),) = self.results
        return None if error is None else error.kind


@pytest.mark.parametrize("is_connected", [True, False])
def test_a_request_that_cannot_be_encoded_fails_alone(is_connected: bool) -> None:
    scene = Scene()
    if is_connected:
        assert scene.ask(GOOD) is None
    assert scene.ask(BAD, VERSION) is NetworkErrorKind.NOT_SENT
    assert scene.ask(GOOD) is None
    assert scene.channel.connections_created == 1
    assert scene.broker.requests == 1 + is_connected
