"""Clients that misuse connections affect neither the broker nor other clients.

Each test measures the memory of the broker, and checks that a polite client is served.
"""

from __future__ import annotations

import contextlib
import resource
import select
import socket
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from barnabas.protocol.codec import encode_request, peek_correlation_id
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.configs import (
    AlterClientQuotasRequest,
    EntityDataRequest,
    EntryDataRequest,
    OpData,
)
from barnabas.protocol.messages.connection import ApiVersionsRequest
from barnabas.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from barnabas.protocol.messages.groups import JoinGroupRequest, JoinGroupRequestProtocol
from barnabas.protocol.messages.metadata import FindCoordinatorRequest, MetadataRequest
from barnabas.protocol.schema import Message
from barnabas.testing.broker_process import BrokerProcess
from conformance.crowds import LONG_BACKLOG
from conformance.raw_client import RawClient
from waiting import eventually

MEGABYTE = 1_000_000
TOPIC = "bystanders"
DEADLINE_S = 90
LINGER_ZERO = struct.pack("ii", 1, 0)


@pytest.fixture(scope="module")
def attacked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("attacked"), LONG_BACKLOG) as broker:
        use(broker)
        yield broker


@pytest.fixture
def connect(attacked: BrokerProcess) -> Iterator[Callable[[], socket.socket]]:
    """Return a function that opens connections; all are closed after the test."""
    with contextlib.ExitStack() as stack:
        address = (attacked.host, attacked.port)
        yield lambda: stack.enter_context(socket.create_connection(address, DEADLINE_S))


@pytest.fixture(autouse=True)
def bystander(attacked: BrokerProcess) -> Iterator[None]:
    """A polite client that is served after the test."""
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


def request_bytes(
    correlation_id: int, request: Message, version: int, client_id: str = "hostile"
) -> bytes:
    chunks = encode_request(correlation_id, client_id, request, version)
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
        # At most a length of 100 MB and a few bytes of the request.
        connect().sendall(start)
    use(attacked)
    assert memory(attacked) - before < 10 * MEGABYTE


def test_an_incomplete_large_request_holds_only_the_sent_bytes(
    attacked: BrokerProcess, connect: Callable[[], socket.socket]
) -> None:
    before = memory(attacked)
    for _ in range(4):
        connect().sendall(struct.pack(">i", 90 * MEGABYTE) + bytes(MEGABYTE))
    use(attacked)
    assert memory(attacked) - before < 20 * MEGABYTE


def test_a_request_sent_byte_by_byte_gets_a_response(
    connect: Callable[[], socket.socket],
) -> None:
    connection = connect()
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for byte in request_bytes(7, ApiVersionsRequest(), 0):
        connection.sendall(bytes([byte]))
        time.sleep(0.002)
    assert peek_correlation_id(receive_frame(connection)) == 7


def test_unread_responses_are_bounded_and_complete(
    attacked: BrokerProcess, connect: Callable[[], socket.socket]
) -> None:
    producer = Producer({"bootstrap.servers": attacked.bootstrap, "batch.size": 200_000})
    for _ in range(40):
        producer.produce("unread", bytes(100_000), partition=0)
    assert producer.flush(DEADLINE_S) == 0
    before = memory(attacked)
    connections = [connect() for _ in range(20)]
    for connection in connections:
        # 50 MB of responses for each connection.
        connection.sendall(b"".join(fetch_bytes(i, "unread", 0, 0) for i in range(50)))
    use(attacked)
    assert memory(attacked) - before < 60 * MEGABYTE
    for number in range(50):
        frame = receive_frame(connections[0])
        assert peek_correlation_id(frame) == number
        assert len(frame) > 900_000


