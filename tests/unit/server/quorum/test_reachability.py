"""Result of a probe of a port that accepts connections for a node that is down."""

from __future__ import annotations

import pytest

from barnabas.network.channel import ChannelDependencies
from barnabas.network.framed_protocol import new_receive_buffer
from barnabas.network.network_error import NetworkError, NetworkErrorKind
from barnabas.runtime.sockets import Stream
from barnabas.runtime.tls.contexts import client_context
from barnabas.runtime.tls.handshakes import Handshakes
from barnabas.runtime.tls.tls_sockets import TlsSockets
from barnabas.runtime.tls.tls_stream import TlsDependencies
from barnabas.server.quorum.probes import probe
from barnabas.sim.world import SimWorld
from barnabas.waiting.timing_wheel import TimingWheel
from unit.runtime.streams import Recorder
from unit.runtime.tls.handshaking import client_options


class Proxy(Recorder):
    """A proxy that accepts connections and ends them, because its target is down."""

    def __init__(self, is_reset: bool) -> None:
        super().__init__()
        self._is_reset = is_reset

    def on_connected(self, stream: Stream) -> None:
        super().on_connected(stream)
        if self._is_reset:
            stream.abort()
        else:
            stream.close()


@pytest.mark.parametrize("is_reset", [False, True], ids=["closed", "reset"])
@pytest.mark.parametrize("has_tls", [False, True], ids=["plaintext", "TLS"])
def test_an_accepted_connection_that_ends_at_once_is_a_disconnect(
    has_tls: bool, is_reset: bool
) -> None:
    world = SimWorld(1)
    world.host("proxy").runtime.sockets.listen("", 9092, lambda: Proxy(is_reset))
    runtime = world.host("own").runtime
    sockets = runtime.sockets
    if has_tls:
        handshakes = Handshakes(runtime.clock, runtime.timer, runtime.executor)
        context = client_context(client_options())
        dependencies = TlsDependencies(runtime.timer, handshakes)
        sockets = TlsSockets(sockets, dependencies, lambda: context, lambda: context)
    wheel = TimingWheel(runtime.clock, runtime.timer)
    channels = ChannelDependencies(
        runtime.clock, runtime.timer, sockets, wheel, new_receive_buffer()
    )
    found: list[NetworkError | None] = []
    probe(channels, "proxy", 9092, found.append)
    assert world.run_until(lambda: bool(found), 5_000)
    assert found[0] is not None
    assert found[0].kind is NetworkErrorKind.DISCONNECTED
    assert found[0].retriable
