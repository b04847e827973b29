"""Limits of connections, idle connections, and the drain at SIGTERM, of a Barnabas process."""

from __future__ import annotations

import socket
import threading
import time
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from barnabas.protocol.messages.connection import ApiVersionsRequest
from barnabas.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from barnabas.testing.broker_process import BrokerProcess
from conformance.raw_client import RawClient
from waiting import eventually


def is_served(client: RawClient) -> bool:
    """Return whether the broker responds on this connection."""
    try:
        client.send(ApiVersionsRequest(), 0)
        return client.receive_frame() is not None
    except OSError:
        return False


def test_connections_per_address_are_limited() -> None:
    with BrokerProcess(settings={"max.connections.per.ip": "3"}) as broker:
        clients = [RawClient(broker.bootstrap) for _ in range(3)]
        assert all(map(is_served, clients))
        assert not is_served(RawClient(broker.bootstrap))
        clients[0].close()
        eventually(lambda: is_served(RawClient(broker.bootstrap)))
        assert is_served(clients[1])


def test_a_connection_beyond_max_connections_is_served_when_another_ends() -> None:
    with BrokerProcess(settings={"max.connections": "1"}) as broker:
        first, second = RawClient(broker.bootstrap), RawClient(broker.bootstrap)
        assert is_served(first)
        second.send(ApiVersionsRequest(), 0)
        first.close()
        assert second.receive_frame() is not None


def test_an_idle_connection_is_closed_and_an_active_one_is_not() -> None:
    idle_s = 0.6

    def only_the_idle_connection_is_closed() -> bool:
        """Return False if the machine paused, so that the active connection was idle, too."""
        idle, active = RawClient(broker.bootstrap), RawClient(broker.bootstrap)
        closing = threading.Thread(target=idle.is_closed_by_broker)
        closing.start()
        last_request_s = time.monotonic()
        is_over = False
        while not is_over:
            closing.join(0.02)
            is_over = not closing.is_alive()
            now_s = time.monotonic()
            if not is_served(active):
                assert time.monotonic() - last_request_s > idle_s / 2, "it was not idle"
                return False
            last_request_s = now_s
        return True

    with BrokerProcess(settings={"connections.max.idle.ms": str(int(idle_s * 1000))}) as broker:
        eventually(only_the_idle_connection_is_closed)


def test_a_stop_completes_a_delayed_fetch_and_keeps_acknowledged_records() -> None:
    with BrokerProcess() as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_topics([NewTopic("t", 1, 1)])["t"].result(60)
        acknowledged: list[int] = []
        producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 0})

        def on_delivery(error: Any, message: Any) -> None:
            if error is None:
                acknowledged.append(message.offset())

        for _ in range(2000):
            producer.produce("t", b"x" * 100, on_delivery=on_delivery)
        eventually(lambda: bool(producer.poll(0.01) or acknowledged))
        waiting = RawClient(broker.bootstrap)
        partition = FetchPartition(
            partition=0, fetch_offset=0, partition_max_bytes=1, current_leader_epoch=-1
        )
        request = FetchRequest(
            max_wait_ms=60_000,
            min_bytes=10_000_000,
            max_bytes=1 << 20,
            topics=[FetchTopic(topic="t", partitions=[partition])],
            forgotten_topics_data=[],
        )
        waiting.send(request, 12)
        eventually(lambda: is_served(RawClient(broker.bootstrap)))
        assert broker.stop() == 0
        response: Any = waiting.receive(FetchRequest, 12)
        assert response.responses[0].partitions[0].error_code == 0
        producer.poll(0)
        producer.purge()
        broker.start()
        low, high = _watermarks(broker)
        assert low == 0
        assert high > max(acknowledged)


def _watermarks(broker: BrokerProcess) -> tuple[int, int]:
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "g"})
    found: tuple[int, int] = consumer.get_watermark_offsets(TopicPartition("t", 0), 60)
    consumer.close()
    return found


def test_a_stop_does_not_wait_for_a_client_that_does_not_read() -> None:
    with BrokerProcess() as broker:
        host, _, port = broker.bootstrap.rpartition(":")
        with socket.create_connection((host, int(port))):
            assert broker.stop(timeout_s=60) == 0
