"""Brokers that answer nonsense: clients neither die nor hang nor spin, and recover afterwards."""

from __future__ import annotations

import random
from typing import Any

import pytest

from barnabas.client.topic_partition import TopicPartition
from barnabas.protocol.api_keys import ApiKey
from simulation.hostile_answers import HostileAnswers
from simulation.simulated_consumer import SimulatedConsumer
from simulation.test_consumers import GROUP, filled_broker

SEEDS = range(12)
HOSTILE_MS = 30_000.0
# What waits for an answer or for its back-off asks this often at most, per second of nonsense.
REQUESTS_PER_S_MAX = 150
_MS_PER_S = 1000.0


def endure(world: Any, hostile: HostileAnswers) -> None:
    """Let time pass while answers are changed, then no more."""
    before = hostile.asked.total()
    world.run_for(HOSTILE_MS)
    per_s = (hostile.asked.total() - before) / HOSTILE_MS * _MS_PER_S
    assert per_s < REQUESTS_PER_S_MAX, hostile.asked
    assert hostile.changed
    hostile.chance = 0.0


def read_all(world: Any, consumer: SimulatedConsumer, ends: dict[TopicPartition, int]) -> None:
    """Read every partition from its beginning, whatever happened before."""
    if consumer.core.membership is not None:
        # What it was given may have been a lie that nothing gives away.
        consumer.core.membership.request_rejoin("the test asked for it")
    assert world.run_until(lambda: set(consumer.core.subscription.assignment) == set(ends), 120_000)
    consumer.seen.clear()
    for tp in ends:
        consumer.core.positions.seek(tp, 0)
    count = sum(ends.values())
    assert world.run_until(lambda: len(consumer.seen) >= count, 120_000), consumer.errors
    assert sorted((tp, offset) for tp, offset, _ in consumer.seen) == sorted(
        (tp, offset) for tp in ends for offset in range(ends[tp])
    )


@pytest.mark.parametrize("chance", [0.3, 1.0])
@pytest.mark.parametrize("seed", SEEDS)
def test_a_reader_of_partitions_recovers(seed: int, chance: float) -> None:
    broker, ends = filled_broker(seed)
    consumer = SimulatedConsumer(
        broker.world, "reader", max_partition_fetch_bytes=2_000, strict=False
    )
    hostile = HostileAnswers(consumer.cluster, random.Random(seed), chance)
    consumer.core.assign(ends)
    consumer.poll_on()
    endure(broker.world, hostile)
    read_all(broker.world, consumer, ends)


@pytest.mark.parametrize("chance", [0.1, 0.6])
@pytest.mark.parametrize("seed", SEEDS)
def test_a_member_of_a_group_recovers(seed: int, chance: float) -> None:
    broker, ends = filled_broker(seed, **GROUP)
    consumer = SimulatedConsumer(broker.world, "member", group_id="g", strict=False)
    hostile = HostileAnswers(consumer.cluster, random.Random(seed), chance)
    consumer.core.subscribe(["t"], None)
    consumer.poll_on()
    endure(broker.world, hostile)
    read_all(broker.world, consumer, ends)
    consumer.leave()


@pytest.mark.parametrize(
    "api",
    [
        ApiKey.METADATA,
        ApiKey.FIND_COORDINATOR,
        ApiKey.JOIN_GROUP,
        ApiKey.SYNC_GROUP,
        ApiKey.HEARTBEAT,
        ApiKey.OFFSET_FETCH,
        ApiKey.OFFSET_COMMIT,
        ApiKey.LIST_OFFSETS,
        ApiKey.FETCH,
    ],
)
@pytest.mark.parametrize("seed", range(4))
def test_every_answer_of_one_kind_may_be_nonsense(api: ApiKey, seed: int) -> None:
    broker, ends = filled_broker(seed, **GROUP)
    consumer = SimulatedConsumer(broker.world, "member", group_id="g", strict=False)
    hostile = HostileAnswers(consumer.cluster, random.Random(seed), 1.0, {api})
    consumer.core.subscribe(["t"], None)
    consumer.poll_on()
    endure(broker.world, hostile)
    read_all(broker.world, consumer, ends)
