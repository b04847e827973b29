"""Three simulated brokers, as the base class of simulations with clients."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping

from barnabas.protocol.messages.configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from barnabas.protocol.messages.topics import CreatableTopic, CreateTopicsRequest
from simulation.transactions.actors import ActingConsumer, Actor, Work
from unit.server.simulated_cluster import CLIENT_PORT, TIMEOUT_MS, SimulatedCluster, three_nodes

NODES = (1, 2, 3)
BOOTSTRAP = ",".join(f"node-{node}:{CLIENT_PORT}" for node in NODES)
AWAIT_LIMIT_MS = 120_000.0
GROUP_RESOURCE = 32
Place = tuple[str, int]


class ClusterWorld:
    """Three nodes in virtual time.

    Args:
        seed: seed of all random choices.
        settings: broker keys.
    """

    def __init__(self, seed: int, settings: Mapping[str, str]) -> None:
        self.rng = random.Random(seed)
        self.cluster: SimulatedCluster = self.start_cluster(seed, settings)
        self._instances = 0

    def start_cluster(self, seed: int, settings: Mapping[str, str]) -> SimulatedCluster:
        """Return the started nodes."""
        return three_nodes(seed, **settings)

    def next_instance(self) -> int:
        """Return a number that no other client has, from 1 on."""
        self._instances += 1
        return self._instances

    def make_topic(self, name: str, partitions: int) -> None:
        """Create a topic with a replica on each node."""
        topic = CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=len(NODES),
            assignments=[],
            configs=[],
        )
        request = CreateTopicsRequest(topics=[topic], timeout_ms=TIMEOUT_MS)
        assert self.cluster.ask(self.cluster.active, request, 5).topics[0].error_code == 0

    def configure_group(self, group: str, configs: Mapping[str, str]) -> None:
        """Set configs of a group."""
        resource = AlterConfigsResource(
            resource_type=GROUP_RESOURCE,
            resource_name=group,
            configs=[
                AlterableConfig(name=name, config_operation=0, value=value)
                for name, value in configs.items()
            ],
        )
        request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
        response = self.cluster.ask(self.cluster.active, request, 1)
        assert response.responses[0].error_code == 0, response

    @property
    def now(self) -> float:
        """Virtual time in seconds."""
        return self.cluster.world.scheduler.now_ms / 1000

    def run_for(self, duration_ms: float) -> None:
        """Advance time."""
        self.cluster.world.run_for(duration_ms)
        assert not self.cluster.failures, self.cluster.failures

    def leader(self, place: Place) -> int:
        """Return the leader of a partition in the image of a running node; -1 without one."""
        for node in self.cluster.ready:
            topic = self.cluster.image(node).topics.by_name(place[0])
            if topic is not None:
                return int(topic.partitions[place[1]].leader)
        return -1

    def await_full_isr(self) -> None:
        """Wait until all replicas of all topics are in sync, and no node is down."""

        def is_full() -> bool:
            if len(self.cluster.ready) < len(NODES):
                return False
            return all(
                len(each.isr) == len(NODES) and each.leader >= 0
                for node in NODES
                for topic in self.cluster.image(node).topics
                for each in topic.partitions.values()
            )

        self.cluster.until(is_full, AWAIT_LIMIT_MS)

    def await_that(self, condition: Callable[[], bool], limit_ms: float = AWAIT_LIMIT_MS) -> bool:
        """Advance time until the condition holds. Return whether it did in time."""
        return self.cluster.world.run_until(condition, limit_ms)

    def perform(
        self,
        work: Callable[[ActingConsumer], Work[None]],
        isolation: str = "read_committed",
        group: str = "",
    ) -> None:
        """Run the work of a consumer on a new host until it ends."""
        instance = self.next_instance()
        runtime = self.cluster.world.host(f"looks-{instance}").runtime
        consumer = ActingConsumer(runtime, BOOTSTRAP, group, isolation)
        actor = Actor(runtime, work(consumer), consumer.pump)
        assert self.await_that(lambda: actor.has_ended), consumer.errors
        self.cluster.world.host(f"looks-{instance}").kill()
