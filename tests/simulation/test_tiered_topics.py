"""Some seeds of the walk of a tiered topic, and new replicas that copy only the local log.

`python -m simulation.tiered_walk`, from `tests`, plays more seeds.
"""

from __future__ import annotations

import pytest

from barnabas.protocol.messages.partition_changes import ElectLeadersRequest, TopicPartitions
from selection import nightly_unless
from simulation.tiered_walk import run
from simulation.tiered_world import (
    PARTITIONS,
    SEGMENT_BYTES,
    TOPIC,
    TieredWorld,
    shared_store,
)
from unit.server.process.wiped_disk import wipe

# What `make check` plays of the seeds.
CHOSEN = {5}


@pytest.mark.parametrize("seed", nightly_unless(CHOSEN.__contains__, range(1, 25)))
def test_nothing_is_lost_under_faults(seed: int) -> None:
    counts = run(seed)
    assert counts["records read from the tier"] > 0, counts


@pytest.mark.parametrize("skips_all", [False, True])
def test_a_new_replica_copies_only_local_bytes_and_can_lead(skips_all: bool) -> None:
    """With KIP-1023 it copies only what is not in the tier."""
    settings = {"follower_fetch_last_tiered_offset_enable": str(skips_all).lower()}
    with shared_store() as stores:
        world = TieredWorld(7, stores, settings)
        world.live(8_000)
        world.live(1_000, writes=False)
        world.settle()
        new = world.cluster.image(1).topics.partition(TOPIC, 0).replicas[0]
        world.cluster.kill(new)
        wipe(world.cluster, new)
        starts = [_first_offset(world, index, skips_all) for index in range(PARTITIONS)]
        world.cluster.launch(new)
        world.await_full_isr()
        for index in range(PARTITIONS):
            log = world.log(new, index)
            assert log.log_start_offset == 0
            assert log.segments[0].base_offset == log.local_log_start_offset == starts[index] > 0
        _elect(world, new)
        assert world.leading(0) == new
        assert world.check_all() > 0


def _first_offset(world: TieredWorld, index: int, skips_all: bool) -> int:
    """Return the offset at which a new replica has to start."""
    log = world.log(world.leading(index), index)
    assert log.size < 5 * SEGMENT_BYTES
    return log.highest_remote_offset + 1 if skips_all else log.local_log_start_offset


def _elect(world: TieredWorld, node: int) -> None:
    """Make a node the leader of partition 0, of which it is the preferred leader."""
    request = ElectLeadersRequest(
        election_type=0,
        topic_partitions=[TopicPartitions(topic=TOPIC, partitions=[0])],
        timeout_ms=10_000,
    )
    world.cluster.ask(world.cluster.active, request, 2)
    assert world.await_that(lambda: world.leader((TOPIC, 0)) == node)
