"""Requests that repeat a name: the response has a limited size, whatever the name stands for."""

from __future__ import annotations

from collections import Counter

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.describe_transactions import (
    DescribeProducersRequest,
    DescribeTransactionsRequest,
    TopicRequest,
)
from barnabas.protocol.messages.transactions import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from unit.server.handlers.producer_ids import initialize
from unit.server.simulated_broker import SimulatedBroker

# The parts that the repetitions of one request may add.
PARTS_MAX = 100_000


def test_the_repetitions_of_a_transactional_id_are_limited_by_its_partitions() -> None:
    partitions = 200
    broker = SimulatedBroker()
    broker.make_topic("topic", partitions)
    producer_id, epoch = initialize(broker, "id")
    added = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="id",
        v3_and_below_producer_id=producer_id,
        v3_and_below_producer_epoch=epoch,
        v3_and_below_topics=[
            AddPartitionsToTxnTopic(name="topic", partitions=list(range(partitions)))
        ],
    )
    broker.ask(added, 3)
    described = 1 + PARTS_MAX // partitions
    names = ["id"] * (described + 5)
    found = broker.ask(DescribeTransactionsRequest(transactional_ids=names), 0).transaction_states
    assert Counter(
        (each.error_code, sum(len(t.partitions) for t in each.topics)) for each in found
    ) == {
        (ErrorCode.NONE, partitions): described,
        (ErrorCode.INVALID_REQUEST, 0): 5,
    }


def test_the_repetitions_of_a_partition_are_limited_by_its_producers() -> None:
    producers = 50
    broker = SimulatedBroker()
    broker.make_topic("topic")
    for producer_id in range(producers):
        options = {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": 0}
        assert broker.produce("topic", b"value", **options).error_code == ErrorCode.NONE
    described = 1 + PARTS_MAX // producers
    topic = TopicRequest(name="topic", partition_indexes=[0] * (described + 5))
    (found,) = broker.ask(DescribeProducersRequest(topics=[topic]), 0).topics
    assert Counter((each.error_code, len(each.active_producers)) for each in found.partitions) == {
        (ErrorCode.NONE, producers): described,
        (ErrorCode.INVALID_REQUEST, 0): 5,
    }
