"""Loads of clients that cost less than the brokers: prepared bytes over plain sockets.

A sender has its Produce requests in a file in memory, and the kernel sends them by `sendfile`. A
reader sends prepared Fetch requests, and the kernel discards the responses (`MSG_TRUNC`). Neither
looks at records. Each runs in a process of its own, with a connection to every leader, and reports
its processor time.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import struct
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from barnabas.protocol.codec import encode_request
from barnabas.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from barnabas.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from barnabas.record.builder import BatchBuilder

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

PRODUCE_VERSION, FETCH_VERSION = 7, 4
# Bytes that a sender gives to the kernel at once, and trains of that size in flight.
TRAIN_BYTES = 256 * 1024
TRAINS = 2
# Bytes of one Fetch response, at most, and requests in flight of a connection.
FETCH_BYTES = 1 << 20
FETCHES = 2
LIMIT_S = 120.0
_LENGTH = struct.Struct(">i")


class Leader(NamedTuple):
    """A partition, and the address of its leader."""

    host: str
    port: int
    partition: int


@dataclass(frozen=True)
class Batch:
    """A prepared batch."""

    records: int
    # Bytes of the values.
    value_bytes: int
    encoded: bytes

    @property
    def per_train(self) -> int:
        """Number of batches that a sender gives to the kernel at once."""
        return max(1, TRAIN_BYTES // len(self.encoded))

    def trains(self, total: int, partitions: int) -> int:
        """Return the trains of each partition, for `total` bytes of values in all partitions."""
        return max(1, round(total / partitions / self.value_bytes / self.per_train))

    def sent_bytes(self, total: int, partitions: int) -> int:
        """Return the bytes of values in these trains."""
        return self.trains(total, partitions) * partitions * self.per_train * self.value_bytes


@dataclass(frozen=True)
class Spent:
    """What all clients together have done."""

    seconds: float
    cpu_seconds: float


def prepared_batch(record_bytes: int, batch_bytes: int) -> Batch:
    """Return a batch of at most `batch_bytes` with random values of one size."""
    builder = BatchBuilder()
    value, count = os.urandom(record_bytes // 2).hex().encode(), 0
    # Each record has some bytes of lengths and offsets.
    while (count + 1) * (record_bytes + 10) < batch_bytes:
        builder.append(int(time.time() * 1000), None, value)
        count += 1
    return Batch(count, count * record_bytes, bytes(builder.build()))


def _joined(request: ProduceRequest | FetchRequest, version: int) -> bytes:
    return b"".join(bytes(chunk) for chunk in encode_request(1, "bench", request, version))


def _produce_train(topic: str, partition: int, batch: Batch, acks: int) -> bytes:
    """Return requests that are sent together."""
    data = PartitionProduceData(index=partition, records=batch.encoded)
    topics = [TopicProduceData(name=topic, partition_data=[data])]
    request = ProduceRequest(acks=acks, timeout_ms=30_000, topic_data=topics)
    return _joined(request, PRODUCE_VERSION) * batch.per_train


def fetch_request(topic: str, partition: int, offset: int, size: int) -> bytes:
    """Return a Fetch request for at most `size` bytes of one partition."""
    wanted = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=size)
    request = FetchRequest(
        replica_id=-1,
        max_wait_ms=10_000,
        min_bytes=1,
        max_bytes=size,
        isolation_level=0,
        topics=[FetchTopic(topic=topic, partitions=[wanted])],
    )
    return _joined(request, FETCH_VERSION)


def _connect(leader: Leader) -> socket.socket:
    connection = socket.create_connection((leader.host, leader.port), timeout=LIMIT_S)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


class _Sender:
    """Sends trains of requests to one partition, with a limited number in flight."""

    def __init__(self, leader: Leader, train: bytes, per_train: int, trains: int) -> None:
        self.socket = _connect(leader)
        self.socket.setblocking(False)
        self._per_train = per_train
        self._bytes = len(train)
        self._file = os.memfd_create("bench-requests")
        os.write(self._file, train)
        self._trains_left = trains
        # Position within the train that is being sent.
        self._sent = 0
        # Requests that are sent or being sent and not acknowledged.
        self._in_flight = 0
        self._received = b""

    @property
    def is_over(self) -> bool:
        return not self._trains_left and not self._in_flight

    @property
    def events(self) -> int:
        """What the sender waits for."""
        may_send = self._sent or (
            self._trains_left and self._in_flight <= (TRAINS - 1) * self._per_train
        )
        return select.EPOLLIN | (select.EPOLLOUT if may_send else 0)

    def send(self) -> None:
        """Send as much as the kernel takes."""
        if not self._sent:
            self._trains_left -= 1
            self._in_flight += self._per_train
        try:
            left = self._bytes - self._sent
            self._sent += os.sendfile(self.socket.fileno(), self._file, self._sent, left)
        except BlockingIOError:
            return
        if self._sent == self._bytes:
            self._sent = 0

    def receive(self) -> None:
        """Count the responses, and check the first error code of each."""
        data = self.socket.recv(1 << 16)
        if not data:
            raise ConnectionError("the broker has closed the connection")
        data = self._received + data
        position = 0
        while len(data) - position >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(data, position)
            end = position + _LENGTH.size + length
            if len(data) < end:
                break
            _check_produced(data[position + _LENGTH.size : end])
            self._in_flight -= 1
            position = end
        self._received = data[position:]


def _check_produced(response: bytes) -> None:
    """Raise an error unless a Produce v7 response for one partition has no error."""
    # Correlation id, number of topics, name, number of partitions, index, error code.
    (name_bytes,) = struct.unpack_from(">h", response, 8)
    (error,) = struct.unpack_from(">h", response, 10 + name_bytes + 8)
    if error:
        raise ConnectionError(f"a batch was refused with error code {error}")


def _await_events(poll: select.epoll) -> list[tuple[int, int]]:
    ready = poll.poll(LIMIT_S)
    if not ready:
        raise TimeoutError(f"no response within {LIMIT_S:g} s")
    return ready


def send_batches(
    topic: str, leaders: Sequence[Leader], batch: Batch, total: int, acks: int
) -> None:
    """Produce `total` bytes of values to the partitions in equal parts."""
    senders = {}
    for leader in leaders:
        train = _produce_train(topic, leader.partition, batch, acks)
        trains = batch.trains(total, len(leaders))
        sender = _Sender(leader, train, batch.per_train, trains)
        senders[sender.socket.fileno()] = sender
    poll = select.epoll()
    watched = {}
    for descriptor, sender in senders.items():
        watched[descriptor] = sender.events
        poll.register(descriptor, sender.events)
    while senders:
        for descriptor, event in _await_events(poll):
            sender = senders[descriptor]
            if event & ~select.EPOLLOUT:
                sender.receive()
            if event & select.EPOLLOUT:
                sender.send()
            if sender.is_over:
                poll.unregister(descriptor)
                del senders[descriptor]
            elif sender.events != watched[descriptor]:
                watched[descriptor] = sender.events
                poll.modify(descriptor, sender.events)


class _Reader:
    """Reads one partition from its start to its end."""

    def __init__(self, topic: str, leader: Leader, batch: Batch, batches: int) -> None:
        self.socket = _connect(leader)
        self._topic = topic
        self._partition = leader.partition
        self._batch = batch
        self._offset = 0
        self._per_fetch = max(1, FETCH_BYTES // len(batch.encoded))
        # Requests that are still to be sent.
        self._left = max(1, batches // self._per_fetch)
        # Requests that are not answered, and bytes that are missing of the current response.
        self._in_flight = 0
        self._missing = 0
        self._buffer = bytearray(FETCH_BYTES)
        for _ in range(min(FETCHES, self._left)):
            self._request()

    @property
    def is_over(self) -> bool:
        return not self._in_flight

    def _request(self) -> None:
        size = self._per_fetch * len(self._batch.encoded)
        self.socket.sendall(fetch_request(self._topic, self._partition, self._offset, size))
        self._offset += self._per_fetch * self._batch.records
        self._left -= 1
        self._in_flight += 1

    def receive(self) -> None:
        """Discard what has arrived; send the next request after each response."""
        if not self._missing:
            length = self.socket.recv(_LENGTH.size, socket.MSG_WAITALL)
            if len(length) < _LENGTH.size:
                raise ConnectionError("the broker has closed the connection")
            (self._missing,) = _LENGTH.unpack(length)
            wanted = self._per_fetch * len(self._batch.encoded)
            if self._missing < wanted:
                raise ConnectionError(f"a response has {self._missing} bytes instead of {wanted}")
        wanted = min(self._missing, len(self._buffer))
        self._missing -= self.socket.recv_into(self._buffer, wanted, socket.MSG_TRUNC)
        if not self._missing:
            self._in_flight -= 1
            if self._left > 0:
                self._request()


def read_batches(topic: str, leaders: Sequence[Leader], batch: Batch, total: int) -> None:
    """Fetch what one client has sent with the same arguments."""
    readers = {}
    batches = batch.trains(total, len(leaders)) * batch.per_train
    poll = select.epoll()
    for leader in leaders:
        reader = _Reader(topic, leader, batch, batches)
        readers[reader.socket.fileno()] = reader
        poll.register(reader.socket.fileno(), select.EPOLLIN)
    while readers:
        for descriptor, _ in _await_events(poll):
            reader = readers[descriptor]
            reader.receive()
            if reader.is_over:
                poll.unregister(descriptor)
                del readers[descriptor]


def run_clients(works: Sequence[Callable[[], None]]) -> Spent:
    """Run each of `works` in a process of its own, and return what they spent together.

    Raises:
        SystemExit: a client has failed.
    """
    started = time.perf_counter()
    children = []
    for work in works:
        source, sink = os.pipe()
        pid = os.fork()
        if pid == 0:
            _run_client(work, sink)
        os.close(sink)
        children.append((pid, source))
    cpu, failures = 0.0, []
    for pid, source in children:
        with os.fdopen(source, "rb") as report:
            found = json.loads(report.read() or b'{"error": "a client was killed"}')
        os.waitpid(pid, 0)
        cpu += found.get("cpu", 0.0)
        failures += [found["error"]] if "error" in found else []
    if failures:
        raise SystemExit(f"a client has failed: {failures[0]}")
    return Spent(time.perf_counter() - started, cpu)


def _run_client(work: Callable[[], None], sink: int) -> NoReturn:
    report: dict[str, object] = {}
    try:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        before = time.process_time()
        work()
        report["cpu"] = time.process_time() - before
    except BaseException as error:  # noqa: BLE001 - reported to the parent
        report["error"] = repr(error)
    os.write(sink, json.dumps(report).encode())
    os._exit(0)