def test_a_flood_of_pipelined_requests_gets_responses_in_order(
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
    response_count = 0
    while response_count < count:
        to_send = [connection] if flood else []
        assert any(select.select([connection], to_send, [], DEADLINE_S)[:2]), response_count
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
            assert int.from_bytes(received[position + 4 : position + 8]) == response_count
            response_count += 1
            position += size
        del received[:position]
    assert memory(attacked) - before < 30 * MEGABYTE


def test_many_short_connections_leave_no_memory_in_use(attacked: BrokerProcess) -> None:
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


def test_delayed_requests_end_with_their_connection(attacked: BrokerProcess) -> None:
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


# Floods that a single client can send. Each is bounded, and so is the broker's memory for it.


def await_coordinator(broker: BrokerProcess) -> None:
    raw = RawClient(broker.bootstrap)
    request = FindCoordinatorRequest(key_type=0, coordinator_keys=["flood"])

    def is_available() -> bool:
        response: Any = raw.ask(request, 4)
        return bool(response.coordinators[0].error_code == ErrorCode.NONE)

    eventually(is_available, lambda: "no coordinator")
    raw.close()


def send_all_of(connections: list[socket.socket], data: bytes, most: int) -> None:
    """Send up to `most` bytes to each connection, until the broker reads no more."""
    for connection in connections:
        connection.setblocking(False)
    left = dict.fromkeys(connections, most)
    last_sent_s = time.monotonic()
    while left and time.monotonic() - last_sent_s < 2.0:
        for connection in list(left):
            try:
                sent = connection.send(data[: left[connection]])
            except BlockingIOError:
                continue
            except OSError:
                sent = most
            last_sent_s = time.monotonic()
            left[connection] -= sent
            if left[connection] <= 0:
                del left[connection]
        time.sleep(0.001)


def test_large_requests_that_never_end_share_one_budget(tmp_path: Path) -> None:
    budget = 40 * MEGABYTE
    settings = {
        "queued.max.request.bytes": str(budget),
        "socket.request.max.bytes": str(budget),
        "message.max.bytes": str(10 * MEGABYTE),
    }
    with BrokerProcess(tmp_path, settings) as broker, contextlib.ExitStack() as stack:
        use(broker)
        before = memory(broker)
        address = (broker.host, broker.port)
        connections = [
            stack.enter_context(socket.create_connection(address, DEADLINE_S)) for _ in range(40)
        ]
        for connection in connections:
            connection.sendall(struct.pack(">i", 30 * MEGABYTE))
        send_all_of(connections, bytes(MEGABYTE), 20 * MEGABYTE)
        # The memory exceeds the budget, because buffers are copied as they grow, and the allocator
        # keeps freed memory. Without a budget the connections would hold 800 MB.
        assert memory(broker) - before < 4 * budget
        # A request that is larger than the rest of the budget is served later.
        producer = Producer(
            {"bootstrap.servers": broker.bootstrap, "message.max.bytes": 10 * MEGABYTE}
        )
        errors: list[object] = []
        producer.produce("large", bytes(5 * MEGABYTE), on_delivery=lambda e, _m: errors.append(e))
        assert producer.flush(DEADLINE_S) == 0
        assert errors == [None]
        use(broker)


def test_unread_responses_of_the_metrics_listener_are_bounded(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path, {"metrics.listener": "127.0.0.1:0"}) as broker:
        host, _, port = broker.metrics_address.rpartition(":")
        address = (host, int(port))
        before = memory(broker)
        with contextlib.ExitStack() as stack:
            # More silent connections than the listener keeps, then connections that only send.
            connections = [
                stack.enter_context(socket.create_connection(address, DEADLINE_S))
                for _ in range(24)
            ]
            request = b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"
            send_all_of(connections[-8:], request * 20_000, 40 * MEGABYTE)
            assert memory(broker) - before < 60 * MEGABYTE
            scraper = stack.enter_context(socket.create_connection(address, DEADLINE_S))
            scraper.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            assert receive(scraper, 12) == b"HTTP/1.1 200"


def test_members_with_large_subscriptions_are_refused_in_time(attacked: BrokerProcess) -> None:
    await_coordinator(attacked)
    before = memory(attacked)
    protocols = [
        JoinGroupRequestProtocol(name=f"p{number}", metadata=bytes(MEGABYTE))
        for number in range(12)
    ]
    members = [RawClient(attacked.bootstrap) for _ in range(20)]
    for member in members:
        request = JoinGroupRequest(
            group_id="flood",
            session_timeout_ms=30_000,
            rebalance_timeout_ms=600_000,
            member_id="",
            protocol_type="consumer",
            protocols=protocols,
        )
        member.send(request, 3)
    # The first five fit, and wait for each other; without a limit 240 MB would be kept.
    refused = [member.receive(JoinGroupRequest, 3) for member in members[5:]]
    assert {each.error_code for each in refused} == {ErrorCode.GROUP_MAX_SIZE_REACHED}
    assert memory(attacked) - before < 150 * MEGABYTE
    for member in members:
        member.close()


def test_ids_of_members_that_never_join_are_forgotten(attacked: BrokerProcess) -> None:
    await_coordinator(attacked)
    raw = RawClient(attacked.bootstrap)
    before = memory(attacked)
    request = JoinGroupRequest(
        group_id="pending",
        session_timeout_ms=1_800_000,
        rebalance_timeout_ms=600_000,
        member_id="",
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
    )
    for _ in range(3_000):
        response: Any = raw.ask(request, 5)
        assert response.error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert memory(attacked) - before < 15 * MEGABYTE
    raw.close()


def test_a_fetch_session_of_missing_partitions_ends(attacked: BrokerProcess) -> None:
    raw = RawClient(attacked.bootstrap)
    before = memory(attacked)
    session, epoch, forgotten = 0, 0, 0
    for number in range(20):
        partitions = [
            FetchPartition(partition=each, fetch_offset=0, partition_max_bytes=1)
            for each in range(10_000)
        ]
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=1,
            max_bytes=MEGABYTE,
            session_id=session,
            session_epoch=epoch,
            topics=[FetchTopic(topic=f"nothing-{number}", partitions=partitions)],
        )
        if not session:
            request.topics[0].partitions = partitions[:1]
        response: Any = raw.ask(request, 12)
        if response.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
            session, epoch, forgotten = 0, 0, forgotten + 1
        else:
            session, epoch = response.session_id, epoch + 1
    assert forgotten == 10
    assert memory(attacked) - before < 30 * MEGABYTE
    raw.close()


