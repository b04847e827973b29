"""The metadata topic on three brokers that are killed, cut off and reset, by a seed.

All brokers publish events of the same segments, so events race. In the end all brokers know the
same segments, and no event is lost that a publisher saw applied.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest

from barnabas.storage.remote.config import MetadataTopicConfig
from barnabas.storage.remote.segment_states import Applied
from barnabas.storage.topic_partition import TopicIdPartition
from selection import nightly_unless
from simulation.cluster_faults import ClusterFaults
from simulation.cluster_world import NODES, ClusterWorld
from unit.server.remote.metadata_broker import attach
from unit.storage.remote.remote_log_stories import id_entry, start, update

if TYPE_CHECKING:
    from barnabas.server.remote.metadata_topic import RemoteMetadataTopic

SEEDS = range(12)
CONFIG = MetadataTopicConfig(
    remote_log_metadata_topic_num_partitions=3, remote_log_metadata_consume_wait_ms=20_000
)
PARTITIONS = [
    TopicIdPartition(bytes([number]) * 16, f"topic-{number}", number) for number in range(6)
]
SEGMENTS = 12
STEPS = 60
# The states of a segment in the order of a life with a finished copy.
STATES = 4


class MetadataWorld:
    """Three brokers, each with the metadata of all partitions, and what publishers saw."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.world = ClusterWorld(seed, {})
        self.faults = ClusterFaults(self.world, self.rng, (200.0, 4_000.0))
        self.topics: dict[int, RemoteMetadataTopic] = {}
        self.published = 0
        # Partition and segment -> the highest state of an applied event.
        self.applied: dict[tuple[TopicIdPartition, bytes], int] = {}
        for node in NODES:
            self.attach(node)
        self.await_ready()

    def attach(self, node: int) -> None:
        """Give a node that was just launched its metadata topic."""
        metadata = attach(self.world.cluster.nodes[node], CONFIG)
        metadata.assign(PARTITIONS)
        self.topics[node] = metadata
        metadata.start()

    def await_ready(self) -> None:
        """Wait until all partitions are ready on all nodes."""
        assert self.world.await_that(
            lambda: all(
                each.log_of(where) is not None
                for each in self.topics.values()
                for where in PARTITIONS
            )
        )

    def publish(self, node: int) -> None:
        """Publish one event of one of the segments, whatever its state is."""
        where, number = self.rng.choice(PARTITIONS), self.rng.randrange(SEGMENTS)
        name, state = f"s{number}", self.rng.choice((0, 0, 1, 1, 2, 3))
        first = number * 10
        record: Any = (
            update(name, state, where=where, broker_id=node)
            if state
            else start(name, (first, first + 9), [(0, first)], where=where)
        )
        # Each event is different, as the time of real events is.
        self.published += 1
        record.event_timestamp_ms += self.published
        key = where, id_entry(name).id

        def on_done(result: object) -> None:
            if isinstance(result, Applied) and result.was_allowed:
                self.applied[key] = max(state, self.applied.get(key, 0))

        self.topics[node].publish(where, record, on_done)

    def step(self) -> None:
        """Publish some events, and sometimes cause or end a fault."""
        for _ in range(self.rng.randrange(8)):
            self.publish(self.rng.choice(sorted(self.world.cluster.ready)))
        cluster, rng = self.world.cluster, self.rng
        match rng.randrange(12):
            case 0 if len(cluster.ready) == len(NODES):
                node = rng.choice(NODES)
                self.topics.pop(node)
                self.faults.kill(node)
            case 1:
                self.faults.cut_link()
            case 2:
                self.faults.reset_link()
            case 3 | 4:
                self.heal()
            case 5:
                where = rng.choice(PARTITIONS)
                metadata = self.topics[rng.choice(sorted(self.topics))]
                metadata.unassign([where])
                metadata.assign([where])
        self.world.run_for(rng.uniform(1, 300))

    def heal(self) -> None:
        """End all faults. The node that was killed runs again."""
        killed = [node for node in NODES if node not in self.topics]
        self.faults.heal()
        for node in killed:
            self.attach(node)

    def states(self, node: int) -> dict[TopicIdPartition, list[Any]]:
        """Return the segments of all partitions as a node knows them."""
        found: dict[TopicIdPartition, list[Any]] = {}
        for where in PARTITIONS:
            log = self.topics[node].log_of(where)
            found[where] = [] if log is None else log.segments()
        return found


@pytest.mark.parametrize("seed", nightly_unless(lambda seed: seed < 4, SEEDS))
def test_all_brokers_know_the_same_segments(seed: int) -> None:
    world = MetadataWorld(seed)
    for _ in range(STEPS):
        world.step()
    world.heal()
    world.await_ready()
    # Longer than any event is still written.
    world.world.run_for(30_000)
    first, *others = (world.states(node) for node in NODES)
    assert all(each == first for each in others)
    assert world.applied
    found = {
        (where, segment.id): int(segment.state) for where in PARTITIONS for segment in first[where]
    }
    for key, state in world.applied.items():
        # A segment that was deleted is unknown, or another copy of it has begun.
        assert key in found or state == STATES - 1, (key, state)
    for metadata in world.topics.values():
        assert metadata.skipped == 0
        assert metadata.segment_count == len(found)
    assert not world.world.cluster.failures
