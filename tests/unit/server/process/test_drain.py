"""A stop answers requests in flight, accepts no more, and ends within a limit."""

from __future__ import annotations

from barnabas.protocol.messages.connection import ApiVersionsRequest
from unit.server.process.drain import begin_stop, long_fetch
from unit.server.simulated_broker import SimulatedBroker, SimulatedClient, produce_request


def test_a_delayed_fetch_is_answered_with_the_available_records() -> None:
    broker = SimulatedBroker()
    broker.make_topic("t")
    broker.produce("t", b"value")
    outcome = broker.client.send(long_fetch("t"), 12)
    broker.world.run_for(1_000)
    assert not outcome
    stopped = begin_stop(broker)
    assert broker.world.run_until(lambda: bool(stopped and outcome))
    answer, error = outcome[0]
    assert error is None
    assert len(answer.responses[0].partitions[0].records) > 0
    assert stopped[0] < 100


def test_a_produce_that_waits_for_the_disk_completes() -> None:
    broker = SimulatedBroker()
    broker.make_topic("t", flush_messages="1")
    outcome = broker.client.send(produce_request("t", broker.batch(b"value")), 9)
    listener = broker.node.broker.listeners[0]
    assert broker.world.run_until(lambda: listener.connections[0].statistics().in_flight == 1)
    stopped = begin_stop(broker)
    assert broker.world.run_until(lambda: bool(stopped and outcome))
    assert outcome[0][0].responses[0].partition_responses[0].error_code == 0


def test_no_request_and_no_connection_is_accepted_during_a_stop() -> None:
    broker = SimulatedBroker(max_connections="1")
    waiting = SimulatedClient(broker.world, "client")
    stopped = begin_stop(broker)
    late = broker.client.send(ApiVersionsRequest(), 0)
    assert broker.world.run_until(lambda: bool(stopped and late))
    assert late[0][1] is not None
    assert broker.world.run_until(lambda: bool(waiting.closed))


def test_a_missing_response_delays_the_stop_for_at_most_two_seconds() -> None:
    broker = SimulatedBroker()
    listener = broker.node.broker.listeners[0]
    # A request without a response.
    listener.connections[0].reserve()
    stopped = begin_stop(broker)
    assert broker.world.run_until(lambda: bool(stopped))
    assert 1_000 < stopped[0] < 2_000
