"""Limits of a listener, on a whole broker in virtual time."""

from __future__ import annotations

import pytest

from barnabas.protocol.messages.api_versions import ApiVersionsRequest
from unit.server.simulated_broker import SimulatedBroker, SimulatedClient


@pytest.mark.parametrize("key", ["max_connections", "max_connections_per_ip"])
def test_connections_beyond_the_limit_are_closed(key: str) -> None:
    broker = SimulatedBroker(**{key: "2"})
    second = SimulatedClient(broker.world, "client")
    third = SimulatedClient(broker.world, "client")
    assert broker.world.run_until(lambda: bool(third.closed))
    assert second.ask(ApiVersionsRequest(), 0).error_code == 0
    second.channel.close()
    broker.world.run_for(100)
    again = SimulatedClient(broker.world, "client")
    assert again.ask(ApiVersionsRequest(), 0).error_code == 0


def test_one_address_does_not_use_up_what_others_may_have() -> None:
    broker = SimulatedBroker(max_connections_per_ip="1")
    other = SimulatedClient(broker.world, "other")
    assert other.ask(ApiVersionsRequest(), 0).error_code == 0


def test_an_idle_connection_is_closed_and_a_busy_one_is_not() -> None:
    broker = SimulatedBroker(connections_max_idle_ms="10000")
    busy = SimulatedClient(broker.world, "busy")
    for _ in range(5):
        broker.world.run_for(5_000)
        busy.ask(ApiVersionsRequest(), 0)
    assert broker.client.closed
    assert not busy.closed


def test_a_request_above_the_limit_costs_the_connection() -> None:
    broker = SimulatedBroker(socket_request_max_bytes="1000")
    broker.make_topic("t")
    stream = broker.client.channel._stream
    assert stream is not None
    stream.write([b"\x00\x00\x04\x00"])
    assert broker.world.run_until(lambda: bool(broker.client.closed))
