"""Sending: order of retries, sequences, epochs, and the outcome of each batch."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.client.connections.connections import deliver_response
from barnabas.client.connections.metadata_cache import NodeInfo
from barnabas.client.errors import ClientError, DeliveryTimeoutError, UnusableResponseError
from barnabas.client.producer.accumulator import Accumulator
from barnabas.client.producer.producer_batch import ProducerBatch
from barnabas.client.producer.sender import Sender
from barnabas.client.topic_partition import TopicPartition
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from barnabas.protocol.messages.transactions import InitProducerIdResponse
from barnabas.record.batch import check_crc, read_header
from unit.client.scripted_cluster import TOPIC_ID, ScriptedCluster

TP = TopicPartition("t", 0)


class Setup:
    """A sender with batches of one record each."""

    def __init__(self, **keys: object) -> None:
        self.cluster = ScriptedCluster(batch_size=150, linger_ms=1000, **keys)
        self.settled: list[tuple[int, ClientError | None]] = []
        cluster: Any = self.cluster
        self.sender = Sender(cluster, self.cluster.config, self._on_completed)
        time: Any = self.cluster.time
        self.accumulator = Accumulator(self.cluster.config, time, time, self.sender.pump)
        self.sender.attach(self.accumulator)
        self.epoch = 0

    def _on_completed(self, batch: ProducerBatch, error: ClientError | None) -> None:
        self.settled.append((batch.count, error))

    def send(self, count: int) -> None:
        for number in range(count):
            self.accumulator.append(TP, (None, b"%100d" % number, (), None), 0, None)
        self.accumulator.make_all_due()
        self.sender.pump()

    def send_together(self, count: int) -> None:
        """One batch of `count` records."""
        for _ in range(count):
            self.accumulator.append(TP, (None, b"x", (), None), 0, None)
        self.accumulator.close_open(self.accumulator.queue(TP))
        self.sender.pump()

    def give_id(self, *, is_known: bool = True) -> None:
        """Respond with a producer id; with `is_known` the leader already has a batch of it."""
        if is_known:
            self.accumulator.queue(TP).known_producer_id = 9
        request, answer = self.cluster.take(4)
        assert request.transactional_id is None
        answer(
            InitProducerIdResponse(
                throttle_time_ms=0, error_code=0, producer_id=9, producer_epoch=self.epoch
            )
        )
        self.epoch += 1

    def produced(self) -> tuple[tuple[int, int], Any]:
        """Epoch and base sequence of the oldest request in flight, and its answer."""
        request, answer = self.cluster.take(13)
        ((partition,),) = (topic.partition_data for topic in request.topic_data)
        header = read_header(partition.records)
        assert check_crc(partition.records, 0, header)

        def settle(code: int = 0, offset: int = 0) -> None:
            result = PartitionProduceResponse(index=0, error_code=code, base_offset=offset)
            topic = TopicProduceResponse(topic_id=TOPIC_ID, partition_responses=[result])
            answer(ProduceResponse(responses=[topic]))

        return (header.producer_epoch, header.base_sequence), settle


def test_no_batch_is_sent_before_the_producer_has_an_id() -> None:
    setup = Setup()
    setup.send(1)
    setup.give_id()
    assert setup.produced()[0] == (0, 0)


def test_at_most_five_requests_are_in_flight() -> None:
    setup = Setup()
    setup.send(7)
    setup.give_id()
    assert len(setup.cluster.calls) == 5
    setup.produced()[1]()
    assert len(setup.cluster.calls) == 5


def test_the_first_batch_of_a_producer_is_sent_alone() -> None:
    setup = Setup()
    setup.send(3)
    setup.give_id(is_known=False)
    assert len(setup.cluster.calls) == 1
    setup.produced()[1](ErrorCode.NOT_LEADER_OR_FOLLOWER)
    setup.cluster.time.advance(2000)
    assert len(setup.cluster.calls) == 1
    sequence, settle = setup.produced()
    assert sequence == (0, 0)
    settle()
    setup.cluster.time.advance(2000)
    assert len(setup.cluster.calls) == 2


def test_retries_are_sent_one_by_one_in_order() -> None:
    setup = Setup()
    setup.send(3)
    setup.give_id()
    for _ in range(3):
        setup.cluster.disconnect()
    assert setup.cluster.updates_requested
    sequences = []
    for _ in range(3):
        setup.cluster.time.advance(2000)
        assert len(setup.cluster.calls) == 1
        sequence, settle = setup.produced()
        sequences.append(sequence)
        settle()
        setup.cluster.time.advance(2000)
    assert sequences == [(0, 0), (0, 1), (0, 2)]
    assert setup.settled == [(1, None)] * 3


def test_an_unanswered_batch_at_the_old_leader_is_not_forgotten_by_the_new_leader() -> None:
    """The new leader remembers five batches. It refuses a retry of an older one."""
    setup = Setup()
    setup.send(2)
    setup.give_id()
    setup.cluster.metadata.nodes[2] = NodeInfo(2, "h", 2)
    setup.cluster.metadata.move_leader(TP, 2, 5)
    at_old_leader, setup.cluster.calls = setup.cluster.calls, []
    setup.send(7)
    sequences = []
    while setup.cluster.calls:
        sequence, settle = setup.produced()
        sequences.append(sequence)
        settle()
    assert sequences == [(0, 2), (0, 3), (0, 4)]
    setup.cluster.calls = at_old_leader
    setup.cluster.disconnect()
    setup.cluster.disconnect()
    setup.cluster.time.advance(2000)
    assert setup.produced()[0] == (0, 0)


def test_a_batch_behind_a_failed_batch_is_not_sent_first() -> None:
    setup = Setup()
    setup.send(2)
    setup.give_id()
    (_, first), (_, second) = setup.produced(), setup.produced()
    first(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    second(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    setup.cluster.time.advance(2000)
    sequence, settle = setup.produced()
    assert sequence == (0, 0)
    settle()
    setup.cluster.time.advance(2000)
    assert setup.produced()[0] == (0, 1)


@pytest.mark.parametrize(
    "code", [ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND]
)
def test_a_replication_timeout_causes_a_metadata_update(code: ErrorCode) -> None:
    setup = Setup()
    setup.send(1)
    setup.give_id()
    setup.produced()[1](code)
    assert setup.cluster.updates_requested == 1


def test_unknown_producer_id_raises_the_epoch() -> None:
    setup = Setup()
    setup.send(1)
    setup.give_id()
    setup.produced()[1](ErrorCode.UNKNOWN_PRODUCER_ID)
    setup.cluster.time.advance(2000)
    setup.give_id()
    setup.cluster.time.advance(2000)
    assert setup.produced()[0] == (1, 0)


def test_a_refused_batch_fails_and_the_next_batch_starts_a_new_epoch() -> None:
    setup = Setup()
    setup.send(2)
    setup.give_id()
    (_, first), (_, second) = setup.produced(), setup.produced()
    first(ErrorCode.MESSAGE_TOO_LARGE)
    second(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    (_, error) = setup.settled[0]
    assert error is not None
    assert error.error_code == ErrorCode.MESSAGE_TOO_LARGE
    setup.cluster.time.advance(2000)
    setup.give_id()
    setup.cluster.time.advance(2000)
    sequence, settle = setup.produced()
    assert sequence == (1, 0)
    settle()
    assert setup.settled[1] == (1, None)


def test_a_batch_that_may_be_in_the_log_keeps_its_sequence_when_a_new_epoch_starts() -> None:
    setup = Setup()
    setup.send(2)
    setup.give_id()
    (_, first), (_, second) = setup.produced(), setup.produced()
    first(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    # The leader has written it, but its followers did not fetch it in time.
    second(ErrorCode.REQUEST_TIMED_OUT)
    setup.cluster.time.advance(2000)
    setup.give_id()
    setup.send(1)
    setup.cluster.time.advance(2000)
    sequence, settle = setup.produced()
    assert sequence == (0, 1)
    # It is alone in flight: the next epoch begins after its response.
    assert not setup.cluster.calls
    settle(ErrorCode.DUPLICATE_SEQUENCE_NUMBER, -1)
    assert setup.settled[1] == (1, None)
    sequence, settle = setup.produced()
    assert sequence == (1, 0)
    settle()
    assert setup.settled[2] == (1, None)


def test_a_batch_behind_a_missing_one_gets_the_new_epoch_after_the_broker_refused_it() -> None:
    setup = Setup()
    setup.send(2)
    setup.give_id()
    (_, first), (_, second) = setup.produced(), setup.produced()
    first(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    second(ErrorCode.REQUEST_TIMED_OUT)
    setup.cluster.time.advance(2000)
    setup.give_id()
    setup.cluster.time.advance(2000)
    sequence, settle = setup.produced()
    assert sequence == (0, 1)
    settle(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    setup.cluster.time.advance(2000)
    setup.give_id()
    setup.cluster.time.advance(2000)
    sequence, settle = setup.produced()
    assert sequence == (2, 0)
    settle()
    assert setup.settled[1] == (1, None)


def test_after_a_refused_batch_alone_the_next_starts_a_new_epoch() -> None:
    setup = Setup()
    setup.send(1)
    setup.give_id()
    setup.produced()[1](ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    setup.send(1)
    setup.give_id()
    assert setup.produced()[0] == (1, 0)


def test_a_duplicate_counts_as_delivered() -> None:
    setup = Setup()
    setup.send(1)
    setup.give_id()
    setup.produced()[1](ErrorCode.DUPLICATE_SEQUENCE_NUMBER, -1)
    assert setup.settled == [(1, None)]


def test_a_batch_that_no_broker_accepts_fails_after_the_delivery_timeout() -> None:
    setup = Setup(delivery_timeout_ms=5000)
    setup.send(1)
    setup.give_id()
    setup.cluster.disconnect()
    for _ in range(20):
        setup.cluster.time.advance(500)
        if setup.cluster.calls:
            setup.cluster.disconnect()
    ((count, error),) = setup.settled
    assert count == 1
    assert isinstance(error, DeliveryTimeoutError)
    assert setup.accumulator.is_empty


def test_the_error_of_an_expired_batch_contains_timeout_and_disconnect() -> None:
    setup = Setup(acks=1, delivery_timeout_ms=5000)
    setup.send(1)
    setup.cluster.time.advance(6000)
    setup.cluster.disconnect()
    ((count, error),) = setup.settled
    assert count == 1
    assert isinstance(error, DeliveryTimeoutError)
    assert "gone" in str(error)
    setup.send(1)
    setup.cluster.time.advance(6000)
    setup.produced()[1](ErrorCode.INVALID_RECORD)
    assert not isinstance(setup.settled[1][1], DeliveryTimeoutError)


def test_a_produce_request_times_out_with_the_delivery_timeout() -> None:
    setup = Setup(acks=1, delivery_timeout_ms=700, request_timeout_ms=30_000)
    setup.send(1)
    assert setup.cluster.calls[0].timeout_ms == 700


def test_without_idempotence_batches_have_no_sequence() -> None:
    setup = Setup(acks=1)
    setup.send(1)
    assert setup.produced()[0] == (-1, -1)


def test_a_batch_that_is_too_large_is_split_and_sent_before_later_batches() -> None:
    setup = Setup()
    setup.send_together(3)
    setup.send_together(2)
    setup.give_id()
    (_, first), (_, second) = setup.produced(), setup.produced()
    first(ErrorCode.MESSAGE_TOO_LARGE)
    second(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    setup.cluster.time.advance(2000)
    sequences = []
    for _ in range(3):
        assert len(setup.cluster.calls) == 1
        sequence, settle = setup.produced()
        sequences.append(sequence)
        settle()
    assert sequences == [(0, 0), (0, 1), (0, 3)]
    assert setup.settled == [(1, None), (2, None), (2, None)]
    assert setup.accumulator.is_empty


def test_a_batch_is_split_until_a_single_record_is_refused() -> None:
    setup = Setup(acks=1)
    setup.send_together(4)
    for _ in range(3):
        setup.produced()[1](ErrorCode.MESSAGE_TOO_LARGE)
    ((count, error),) = setup.settled
    assert count == 1
    assert error is not None
    assert error.error_code == ErrorCode.MESSAGE_TOO_LARGE
    setup.produced()[1]()
    setup.produced()[1]()
    assert setup.settled[1:] == [(1, None), (2, None)]
    assert setup.accumulator.is_empty


def test_a_batch_is_not_split_after_its_delivery_timeout() -> None:
    setup = Setup(acks=1, delivery_timeout_ms=5000)
    setup.send_together(4)
    setup.cluster.time.advance(6000)
    setup.produced()[1](ErrorCode.MESSAGE_TOO_LARGE)
    assert setup.settled[0][0] == 4


def test_an_open_batch_expires_if_no_new_epoch_is_available() -> None:
    setup = Setup(delivery_timeout_ms=5000)
    setup.send(1)
    setup.give_id()
    setup.produced()[1](ErrorCode.INVALID_RECORD)
    setup.send(1)
    for _ in range(30):
        setup.cluster.time.advance(500)
        if setup.cluster.calls:
            setup.cluster.disconnect()
    assert [count for count, error in setup.settled if error is not None] == [1, 1]
    assert setup.accumulator.is_empty


def test_sends_and_retries_are_counted() -> None:
    setup = Setup(acks=1)
    setup.send(1)
    setup.cluster.time.advance(7)
    setup.produced()[1](ErrorCode.NOT_LEADER_OR_FOLLOWER)
    setup.cluster.time.advance(2000)
    setup.produced()[1]()
    counted = setup.sender.metrics.snapshot()
    assert counted["request-total"] == 2
    assert (counted["record-send-total"], counted["record-retry-total"]) == (1, 1)
    assert counted["requests-in-flight"] == 0
    assert counted["request-latency-avg"] == 3.5
    assert counted["batch-size-avg"] == counted["outgoing-byte-total"] / 2 > 100


def test_an_unusable_response_fails_its_batches_and_frees_its_slot() -> None:
    setup = Setup(enable_idempotence=False)
    setup.send(1)
    call = setup.cluster.calls.pop(0)
    call.build(11)
    unusable: Any = ProduceResponse(responses=None)  # type: ignore[arg-type]
    deliver_response(call.on_done, unusable, "PRODUCE", "h:1")
    ((_, error),) = setup.settled
    assert isinstance(error, UnusableResponseError)
    assert setup.accumulator.is_empty
    setup.send(7)
    assert len(setup.cluster.calls) == 5


@pytest.mark.parametrize("code", [9_999, -2])
def test_an_unknown_error_code_fails_the_batch_with_its_number(code: int) -> None:
    setup = Setup(enable_idempotence=False)
    setup.send(1)
    setup.produced()[1](code)
    ((_, error),) = setup.settled
    assert f"error code {code}" in str(error)
    assert not setup.cluster.calls
