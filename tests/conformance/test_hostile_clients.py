"""Clients that misuse connections cost themselves, not the broker and not the others.

Memory is read off the broker's process, a polite client works beside each of them.
"""

from __future__ import annotations

import contextlib
import resource
import select
import socket
import struct
import time
from collections.abc import Callable, Iterator

import psutil
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from barnabas.protocol.headers import encode_request, peek_correlation_id
from barnabas.protocol.messages.api_versions import ApiVersionsRequest
from barnabas.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from barnabas.protocol.messages.metadata import MetadataRequest
from barnabas.protocol.schema import Message
from barnabas.testing.broker_process import BrokerProcess
from waiting import eventually

MEGABYTE = 1_000_000
TOPIC = "bystanders"
DEADLINE_S = 90
LINGER_ZERO = struct.pack("ii", 1, 0)


@pytest.fixture(scope="module")
def attacked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("attacked")) as broker:
        use(broker)
        yield broker


@pytest.fixture
def connect(attacked: BrokerProcess) -> Iterator[Callable[[], socket.socket]]:
    """Opens connections, all closed at the end."""
    with contextlib.ExitStack() as stack:
        address = (attacked.host, attacked.port)
        yield lambda: stack.enter_context(socket.create_connection(address, DEADLINE_S))


@pytest.fixture(autouse=True)
def bystander(attacked: BrokerProcess) -> Iterator[None]:
    """Whatever a test does: a polite client is served after it, and was before."""
    yield
    use(attacked)


def use(broker: BrokerProcess) -> None:
    """Write a record and read it back."""
    offsets: list[int] = []
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce(
        TOPIC, b"polite", partition=0, on_delivery=lambda _e, m: offsets.append(m.offset())
    )
    assert producer.flush(DEADLINE_S) == 0
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "bystanders"})
    consumer.assign([TopicPartition(TOPIC, 0, offsets[0])])
    message = consumer.poll(DEADLINE_S)
    consumer.close()
    assert message is not None
    assert message.value() == b"polite"


def request_bytes(correlation_id: int, request: Message, version: int) -> bytes:
    chunks = encode_request(correlation_id, "hostile", request, version)
    return b"".join(bytes(chunk) for chunk in chunks)


def fetch_bytes(correlation_id: int, topic: str, max_wait_ms: int, min_bytes: int) -> bytes:
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=MEGABYTE)
    request = FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=MEGABYTE,
        topics=[FetchTopic(topic=topic, partitions=[partition])],
    )
    return request_bytes(correlation_id, request, 11)


def receive(connection: socket.socket, size: int) -> bytes:
    received = bytearray()
    while len(received) < size:
        piece = connection.recv(size - len(received))
        assert piece, "closed by the broker"
        received += piece
    return bytes(received)


def receive_frame(connection: socket.socket) -> bytes:
    return receive(connection, struct.unpack(">i", receive(connection, 4))[0])


def memory(broker: BrokerProcess) -> int:
    return psutil.Process(broker.pid).memory_info().rss


def await_descriptors(broker: BrokerProcess, most: int) -> None:
    process = psutil.Process(broker.pid)
    eventually(
        lambda: process.num_fds() <= most, lambda: f"{process.num_fds()} descriptors are still open"
    )


@pytest.mark.parametrize("start", [b"", b"\x00", b"\x05\xf5\xe1\x00", b"\x05\xf5\xe1\x00\x00\x00"])
def test_half_sent_requests_hold_no_memory(
    attacked: BrokerProcess, connect: Callable[[], socket.socket], start: bytes
) -> None:
    before = memory(attacked)
    for _ in range(200):
        # Up to the length of 100 MB that the request claims, and a few of its bytes.
        connect().sendall(start)
    use(attacked)
    assert memory(attacked) - before < 10 * MEGABYTE


