"""Produce requests that arrive in one read share a write, and behave as if they came one by one."""

from __future__ import annotations

import errno
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest

from barnabas.protocol.codec import decode_response, encode_request
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.log_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from barnabas.protocol.messages.metadata import FindCoordinatorRequest
from barnabas.protocol.messages.produce import PartitionProduceData, ProduceRequest
from barnabas.protocol.messages.transactions import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    InitProducerIdRequest,
)
from barnabas.record.builder import BatchBuilder
from barnabas.replication.requests.replica_appends import REQUESTS_MAX
from barnabas.sim.disk import DiskFault
from barnabas.storage.topic_partition import TopicPartition
from unit.runtime.streams import Recorder
from unit.server.simulated_broker import HOST, PORT, SimulatedBroker, produce_request

if TYPE_CHECKING:
    from barnabas.network.connection import Connection
    from barnabas.protocol.schema import Message

VERSION = 9
HOUR_MS = 3_600_000


class PipeliningClient:
    """A connection whose requests arrive at the broker in reads that the test determines."""

    def __init__(self, broker: SimulatedBroker, name: str = "pipelining") -> None:
        self._broker = broker
        self._recorder = Recorder()
        before = set(self._connections())
        sockets = broker.world.host(name).runtime.sockets
        sockets.connect(HOST, PORT, self._recorder, pytest.fail, 1_000)
        assert broker.world.run_until(lambda: len(self._connections()) > len(before))
        (self.connection,) = (each for each in self._connections() if each not in before)
        self._ids = count()
        self._sent: list[tuple[type[Message], int]] = []

    def _connections(self) -> list[Connection]:
        return self._broker.node.broker.listeners[0].connections

    def receive(self, *requests: Message, rest: bytes = b"") -> None:
        """Let the broker receive these requests in one read, and other bytes after them."""
        data = bytearray()
        for request in requests:
            version = 7 if isinstance(request, ListOffsetsRequest) else VERSION
            for chunk in encode_request(next(self._ids), "c", request, version):
                data += bytes(chunk)
            if not isinstance(request, ProduceRequest) or request.acks:
                self._sent.append((type(request), version))
        data += rest
        buffer = memoryview(self.connection.get_buffer(-1))
        buffer[: len(data)] = data
        self.connection.on_received(len(data))

    def responses(self) -> list[Any]:
        """Return all responses that have arrived, in their order."""
        self._broker.world.run_for(100)
        found, position = [], 0
        data = self._recorder.data
        for request_class, version in self._sent:
            if position == len(data):
                break
            length = int.from_bytes(data[position : position + 4])
            body = bytes(data[position + 4 : position + 4 + length])
            found.append(decode_response(request_class, version, body)[1])
            position += 4 + length
        return found

    @property
    def is_closed(self) -> bool:
        return self._recorder.closed


