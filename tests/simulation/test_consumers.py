"""The consumer's core with a complete broker in virtual time: resets, delays and kills, by a seed.

`SimulatedConsumer` checks that each returned record is the record at the position, so that no fault
loses, repeats or reorders records.
"""

from __future__ import annotations

import random

import pytest

from barnabas.sim.network import NetworkConditions
from simulation.filled_topics import GROUP, check_committed, filled_broker
from simulation.simulated_consumer import SimulatedConsumer

SEEDS = range(6)
ROUGH = NetworkConditions(0.1, 30.0, 5.0, reset_chance=0.03)


def check_values(consumer: SimulatedConsumer) -> None:
    for tp, offset, value in consumer.seen:
        assert value == b"%d-%d" % (tp.partition, offset)


@pytest.mark.parametrize("seed", SEEDS)
def test_every_record_is_read_once_and_in_order_under_network_failures(seed: int) -> None:
    broker, ends = filled_broker(seed)
    broker.world.network.conditions = ROUGH
    consumer = SimulatedConsumer(broker.world, "reader", max_partition_fetch_bytes=2_000)
    consumer.core.assign(ends)
    consumer.poll_on()
    count = sum(ends.values())
    assert broker.world.run_until(lambda: len(consumer.seen) >= count, 600_000)
    broker.world.run_for(5_000)
    assert len(consumer.seen) == count
    check_values(consumer)
    assert {tp: consumer.core.lag(tp) for tp in ends} == dict.fromkeys(ends, 0)


@pytest.mark.parametrize("seed", SEEDS)
def test_seeks_and_pauses_work_under_network_failures(seed: int) -> None:
    broker, ends = filled_broker(seed)
    rng = random.Random(seed)
    broker.world.network.conditions = ROUGH
    consumer = SimulatedConsumer(
        broker.world, "reader", max_partition_fetch_bytes=1_000, max_poll_records=17
    )
    consumer.core.assign(ends)
    consumer.poll_on()
    for _ in range(60):
        broker.world.run_for(rng.random() * 60)
        tp = rng.choice(list(ends))
        match rng.randint(0, 3):
            case 0:
                consumer.core.positions.seek(tp, rng.randint(0, ends[tp]))
            case 1:
                consumer.core.pause([tp])
            case 2:
                consumer.core.resume([tp])
            case _:
                broker.world.network.reset_connections("reader", broker.host.name)
    consumer.core.resume(list(ends))
    for tp in ends:
        consumer.core.positions.seek(tp, 0)
    consumer.seen.clear()
    count = sum(ends.values())
    assert broker.world.run_until(lambda: len(consumer.seen) >= count, 600_000)
    check_values(consumer)
    assert sorted((tp, offset) for tp, offset, _ in consumer.seen) == sorted(
        (tp, offset) for tp in ends for offset in range(ends[tp])
    )
    assert consumer.errors == []


@pytest.mark.parametrize("seed", SEEDS)
def test_reading_continues_after_a_broker_restart(seed: int) -> None:
    broker, ends = filled_broker(seed)
    consumer = SimulatedConsumer(
        broker.world, "reader", max_partition_fetch_bytes=1_000, max_poll_records=5
    )
    consumer.core.assign(ends)
    consumer.poll_on()
    count = sum(ends.values())
    assert broker.world.run_until(lambda: len(consumer.seen) >= count // 4, 600_000)
    broker.host.kill()
    broker.world.run_for(3_000)
    broker.restart()
    assert broker.world.run_until(lambda: len(consumer.seen) >= count, 600_000)
    broker.world.run_for(2_000)
    assert len(consumer.seen) == count
    check_values(consumer)


@pytest.mark.parametrize("seed", SEEDS)
def test_no_record_is_missed_while_members_join_and_leave(seed: int) -> None:
    broker, ends = filled_broker(seed, **GROUP)
    rng = random.Random(seed)
    broker.world.network.conditions = NetworkConditions(0.1, 10.0, 2.0, reset_chance=0.01)
    members = [
        SimulatedConsumer(broker.world, f"member-{n}", group_id="g", max_poll_records=20)
        for n in range(3)
    ]
    for member in members:
        member.core.subscribe(["t"], None)
        member.poll_on()
        broker.world.run_for(rng.random() * 500)
    members[0].leave()
    # A user that does not poll: heartbeats continue, and the partitions stay assigned.
    members[1].pause_polling()
    broker.world.run_for(2_000)
    members[1].poll_on()
    wanted = {(tp, offset) for tp in ends for offset in range(ends[tp])}

    def is_all_seen() -> bool:
        return wanted == {(tp, offset) for m in members for tp, offset, _ in m.seen}

    assert broker.world.run_until(is_all_seen, 600_000)
    for member in members[1:]:
        member.leave()
    check_committed(broker, ends)