def test_a_large_request_that_stops_in_the_middle_holds_what_was_sent(
    attacked: BrokerProcess, connect: Callable[[], socket.socket]
) -> None:
    before = memory(attacked)
    for _ in range(4):
        connect().sendall(struct.pack(">i", 90 * MEGABYTE) + bytes(MEGABYTE))
    use(attacked)
    assert memory(attacked) - before < 20 * MEGABYTE


def test_a_request_that_comes_byte_by_byte_is_answered(
    connect: Callable[[], socket.socket],
) -> None:
    connection = connect()
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for byte in request_bytes(7, ApiVersionsRequest(), 0):
        connection.sendall(bytes([byte]))
        time.sleep(0.002)
    assert peek_correlation_id(receive_frame(connection)) == 7


def test_answers_that_nobody_reads_stay_bounded_and_whole(
    attacked: BrokerProcess, connect: Callable[[], socket.socket]
) -> None:
    producer = Producer({"bootstrap.servers": attacked.bootstrap, "batch.size": 200_000})
    for _ in range(40):
        producer.produce("unread", bytes(100_000), partition=0)
    assert producer.flush(DEADLINE_S) == 0
    before = memory(attacked)
    connections = [connect() for _ in range(20)]
    for connection in connections:
        # 50 MB of answers each.
        connection.sendall(b"".join(fetch_bytes(i, "unread", 0, 0) for i in range(50)))
    use(attacked)
    assert memory(attacked) - before < 60 * MEGABYTE
    for number in range(50):
        frame = receive_frame(connections[0])
        assert peek_correlation_id(frame) == number
        assert len(frame) > 900_000


def test_a_flood_of_pipelined_requests_is_answered_in_order(
    attacked: BrokerProcess, connect: Callable[[], socket.socket]
) -> None:
    before = memory(attacked)
    connection = connect()
    connection.settimeout(DEADLINE_S)
    count = 20_000
    flood = memoryview(
        b"".join(request_bytes(i, MetadataRequest(topics=[]), 9) for i in range(count))
    )
    connection.setblocking(False)
    received = bytearray()
    answered = 0
    while answered < count:
        to_send = [connection] if flood else []
        assert any(select.select([connection], to_send, [], DEADLINE_S)[:2]), answered
        if flood:
            with contextlib.suppress(BlockingIOError):
                flood = flood[connection.send(flood) :]
        with contextlib.suppress(BlockingIOError):
            received += connection.recv(1 << 20)
        position = 0
        while len(received) - position >= 8:
            size = 4 + int.from_bytes(received[position : position + 4])
            if len(received) - position < size:
                break
            assert int.from_bytes(received[position + 4 : position + 8]) == answered
            answered += 1
            position += size
        del received[:position]
    assert memory(attacked) - before < 30 * MEGABYTE


def test_a_storm_of_connections_leaves_nothing_behind(attacked: BrokerProcess) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 4096)), hard))
    address = (attacked.host, attacked.port)
    descriptors = psutil.Process(attacked.pid).num_fds()
    before = memory(attacked)
    for _ in range(3):
        storm = [socket.create_connection(address, DEADLINE_S) for _ in range(300)]
        for number, connection in enumerate(storm):
            if number % 2:
                connection.sendall(request_bytes(number, MetadataRequest(topics=None), 9))
            if number % 3:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER_ZERO)
            connection.close()
    await_descriptors(attacked, descriptors + 5)
    assert memory(attacked) - before < 30 * MEGABYTE


def test_waiting_requests_go_with_their_connection(attacked: BrokerProcess) -> None:
    address = (attacked.host, attacked.port)
    descriptors = psutil.Process(attacked.pid).num_fds()
    before = memory(attacked)
    for _ in range(3):
        waiting = [socket.create_connection(address, DEADLINE_S) for _ in range(200)]
        for connection in waiting:
            connection.sendall(fetch_bytes(1, TOPIC, 600_000, 100 * MEGABYTE))
        use(attacked)
        for connection in waiting:
            connection.close()
        await_descriptors(attacked, descriptors + 5)
    assert memory(attacked) - before < 30 * MEGABYTE
