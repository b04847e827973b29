"""Traffic by client: which clients are remembered when there are too many."""

from __future__ import annotations

from barnabas.server.listeners.client_traffic import CLIENTS_KEPT, ClientTraffic
from unit.server.simulated_broker import SimulatedBroker


def test_ever_new_client_ids_neither_grow_memory_nor_displace_large_clients() -> None:
    broker = SimulatedBroker()
    broker.make_topic("t")
    assert broker.node.broker is not None
    (listener,) = broker.node.broker.listeners
    (connection,) = listener.connections
    traffic = ClientTraffic()
    large = "a large client"
    connection.client_id = large
    for _ in range(100):
        traffic.on_gone(connection)
    for number in range(10 * CLIENTS_KEPT):
        connection.client_id = f"id {number}"
        traffic.on_gone(connection)
    found = {key.client_id: each for key, each in traffic.with_open([]).items()}
    assert len(found) <= 2 * CLIENTS_KEPT
    assert found[large].requests == 100 * connection.requests
