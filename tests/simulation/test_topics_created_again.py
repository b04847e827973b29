"""Consumers of a topic that is deleted and created again with the same name, by a seed.

A position belongs to the topic id. Whatever the length of the new log, a consumer with
auto.offset.reset=earliest reads the new topic from its begin, and commits nothing of the old one.
"""

from __future__ import annotations

import random

import pytest

from barnabas.client.consumer.errors import NoOffsetError
from barnabas.client.topic_partition import TopicPartition
from barnabas.protocol.messages.topics import DeleteTopicsRequest
from simulation.filled_topics import GROUP, check_committed
from simulation.simulated_consumer import SimulatedConsumer
from unit.server.simulated_broker import SimulatedBroker

TP = TopicPartition("t", 0)


def new_broker(seed: int) -> SimulatedBroker:
    settings = {
        "group_consumer_min_heartbeat_interval_ms": "200",
        "group_consumer_heartbeat_interval_ms": "200",
        "group_consumer_assignment_interval_ms": "0",
    }
    return SimulatedBroker(seed, **GROUP, **settings)


def create(broker: SimulatedBroker, life: int, count: int) -> None:
    """Create the topic, with `count` records that name its life and their offset."""
    broker.make_topic("t")
    for offset in range(count):
        answer = broker.produce("t", b"%d-%d" % (life, offset))
        assert (answer.error_code, answer.base_offset) == (0, offset)


def delete(broker: SimulatedBroker) -> None:
    broker.ask(DeleteTopicsRequest(topic_names=["t"], timeout_ms=30_000), 5)


def start(broker: SimulatedBroker, style: str, **keys: object) -> SimulatedConsumer:
    """Start a consumer with partitions assigned by hand, or by a group protocol."""
    protocol = "consumer" if style == "consumer" else "classic"
    given = {"group_id": "g", "group_protocol": protocol, "metadata_max_age_ms": 5_000, **keys}
    consumer = SimulatedConsumer(broker.world, "reader", **given)
    if style == "by hand":
        consumer.core.assign([TP])
    else:
        consumer.core.subscribe(["t"], None)
    consumer.poll_on()
    return consumer


def is_read(consumer: SimulatedConsumer, life: int, count: int) -> bool:
    wanted = {(offset, b"%d-%d" % (life, offset)) for offset in range(count)}
    return wanted <= {(offset, value) for _, offset, value in consumer.seen}


@pytest.mark.parametrize("pause_ms", [0, 3_000])
@pytest.mark.parametrize("count", [0, 5, 10, 15])
@pytest.mark.parametrize("style", ["by hand", "classic", "consumer"])
def test_a_topic_that_is_created_again_is_read_from_its_begin(
    style: str, count: int, pause_ms: int
) -> None:
    broker = new_broker(1)
    create(broker, 1, 10)
    consumer = start(broker, style)
    assert broker.world.run_until(lambda: is_read(consumer, 1, 10), 60_000)
    broker.world.run_for(1_000)
    delete(broker)
    broker.world.run_for(pause_ms)
    create(broker, 2, count)
    broker.world.run_for(10_000)
    broker.produce("t", b"2-%d" % count)
    assert broker.world.run_until(lambda: is_read(consumer, 2, count + 1), 60_000)
    assert len(consumer.seen) == 10 + count + 1
    broker.world.run_for(1_000)
    check_committed(broker, {TP: count + 1})


def test_without_a_reset_strategy_a_topic_that_is_created_again_is_an_error() -> None:
    broker = new_broker(1)
    create(broker, 1, 10)
    consumer = start(broker, "by hand", auto_offset_reset="none")
    consumer.core.positions.seek(TP, 0)
    assert broker.world.run_until(lambda: is_read(consumer, 1, 10), 60_000)
    delete(broker)
    create(broker, 2, 15)

    def is_raised() -> bool:
        return any(isinstance(error, NoOffsetError) for error in consumer.errors)

    assert broker.world.run_until(is_raised, 60_000)
    assert "deleted and created again" in str(consumer.errors[-1])
    assert len(consumer.seen) == 10
    consumer.core.positions.seek(TP, 12)
    assert broker.world.run_until(lambda: len(consumer.seen) == 13, 60_000)
    assert [value for _, _, value in consumer.seen[10:]] == [b"2-12", b"2-13", b"2-14"]


@pytest.mark.parametrize("seed", range(12))
def test_no_position_of_a_deleted_topic_survives_when_connections_are_reset(seed: int) -> None:
    broker = new_broker(seed)
    rng = random.Random(seed)
    create(broker, 0, rng.randint(0, 30))
    consumer = start(broker, rng.choice(["by hand", "classic", "consumer"]))
    for life in range(1, 6):
        broker.world.run_for(rng.random() * rng.choice([100, 3_000]))
        if rng.random() < 0.5:
            broker.world.network.reset_connections("reader", broker.host.name)
        delete(broker)
        broker.world.run_for(rng.choice([0, rng.random() * 3_000]))
        count = rng.randint(0, 30)
        create(broker, life, count)
    broker.world.run_for(10_000)
    broker.produce("t", b"5-%d" % count)
    count += 1
    assert broker.world.run_until(lambda: is_read(consumer, 5, count), 60_000), consumer.seen
    lives = [int(value.split(b"-")[0]) for _, _, value in consumer.seen]
    assert lives == sorted(lives)
    assert lives.count(5) == count
    broker.world.run_for(2_000)
    check_committed(broker, {TP: count})
