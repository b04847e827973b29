"""A simulated broker with filled topics, and the offsets that its group committed."""

from __future__ import annotations

import random

from barnabas.client.topic_partition import TopicPartition
from simulation.simulated_consumer import SimulatedConsumer
from unit.server.simulated_broker import SimulatedBroker, produce_request

PARTITIONS = 3

BATCHES = 40

GROUP = {"group_initial_rebalance_delay_ms": "0", "group_min_session_timeout_ms": "1000"}


def filled_broker(seed: int, **settings: str) -> tuple[SimulatedBroker, dict[TopicPartition, int]]:
    """Return a broker with batches of different sizes, and the end of each partition."""
    broker = SimulatedBroker(seed, **settings)
    broker.make_topic("t", PARTITIONS)
    return broker, fill(broker, random.Random(seed), 0)


def fill(broker: SimulatedBroker, rng: random.Random, start: int) -> dict[TopicPartition, int]:
    """Append batches to each partition from offset `start`, and return the new ends."""
    ends = {}
    for number in range(PARTITIONS):
        offset = start
        for _ in range(BATCHES):
            values = [b"%d-%d" % (number, offset + n) for n in range(rng.randint(1, 30))]
            request = produce_request("t", broker.batch(*values))
            request.topic_data[0].partition_data[0].index = number
            answer = broker.ask(request, 9).responses[0].partition_responses[0]
            assert (answer.error_code, answer.base_offset) == (0, offset)
            offset += len(values)
        ends[TopicPartition("t", number)] = offset
    return ends


def check_committed(broker: SimulatedBroker, ends: dict[TopicPartition, int]) -> None:
    """Check that the group has committed the end of every partition."""
    reader = SimulatedConsumer(broker.world, "committed", group_id="g")
    found: list[dict[TopicPartition, int]] = []
    reader.core.offsets.committed(
        "g",
        list(ends),
        60_000,
        lambda result, _error: found.append({tp: at.offset for tp, at in (result or {}).items()}),
    )
    assert broker.world.run_until(lambda: bool(found), 120_000)
    assert found == [ends]
