"""Runs tests on both networks: the machine's event loop, and a simulated world."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from barnabas.runtime.loop import Runtime
from barnabas.runtime.sockets import Stream
from barnabas.runtime.stepper import LoopStepper
from barnabas.runtime.tls.contexts import TlsContext, client_context, server_context
from barnabas.runtime.tls.handshakes import HandshakeLimits, Handshakes
from barnabas.runtime.tls.tls_options import KeySource, TlsOptions, TrustSource
from barnabas.runtime.tls.tls_sockets import TlsSockets
from barnabas.runtime.tls.tls_stream import TlsDependencies
from barnabas.sim.world import SimWorld
from certificates import shared_authority

# Limit for operations that hang.
LIMIT_MS = 60_000.0
STEP_MS = 20.0


class Place:
    """A runtime, and a way to advance it."""

    def __init__(
        self, runtime: Runtime, run_until: Callable[[Callable[[], bool], float], bool]
    ) -> None:
        self.runtime = runtime
        self.run_until = run_until

    def until(self, predicate: Callable[[], bool]) -> None:
        """Run until the predicate holds, even if no event of the loop makes it true."""
        for _ in range(round(LIMIT_MS / STEP_MS)):
            if self.run_until(predicate, STEP_MS):
                return
        raise AssertionError("the condition did not become true in time")

    def settle(self) -> None:
        """Run until all pending events have happened."""
        self.run_until(lambda: False, 30.0)


def real_place(stepper: LoopStepper) -> Place:
    return Place(stepper.runtime, stepper.run_until)


def sim_place(seed: int) -> Place:
    world = SimWorld(seed)
    return Place(world.host("a").runtime, world.run_until)


def tls_place(place: Place, limits: HandshakeLimits | None = None) -> Place:
    """The same place with TLS on all connections."""
    runtime = place.runtime
    handshakes = Handshakes(runtime.clock, runtime.timer, runtime.executor, limits)
    server, client = tls_contexts()
    sockets = TlsSockets(
        runtime.sockets,
        TlsDependencies(runtime.timer, handshakes),
        lambda: server,
        lambda: client,
    )
    return Place(msgspec.structs.replace(runtime, sockets=sockets), place.run_until)


def tls_contexts() -> tuple[TlsContext, TlsContext]:
    """Contexts of a server and of a client that trusts it, without client certificates."""
    # The length of signatures with this key does not vary, so that the simulation is repeatable.
    own = shared_authority().issue(key="ed25519")
    keys = KeySource(key=own.key_pem(), certificate_chain=own.chain_pem)
    trust = TrustSource(certificates=shared_authority().pem)
    return server_context(TlsOptions(keys)), client_context(TlsOptions(trust=trust))


class Recorder:
    """A stream handler that records its events."""

    def __init__(self, buffer_bytes: int = 65536) -> None:
        self.stream: Stream | None = None
        self.data = bytearray()
        self.writable: list[bool] = []
        self.closed = False
        self.error: Exception | None = None
        self.peer_at_end = ""
        self._buffer = bytearray(buffer_bytes)

    def on_connected(self, stream: Stream) -> None:
        assert self.stream is None
        self.stream = stream

    def get_buffer(self, size_hint: int) -> bytearray:
        return self._buffer

    def on_received(self, count: int) -> None:
        assert not self.closed
        self.data += self._buffer[:count]

    def on_writable_changed(self, writable: bool) -> None:
        self.writable.append(writable)

    def on_closed(self, error: Exception | None) -> None:
        assert not self.closed
        assert self.stream is not None
        self.peer_at_end = self.stream.peer
        self.closed = True
        self.error = error
