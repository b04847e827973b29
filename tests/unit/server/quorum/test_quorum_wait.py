"""Which voters a waiting node names as silent in its log."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from barnabas.network.channel import ChannelDependencies
from barnabas.network.connection import Connection
from barnabas.network.connection_limits import ConnectionDependencies, ConnectionLimits
from barnabas.network.framed_protocol import new_receive_buffer
from barnabas.protocol.codec import decode_request_header, encode_response
from barnabas.protocol.messages.connection import ApiVersionsResponse
from barnabas.server.quorum.probes import find_silent_voters
from barnabas.server.quorum.quorum_watch import QuorumWait
from barnabas.sim.world import SimWorld
from barnabas.waiting.timing_wheel import TimingWheel

if TYPE_CHECKING:
    import pytest


def listen(world: SimWorld, name: str, *, is_paused: bool) -> None:
    """Start a voter on a host. A paused one accepts connections and sends no response."""
    runtime = world.host(name).runtime
    dependencies = ConnectionDependencies(runtime.clock, runtime.timer, new_receive_buffer(4096))

    def on_request(connection: Connection, view: memoryview) -> None:
        slot = connection.reserve()
        if not is_paused:
            response = ApiVersionsResponse(error_code=0, api_keys=[])
            slot.complete(encode_response(decode_request_header(view)[2], response, 0))

    def accept() -> Connection:
        return Connection(1, dependencies, ConnectionLimits(), on_request, lambda *_: None)

    runtime.sockets.listen("", 9093, accept)


def channel_of(world: SimWorld) -> ChannelDependencies:
    runtime = world.host("own").runtime
    return ChannelDependencies(
        runtime.clock,
        runtime.timer,
        runtime.sockets,
        TimingWheel(runtime.clock, runtime.timer),
        new_receive_buffer(),
    )


def test_a_paused_voter_counts_as_silent(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    world = SimWorld(1)
    listen(world, "live", is_paused=False)
    listen(world, "paused", is_paused=True)
    voters = {2: ("live", 9093), 3: ("paused", 9093)}
    QuorumWait(channel_of(world), voters, lambda: False, None)
    assert world.run_until(lambda: bool(caplog.messages), 6_000)
    (message,) = caplog.messages
    assert "no response from voter 3 at paused:9093." in message


def test_silent_voters_are_named_in_the_order_of_their_ids() -> None:
    world = SimWorld(1)
    found: list[list[str]] = []
    voters = {10: None, 9: ("no-such-host", 9093)}
    find_silent_voters(channel_of(world), voters, found.append)
    assert world.run_until(lambda: bool(found), 6_000)
    assert found == [["9 at no-such-host:9093", "10 (address unknown)"]]


def test_no_voters_have_no_silent_voters() -> None:
    found: list[list[str]] = []
    find_silent_voters(channel_of(SimWorld(1)), {}, found.append)
    assert found == [[]]


def test_a_refusal_by_the_voters_is_the_reason_of_the_wait(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING)
    world = SimWorld(1)
    listen(world, "live", is_paused=False)
    voters = {2: ("live", 9093)}
    QuorumWait(channel_of(world), voters, lambda: False, None, refusal=lambda: "they refuse")
    assert world.run_until(lambda: bool(caplog.messages), 6_000)
    assert caplog.messages == ["Waiting for the metadata quorum: they refuse"]
