"""Brokers with nonsense responses: clients do not die, hang or spin, and recover afterwards."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from barnabas.client.config import ClientConfig
from barnabas.client.connections.cluster import Cluster
from barnabas.client.producer.producer_core import ProducerCore
from barnabas.client.producer.user_objects import take_parts
from barnabas.client.topic_partition import TopicPartition
from barnabas.protocol.api_keys import ApiKey
from selection import nightly_unless
from simulation.filled_topics import GROUP, filled_broker
from simulation.hostile_answers import HostileAnswers
from simulation.simulated_consumer import SimulatedConsumer
from unit.server.simulated_broker import HOST, PORT

if TYPE_CHECKING:
    from barnabas.client.errors import ClientError
    from barnabas.client.producer.producer_core import SendOptions
    from barnabas.sim.world import SimWorld

SEEDS = nightly_unless((4).__gt__, range(12))
HOSTILE_MS = 30_000.0
# Maximum rate of requests of a client during the time with changed responses.
REQUESTS_PER_S_MAX = 150
_MS_PER_S = 1000.0


def run_hostile_then_correct(world: Any, hostile: HostileAnswers) -> None:
    """Advance time with changed responses, then with correct responses."""
    before = hostile.asked.total()
    world.run_for(HOSTILE_MS)
    per_s = (hostile.asked.total() - before) / HOSTILE_MS * _MS_PER_S
    assert per_s < REQUESTS_PER_S_MAX, hostile.asked
    assert hostile.changed
    hostile.chance = 0.0


def read_all(world: Any, consumer: SimulatedConsumer, ends: dict[TopicPartition, int]) -> None:
    """Read every partition from its beginning."""
    # A changed response may be valid, so that the client could not detect it.
    consumer.cluster.request_update()
    world.run_for(1_000)
    if consumer.core.membership is not None:
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
    run_hostile_then_correct(broker.world, hostile)
    read_all(broker.world, consumer, ends)


@pytest.mark.parametrize("chance", [0.1, 0.6])
@pytest.mark.parametrize("seed", SEEDS)
def test_a_member_of_a_group_recovers(seed: int, chance: float) -> None:
    broker, ends = filled_broker(seed, **GROUP)
    consumer = SimulatedConsumer(broker.world, "member", group_id="g", strict=False)
    hostile = HostileAnswers(consumer.cluster, random.Random(seed), chance)
    consumer.core.subscribe(["t"], None)
    consumer.poll_on()
    run_hostile_then_correct(broker.world, hostile)
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
@pytest.mark.parametrize("seed", nightly_unless((2).__gt__, range(4)))
def test_a_client_survives_nonsense_in_all_responses_of_one_api(api: ApiKey, seed: int) -> None:
    broker, ends = filled_broker(seed, **GROUP)
    consumer = SimulatedConsumer(broker.world, "member", group_id="g", strict=False)
    hostile = HostileAnswers(consumer.cluster, random.Random(seed), 1.0, {api})
    consumer.core.subscribe(["t"], None)
    consumer.poll_on()
    run_hostile_then_correct(broker.world, hostile)
    read_all(broker.world, consumer, ends)


class SimulatedProducer:
    """A producer's core on a simulated host."""

    def __init__(self, world: SimWorld, **keys: object) -> None:
        self._world = world
        given = {key.replace("_", "."): value for key, value in keys.items()}
        config = ClientConfig.parse({"bootstrap.servers": f"{HOST}:{PORT}", **given})
        self.cluster = Cluster(world.host("producer").runtime, config)
        session: Any = SimpleNamespace(
            cluster=self.cluster, coordinators=None, check_usable=lambda: None
        )
        self.core = ProducerCore(session, config, take_parts({})[0])
        self.delivery_errors: list[ClientError | None] = []

    def send(self, value: bytes) -> ClientError | None:
        """Queue a record; return the error if the topic is unknown."""
        options: SendOptions = {
            "on_delivery": lambda _metadata, error: self.delivery_errors.append(error)
        }
        while self.core.enqueue("t", None, value, None, options, 1) is None:
            learned: list[ClientError | None] = []
            self.core.fetch_target(
                "t", None, lambda _found, error, learned=learned: learned.append(error)
            )
            assert self._world.run_until(lambda learned=learned: bool(learned), 70_000)
            if learned[0] is not None:
                return learned[0]
        self.core.sender.pump()
        return None

    def flush(self, limit_ms: float) -> bool:
        """Return whether all records are delivered or have failed within the limit."""
        return self._world.run_until(self.core.flush(), limit_ms)


@pytest.mark.parametrize("is_idempotent", [True, False])
@pytest.mark.parametrize("chance", [0.3, 1.0])
@pytest.mark.parametrize("seed", nightly_unless((3).__gt__, range(8)))
def test_a_producer_expires_its_records_in_time_and_recovers(
    seed: int, chance: float, is_idempotent: bool
) -> None:
    broker, _ends = filled_broker(seed)
    producer = SimulatedProducer(
        broker.world,
        delivery_timeout_ms=10_000,
        request_timeout_ms=4_000,
        linger_ms=0,
        enable_idempotence=is_idempotent,
    )
    hostile = HostileAnswers(
        producer.cluster, random.Random(seed), chance, {ApiKey.METADATA, ApiKey.PRODUCE}
    )
    queued = 0
    began_ms = broker.world.scheduler.now_ms
    for number in range(40):
        queued += producer.send(b"%d" % number) is None
        broker.world.run_for(50)
    assert producer.flush(20_000)
    assert len(producer.delivery_errors) == queued
    assert hostile.changed
    seconds = (broker.world.scheduler.now_ms - began_ms) / _MS_PER_S
    assert hostile.asked.total() < REQUESTS_PER_S_MAX * seconds
    hostile.chance = 0.0
    producer.cluster.request_update()
    broker.world.run_for(5_000)
    assert producer.send(b"at last") is None
    assert producer.flush(20_000)
    assert producer.delivery_errors[-1] is None