def test_endless_fetches_end_with_their_connection(
    attacked: BrokerProcess,
) -> None:
    address = (attacked.host, attacked.port)
    descriptors = psutil.Process(attacked.pid).num_fds()
    before = memory(attacked)
    for _ in range(3):
        waiting = [socket.create_connection(address, DEADLINE_S) for _ in range(20)]
        for connection in waiting:
            # More requests than the broker processes at a time, so it does not read the end.
            fetches = (fetch_bytes(i, TOPIC, 0x7FFF_FFFF, 100 * MEGABYTE) for i in range(300))
            connection.sendall(b"".join(fetches))
        use(attacked)
        for connection in waiting:
            connection.close()
        await_descriptors(attacked, descriptors + 5)
    assert memory(attacked) - before < 40 * MEGABYTE


def test_many_small_requests_behind_delayed_fetches_hold_little_memory(
    attacked: BrokerProcess, connect: Callable[[], socket.socket]
) -> None:
    before = memory(attacked)
    waiting = b"".join(fetch_bytes(i, TOPIC, 60_000, 100 * MEGABYTE) for i in range(128))
    flood = waiting + request_bytes(200, ApiVersionsRequest(), 0) * 20_000
    connections = [connect() for _ in range(40)]
    send_all_of(connections, flood, len(flood))
    use(attacked)
    assert memory(attacked) - before < 60 * MEGABYTE


def test_the_number_of_tracked_client_ids_is_bounded(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as broker:
        raw = RawClient(broker.bootstrap)
        any_client = EntityDataRequest(entity_type="client-id", entity_name=None)
        ops = [OpData(key="request_percentage", value=50.0, remove=False)]
        entries = [EntryDataRequest(entity=[any_client], ops=ops)]
        raw.ask(AlterClientQuotasRequest(entries=entries, validate_only=False), 1)
        raw.close()
        before = memory(broker)
        connection = socket.create_connection((broker.host, broker.port), DEADLINE_S)
        for number in range(0, 20_000, 100):
            batch = [
                b"".join(
                    bytes(chunk)
                    for chunk in encode_request(
                        each, f"{each}" * 500, MetadataRequest(topics=[]), 9
                    )
                )
                for each in range(number, number + 100)
            ]
            connection.sendall(b"".join(batch))
            for _ in batch:
                receive_frame(connection)
        assert memory(broker) - before < 30 * MEGABYTE
        connection.close()


def test_a_peer_that_never_reads_is_disconnected(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path, {"connections.max.idle.ms": "1000"}) as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap, "batch.size": 200_000})
        for _ in range(40):
            producer.produce("unread", bytes(100_000), partition=0)
        assert producer.flush(DEADLINE_S) == 0
        del producer
        process = psutil.Process(broker.pid)

        def served() -> int:
            return sum(
                each.status == psutil.CONN_ESTABLISHED and each.laddr.port == broker.port
                for each in process.net_connections("tcp")
            )

        with contextlib.ExitStack() as stack:
            for _ in range(10):
                address = (broker.host, broker.port)
                connection = stack.enter_context(socket.create_connection(address, DEADLINE_S))
                connection.sendall(b"".join(fetch_bytes(i, "unread", 0, 0) for i in range(20)))
            eventually(lambda: served() >= 10, lambda: f"{served()} connections")
            eventually(lambda: served() == 0, lambda: f"{served()} connections are kept")


def test_client_text_cannot_forge_log_lines(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path, {"barnabas.log.level": "debug"}) as broker:
        await_coordinator(broker)
        forged = "\n2026-01-01 00:00:00,000 CRITICAL barnabas.server: forged\x1b[31m"
        raw = RawClient(broker.bootstrap)
        request = JoinGroupRequest(
            group_id=f"g{forged}",
            session_timeout_ms=30_000,
            rebalance_timeout_ms=30_000,
            member_id="",
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name=f"p{forged}", metadata=b"")],
            reason=forged,
        )

        def has_member_id() -> bool:
            response: Any = raw.ask(request, 8)
            request.member_id = response.member_id
            return bool(response.error_code == ErrorCode.MEMBER_ID_REQUIRED)

        eventually(has_member_id, "the group's coordinator is not available")
        raw.send(request, 8)
        raw.close()
        eventually(lambda: "forged" in broker.log(), broker.log)
        lines = [line for line in broker.log().splitlines() if "forged" in line]
        assert not any(line.startswith("2026-01-01") for line in lines)
        assert "\x1b" not in broker.log()
