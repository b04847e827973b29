"""Limits of a listener, on a whole broker in virtual time."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.network.connection import Connection
from barnabas.protocol.messages.connection import ApiVersionsRequest
from unit.server.quotas.client_quotas import set_quota
from unit.server.simulated_broker import SimulatedBroker, SimulatedClient


def asks(client: SimulatedClient) -> list[Any]:
    """Send a request; its response is added to the list."""
    return client.send(ApiVersionsRequest(), 0)


def test_connections_of_one_address_beyond_its_limit_are_closed() -> None:
    broker = SimulatedBroker(max_connections_per_ip="2")
    second = SimulatedClient(broker.world, "client")
    third = SimulatedClient(broker.world, "client")
    assert broker.world.run_until(lambda: bool(third.closed))
    assert second.ask(ApiVersionsRequest(), 0).error_code == 0
    second.channel.close()
    broker.world.run_for(100)
    again = SimulatedClient(broker.world, "client")
    assert again.ask(ApiVersionsRequest(), 0).error_code == 0


def test_single_addresses_have_limits_of_their_own() -> None:
    broker = SimulatedBroker(
        max_connections_per_ip="1", max_connections_per_ip_overrides="big:2,small:0"
    )
    for _ in range(2):
        assert SimulatedClient(broker.world, "big").ask(ApiVersionsRequest(), 0).error_code == 0
    small = SimulatedClient(broker.world, "small")
    assert broker.world.run_until(lambda: bool(small.closed))


def test_connections_beyond_the_limit_of_all_wait_until_one_ends() -> None:
    broker = SimulatedBroker(max_connections="2")
    second = SimulatedClient(broker.world, "client")
    third = SimulatedClient(broker.world, "client")
    outcome = asks(third)
    broker.world.run_for(10_000)
    assert not outcome
    assert not third.closed
    second.channel.close()
    assert broker.world.run_until(lambda: bool(outcome))
    assert outcome[0][1] is None


def test_a_waiting_connection_that_closes_frees_its_place() -> None:
    broker = SimulatedBroker(max_connections="2")
    second = SimulatedClient(broker.world, "client")
    third = SimulatedClient(broker.world, "client")
    fourth = SimulatedClient(broker.world, "client")
    third.channel.abort()
    outcome = asks(fourth)
    broker.world.run_for(100)
    second.channel.close()
    assert broker.world.run_until(lambda: bool(outcome))


def test_waiting_connections_are_limited_like_the_kernel_queue() -> None:
    broker = SimulatedBroker(max_connections="1", socket_listen_backlog_size="2")
    waiting = [SimulatedClient(broker.world, "client") for _ in range(3)]
    assert broker.world.run_until(lambda: bool(waiting[2].closed))
    assert not waiting[0].closed


def test_a_listener_has_a_limit_of_its_own() -> None:
    broker = SimulatedBroker(**{"listener.name.plaintext.max.connections": "1"})
    outcome = asks(SimulatedClient(broker.world, "client"))
    broker.world.run_for(5_000)
    assert not outcome
    broker.client.channel.close()
    assert broker.world.run_until(lambda: bool(outcome))


def test_the_inter_broker_listener_closes_another_connection_instead_of_waiting() -> None:
    broker = SimulatedBroker(
        listeners="PLAINTEXT://broker:9092,INTERNAL://broker:9093",
        inter_broker_listener_name="INTERNAL",
        max_connections="1",
        **{"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INTERNAL:PLAINTEXT"},
    )
    internal = SimulatedClient(broker.world, "other broker", port=9093)
    assert internal.ask(ApiVersionsRequest(), 0).error_code == 0
    assert broker.world.run_until(lambda: bool(broker.client.closed))


def test_connections_that_come_too_fast_wait() -> None:
    broker = SimulatedBroker(max_connection_creation_rate="2")
    clients = [SimulatedClient(broker.world, "client") for _ in range(40)]
    outcomes = [asks(client) for client in clients]
    broker.world.run_for(200)
    # 2 per second over all windows but one may come at once.
    assert 15 < sum(map(bool, outcomes)) < 25
    assert broker.world.run_until(lambda: all(outcomes))
    assert not any(client.closed for client in clients)


def test_an_address_that_connects_too_fast_is_closed_after_a_while() -> None:
    broker = SimulatedBroker()
    set_quota(broker, {"ip": "10.0.0.9"}, "connection_creation_rate", 1)
    clients = [SimulatedClient(broker.world, "10.0.0.9") for _ in range(12)]
    outcomes = [asks(client) for client in clients]
    broker.world.run_for(50)
    answered = [each for each in outcomes if each and each[0][1] is None]
    assert len(answered) == 10
    assert not clients[11].closed
    broker.world.run_for(2_000)
    assert clients[11].closed
    other = SimulatedClient(broker.world, "other")
    assert other.ask(ApiVersionsRequest(), 0).error_code == 0


def test_one_address_does_not_exhaust_the_rate_of_other_addresses() -> None:
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


def test_a_request_above_the_size_limit_closes_the_connection() -> None:
    broker = SimulatedBroker(socket_request_max_bytes="1000")
    broker.make_topic("t")
    stream = broker.client.channel._stream
    assert stream is not None
    stream.write([b"\x00\x00\x04\x00"])
    assert broker.world.run_until(lambda: bool(broker.client.closed))


def test_many_idle_connections_are_swept_in_slices() -> None:
    broker = SimulatedBroker(connections_max_idle_ms="60000")
    listener = broker.node.broker.listeners[0]
    clients = [SimulatedClient(broker.world, "client") for _ in range(600)]
    broker.world.run_for(100_000)
    assert all(client.closed for client in clients)
    assert len(listener) == 0
    assert listener.idle_closed == 601


def test_idle_connections_are_closed_after_one_of_them_raised(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broker = SimulatedBroker(connections_max_idle_ms="60000")
    clients = [SimulatedClient(broker.world, "client") for _ in range(5)]
    idle_ms, calls = Connection.idle_ms, []

    def failing(connection: Connection) -> float:
        calls.append(connection)
        if len(calls) == 1:
            raise MemoryError
        return idle_ms(connection)

    monkeypatch.setattr(Connection, "idle_ms", failing)
    with pytest.raises(MemoryError):
        broker.world.run_for(100_000)
    broker.world.run_for(100_000)
    assert all(client.closed for client in clients)
