"""Clients that run while partitions are added to their topic: all use the new partitions."""

from __future__ import annotations

import pytest

from barnabas.client.connections.cluster import Cluster
from barnabas.client.connections.lookups import Coordinators
from barnabas.client.producer.producer_plans import Until
from barnabas.client.share.share_consumer_base import share_consumer_config
from barnabas.client.share.share_consumer_core import ShareConsumerCore
from barnabas.client.topic_partition import TopicPartition
from barnabas.protocol.messages.topics import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from simulation.filled_topics import GROUP
from simulation.groups.share_actors import ActingWriter
from simulation.simulated_consumer import SimulatedConsumer
from simulation.transactions.actors import DEFAULT_KEYS, ActingProducer, Actor, Work, sleep
from unit.server.simulated_broker import HOST, PORT, SimulatedBroker

BOOTSTRAP = f"{HOST}:{PORT}"
BEFORE, AFTER = 2, 8
# Larger than batch.size, after which the partitioner chooses again.
VALUE = bytes(20_000)
MAX_AGE_MS = float(DEFAULT_KEYS["metadata.max.age.ms"])


def new_broker() -> SimulatedBroker:
    broker = SimulatedBroker(1, **GROUP, share_coordinator_state_topic_num_partitions="1")
    broker.make_topic("t", BEFORE)
    return broker


def add_partitions(broker: SimulatedBroker) -> None:
    topic = CreatePartitionsTopic(name="t", count=AFTER, assignments=None)
    request = CreatePartitionsRequest(topics=[topic], timeout_ms=30_000, validate_only=False)
    assert broker.ask(request, 3).results[0].error_code == 0


def write_on(producer: ActingProducer, *, in_transactions: bool) -> Work[None]:
    """Send records whose partition the client chooses."""
    if in_transactions:
        yield from producer.initialize()
    while True:
        if in_transactions:
            producer.begin()
        for _ in range(8):
            yield from producer.send(("t", None), VALUE)
        yield from producer.flush()
        if in_transactions:
            yield from producer.commit()
        yield from sleep(50)


@pytest.mark.parametrize("in_transactions", [False, True])
def test_a_producer_uses_added_partitions_when_its_metadata_is_old(in_transactions: bool) -> None:
    broker = new_broker()
    runtime = broker.world.host("writer").runtime
    producer = (
        ActingProducer(runtime, BOOTSTRAP, "id")
        if in_transactions
        else ActingWriter(runtime, BOOTSTRAP)
    )
    Actor(runtime, write_on(producer, in_transactions=in_transactions), producer.pump)
    broker.world.run_for(3 * MAX_AGE_MS)
    queues = producer.core.accumulator.queues
    assert len(queues) == BEFORE
    add_partitions(broker)
    assert broker.world.run_until(lambda: len(queues) == AFTER, 2 * MAX_AGE_MS)
    assert producer.errors == []


def fill_added_partitions(broker: SimulatedBroker) -> None:
    runtime = broker.world.host("writer").runtime
    producer = ActingWriter(runtime, BOOTSTRAP)

    def write() -> Work[None]:
        for number in range(BEFORE, AFTER):
            yield from producer.send(("t", number), b"v")
        yield from producer.flush()

    actor = Actor(runtime, write(), producer.pump)
    assert broker.world.run_until(lambda: actor.has_ended, 10_000)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_consumer_reads_added_partitions(protocol: str) -> None:
    broker = new_broker()
    consumer = SimulatedConsumer(
        broker.world, "reader", group_id="g", group_protocol=protocol, metadata_max_age_ms=2_000
    )
    consumer.core.subscribe(["t"], None)
    consumer.poll_on()
    assert broker.world.run_until(lambda: len(consumer.core.subscription.assignment) == BEFORE)
    add_partitions(broker)
    fill_added_partitions(broker)
    added = {TopicPartition("t", number) for number in range(BEFORE, AFTER)}
    assert broker.world.run_until(lambda: {tp for tp, _, _ in consumer.seen} == added, 60_000)


def test_a_share_consumer_reads_added_partitions() -> None:
    broker = new_broker()
    runtime = broker.world.host("reader").runtime
    config, deserializing = share_consumer_config(BOOTSTRAP, {**DEFAULT_KEYS, "group.id": "g"})
    cluster = Cluster(runtime, config)
    core = ShareConsumerCore(cluster, Coordinators(cluster), deserializing)
    core.subscribe(["t"])
    read: set[int] = set()

    def read_on() -> Work[None]:
        while True:
            core.begin_poll()
            core.round()
            records = core.take(100)
            read.update(record.partition for record in records or ())
            core.end_poll()
            yield Until(lambda: core.is_awake, 50)

    Actor(runtime, read_on(), core.results.run)
    broker.world.run_for(5_000)
    add_partitions(broker)
    broker.world.run_for(15_000)
    fill_added_partitions(broker)
    assert broker.world.run_until(lambda: read == set(range(BEFORE, AFTER)), 60_000)