class CountedStream:
    """A stream that counts its writes."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self.writes = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, chunks: Any) -> Any:
        self.writes += 1
        return self._stream.write(chunks)


@pytest.fixture
def broker() -> SimulatedBroker:
    made = SimulatedBroker()
    made.make_topic("t", 2)
    for number in range(2):
        partition = made.node.broker.replicas.partition(TopicPartition("t", number))
        assert not isinstance(partition, ErrorCode)
        # Create the files, which would be created by the first append.
        partition.log.segments.active.prepare_append()
    return made


def results(responses: list[Any]) -> list[tuple[str, int]]:
    """Error and offset of each partition: base offset, or the log end of ListOffsets."""
    found = []
    for response in responses:
        for topic in getattr(response, "topics", None) or response.responses:
            for each in getattr(topic, "partitions", None) or topic.partition_responses:
                offset = each.offset if hasattr(each, "offset") else each.base_offset
                found.append((ErrorCode(each.error_code).name, offset))
    return found


def log_end(topic: str = "t", partition: int = 0) -> ListOffsetsRequest:
    return ListOffsetsRequest(
        replica_id=-1,
        isolation_level=0,
        topics=[
            ListOffsetsTopic(
                name=topic,
                partitions=[ListOffsetsPartition(partition_index=partition, timestamp=-1)],
            )
        ],
    )


def to_partition(partition: int, records: bytes) -> ProduceRequest:
    request = produce_request("t", records, 1)
    request.topic_data[0].partition_data[0].index = partition
    return request


def log_writes(broker: SimulatedBroker) -> list[str]:
    """The writes to files of batches since `call_log` was set."""
    calls = broker.host.disk.call_log
    assert calls is not None
    return [path for operation, path in calls if operation == "write" and path.endswith(".log")]


@pytest.mark.parametrize("acks", [1, -1])
def test_the_batches_of_one_read_are_written_with_one_call(
    broker: SimulatedBroker, acks: int
) -> None:
    client = PipeliningClient(broker)
    broker.host.disk.call_log = []
    client.receive(*(produce_request("t", broker.batch(b"a", b"b"), acks) for _ in range(4)))
    assert len(log_writes(broker)) == 1
    assert results(client.responses()) == [("NONE", 0), ("NONE", 2), ("NONE", 4), ("NONE", 6)]


@pytest.mark.parametrize("rest", [b"", bytes(3)], ids=["whole", "with the start of another one"])
def test_the_responses_to_one_read_leave_in_one_write(broker: SimulatedBroker, rest: bytes) -> None:
    client = PipeliningClient(broker)
    stream = client.connection._stream = CountedStream(client.connection.stream)
    append = produce_request("t", broker.batch(b"a"), 1)
    client.receive(append, append, append, rest=rest)
    assert stream.writes == 1
    assert len(client.responses()) == 3


def test_batches_without_acknowledgement_share_a_write_too(broker: SimulatedBroker) -> None:
    client = PipeliningClient(broker)
    broker.host.disk.call_log = []
    client.receive(*(produce_request("t", broker.batch(b"a"), 0) for _ in range(3)), log_end())
    assert len(log_writes(broker)) == 1
    assert results(client.responses()) == [("NONE", 3)]


def test_the_start_of_a_further_request_does_not_delay_the_write(broker: SimulatedBroker) -> None:
    client = PipeliningClient(broker)
    broker.host.disk.call_log = []
    requests = [produce_request("t", broker.batch(b"a"), 1) for _ in range(2)]
    client.receive(*requests, rest=bytes(3))
    assert len(log_writes(broker)) == 1
    assert results(client.responses()) == [("NONE", 0), ("NONE", 1)]


def test_each_partition_has_its_write(broker: SimulatedBroker) -> None:
    client = PipeliningClient(broker)
    one = broker.batch(b"a")
    both = produce_request("t", one, 1)
    both.topic_data[0].partition_data.append(PartitionProduceData(index=1, records=one))
    broker.host.disk.call_log = []
    client.receive(to_partition(0, one), to_partition(1, one), to_partition(0, one), both)
    assert len(log_writes(broker)) == 2
    assert results(client.responses()) == [
        ("NONE", 0), ("NONE", 0), ("NONE", 1), ("NONE", 2), ("NONE", 1),
    ]  # fmt: skip


def test_another_request_of_the_read_sees_the_batches_before_it(broker: SimulatedBroker) -> None:
    client = PipeliningClient(broker)
    append = produce_request("t", broker.batch(b"a"), 1)
    client.receive(append, append, log_end(), append, log_end())
    assert results(client.responses()) == [
        ("NONE", 0), ("NONE", 1), ("NONE", 2), ("NONE", 2), ("NONE", 3),
    ]  # fmt: skip


def test_duplicates_and_gaps_are_found_within_a_read(broker: SimulatedBroker) -> None:
    client = PipeliningClient(broker)

    def of(sequence: int) -> ProduceRequest:
        made = broker.batch(b"v", producer_id=7, producer_epoch=0, base_sequence=sequence)
        return produce_request("t", made, -1)

    client.receive(of(0), of(1), of(1), of(5), of(2))
    assert results(client.responses()) == [
        ("NONE", 0), ("NONE", 1), ("NONE", 1), ("OUT_OF_ORDER_SEQUENCE_NUMBER", -1), ("NONE", 2),
    ]  # fmt: skip


def test_a_damaged_batch_fails_alone(broker: SimulatedBroker) -> None:
    client = PipeliningClient(broker)
    damaged = bytearray(broker.batch(b"a"))
    damaged[-1] ^= 1
    good = produce_request("t", broker.batch(b"a"), 1)
    client.receive(good, produce_request("t", bytes(damaged), 1), good)
    assert results(client.responses()) == [("NONE", 0), ("CORRUPT_MESSAGE", -1), ("NONE", 1)]


def test_a_batch_that_takes_several_turns_keeps_its_place(broker: SimulatedBroker) -> None:
    broker.make_topic("late", message_timestamp_after_max_ms=str(2 * HOUR_MS))
    client = PipeliningClient(broker)
    # The records of a batch with a late timestamp are read, which takes several turns.
    builder = BatchBuilder()
    for _ in range(20_000):
        builder.append(broker.host.clock.wall_ms() + HOUR_MS + 1_000, None, b"v")
    good = produce_request("late", broker.batch(b"a"), 1)
    client.receive(good, produce_request("late", bytes(builder.build()), 1), good)
    assert results(client.responses()) == [("NONE", 0), ("NONE", 1), ("NONE", 20_001)]


def test_a_batch_whose_records_are_read_at_once_keeps_its_place(broker: SimulatedBroker) -> None:
    broker.make_topic("late", message_timestamp_after_max_ms=str(2 * HOUR_MS))
    client = PipeliningClient(broker)
    builder = BatchBuilder()
    builder.append(broker.host.clock.wall_ms() + HOUR_MS + 1_000, None, b"v")
    good = produce_request("late", broker.batch(b"a"), 1)
    client.receive(good, produce_request("late", bytes(builder.build()), 1), good)
    assert results(client.responses()) == [("NONE", 0), ("NONE", 1), ("NONE", 2)]


def test_after_a_batch_without_acknowledgement_is_rejected_no_later_one_is_appended(
    broker: SimulatedBroker,
) -> None:
    client = PipeliningClient(broker)
    batches = [
        broker.batch(b"v", producer_id=7, producer_epoch=0, base_sequence=sequence)
        for sequence in (0, 5, 1)
    ]
    client.receive(*(produce_request("t", each, 0) for each in batches))
    assert broker.world.run_until(lambda: client.is_closed)
    assert broker.produce("t", b"v").base_offset == 1


def test_a_batch_that_is_appended_alone_does_not_overtake_earlier_ones(
    broker: SimulatedBroker,
) -> None:
    client = PipeliningClient(broker)
    alone = broker.batch(b"v", producer_id=7, producer_epoch=0, base_sequence=0)
    append = produce_request("t", broker.batch(b"a"), 1)
    client.receive(append, produce_request("t", alone, 0), append)
    assert results(client.responses()) == [("NONE", 0), ("NONE", 2)]


def test_an_invalid_number_of_acknowledgements_is_refused(broker: SimulatedBroker) -> None:
    client = PipeliningClient(broker)
    client.receive(*[produce_request("t", broker.batch(b"a"), 2)] * 2)
    assert results(client.responses()) == [("INVALID_REQUIRED_ACKS", -1)] * 2
    assert broker.produce("t", b"v").base_offset == 0


def test_the_second_batch_of_a_transaction_in_a_read_needs_no_verification(
    broker: SimulatedBroker,
) -> None:
    broker.ask(FindCoordinatorRequest(coordinator_keys=["x"], key_type=1), 4)
    broker.world.run_for(1_000)
    owner = InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=60_000)
    made = broker.ask(owner, 4)
    topics = [AddPartitionsToTxnTopic(name="t", partitions=[0])]
    added = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="x",
        v3_and_below_producer_id=made.producer_id,
        v3_and_below_producer_epoch=made.producer_epoch,
        v3_and_below_topics=topics,
    )
    assert broker.ask(added, 3).results_by_topic_v3_and_below
    client = PipeliningClient(broker)
    requests = []
    for sequence in range(3):
        batch = broker.batch(
            b"v",
            producer_id=made.producer_id,
            producer_epoch=made.producer_epoch,
            base_sequence=sequence,
            transactional=True,
        )
        request = produce_request("t", batch, -1)
        request.transactional_id = "x"
        requests.append(request)
    client.receive(*requests)
    assert results(client.responses()) == [("NONE", 0), ("NONE", 1), ("NONE", 2)]
    assert broker.node.broker._verification.times.count == 1


@pytest.mark.parametrize("acks", [0, 1, -1])
def test_a_failed_write_fails_all_requests_of_the_read(acks: int) -> None:
    broker = SimulatedBroker(log_dirs="/one,/two")
    broker.make_topic("t", 2)
    directory = broker.node.broker.logs.directory_of(TopicPartition("t", 0))
    assert directory is not None
    client = PipeliningClient(broker)
    batch = broker.batch(b"a")
    assert broker.produce("t", b"a").base_offset == 0
    path = f"{directory.path}/t-0"
    broker.host.disk.faults.append(DiskFault(path, ("write",), errno.ENOSPC))
    client.receive(*(produce_request("t", batch, acks) for _ in range(3)))
    if acks:
        assert results(client.responses()) == [("KAFKA_STORAGE_ERROR", -1)] * 3
    else:
        assert broker.world.run_until(lambda: client.is_closed)
    broker.host.disk.faults.clear()
    broker.stop()
    broker.restart()
    assert broker.produce("t", b"b").base_offset == 1


def test_requests_before_an_invalid_one_are_appended(broker: SimulatedBroker) -> None:
    client = PipeliningClient(broker)
    append = produce_request("t", broker.batch(b"a"), 1)
    invalid = b"\x00\x00\x00\x04\x7f\xff\x00\x00"
    client.receive(append, append, rest=invalid)
    assert broker.world.run_until(lambda: client.is_closed)
    assert broker.produce("t", b"b").base_offset == 2


def test_a_client_with_a_quota_is_served_one_request_after_the_other(
    broker: SimulatedBroker,
) -> None:
    client = PipeliningClient(broker)
    append = produce_request("t", broker.batch(b"a"), 1)
    broker.node.shared.quotas.is_active = True
    broker.host.disk.call_log = []
    client.receive(append, append)
    assert len(log_writes(broker)) == 2


def test_acknowledgements_wait_for_the_sync_of_the_joint_write(broker: SimulatedBroker) -> None:
    broker.make_topic("synced", flush_messages="1")
    client = PipeliningClient(broker)
    append = produce_request("synced", broker.batch(b"a"), 1)
    client.receive(append, append)
    assert broker.node.broker.replicas.waiting()["Produce"] == 2
    assert results(client.responses()) == [("NONE", 0), ("NONE", 1)]
    times = broker.node.shared.statistics.by_api[0]
    counts = [each.count for each in (times.parked_local, times.remote, times.parked_total)]
    assert (counts, times.immediate.count) == ([2, 2, 2], 0)


def test_each_request_of_a_joint_append_is_counted_once(broker: SimulatedBroker) -> None:
    client = PipeliningClient(broker)
    append = produce_request("t", broker.batch(b"a"), 1)
    client.receive(*[append] * (REQUESTS_MAX + 3))
    assert len(client.responses()) == REQUESTS_MAX + 3
    times = broker.node.shared.statistics.by_api[0]
    assert (times.requests, times.immediate.count) == (REQUESTS_MAX + 3, REQUESTS_MAX + 3)
    assert (times.parked_total.count, times.request_queue.count) == (0, 0)


def test_too_few_replicas_refuse_each_request(broker: SimulatedBroker) -> None:
    broker.make_topic("safe", min_insync_replicas="1")
    client = PipeliningClient(broker)
    append = produce_request("safe", broker.batch(b"a"), -1)
    partition = broker.node.broker.replicas.partition(TopicPartition("safe", 0))
    assert not isinstance(partition, ErrorCode)
    assert partition.leader is not None
    partition.leader.isr_state = type(partition.leader.isr_state).committed(())
    client.receive(append, append)
    assert results(client.responses()) == [("NOT_ENOUGH_REPLICAS", -1)] * 2


def test_more_requests_than_one_write_takes_stay_in_order(broker: SimulatedBroker) -> None:
    client = PipeliningClient(broker)
    append = produce_request("t", broker.batch(b"a"), 1)
    broker.host.disk.call_log = []
    client.receive(*([append] * 70))
    assert len(log_writes(broker)) == 3
    assert results(client.responses()) == [("NONE", number) for number in range(70)]
