"""A cluster under load that faults are done to: victims are found here, and all is healed."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
)
from barnabas.protocol.messages.elect_leaders import ElectLeadersRequest
from barnabas.testing.cluster_process import ClusterProcess
from barnabas.testing.node_process import NodeProcess
from chaos.cluster_view import ClusterView, PartitionView, await_that, create_topic
from chaos.load import Load
from barnabas.testing.relays import Relays

HEAL_TIMEOUT_S = 90.0
TOPIC = "chaos"


@dataclass
class Stress:
    """The parts of a campaign."""

    cluster: ClusterProcess
    relays: Relays | None
    load: Load
    rng: random.Random
    partitions: int
    # Nodes whose end is the fault's doing.
    may_end: set[int] = field(default_factory=set)

    @property
    def view(self) -> ClusterView:
        """What the cluster says of itself."""
        return ClusterView(self.cluster)

    def state(self) -> tuple[dict[int, PartitionView], tuple[int, int]]:
        """All partitions; the controller and its epoch."""
        return (
            await_that(lambda: self.view.partitions(TOPIC), bool, HEAL_TIMEOUT_S, "partitions"),
            await_that(self.view.controller, bool, HEAL_TIMEOUT_S, "a controller"),
        )

    def leader(self) -> NodeProcess:
        """The leader of a partition by chance."""
        found, _ = self.state()
        return self.cluster.node(self.rng.choice(list(found.values())).leader)

    def controller(self) -> NodeProcess:
        """The node whose controller is active."""
        return self.cluster.node(self.state()[1][0])

    def any_broker(self) -> NodeProcess:
        """A broker by chance."""
        return self.rng.choice(self.cluster.brokers)

    def check_alive(self) -> None:
        """No node has ended that no fault has ended.

        Raises:
            AssertionError: one has; with the end of its log.
        """
        for number, node in self.cluster.nodes.items():
            if not node.is_running and number not in self.may_end:
                raise AssertionError(f"node {number} has ended by itself\n{node.log()[-3000:]}")
        self.load.check_alive()

    def heal(self) -> None:
        """Everybody runs and reaches everybody."""
        if self.relays is not None:
            self.relays.heal()
        for node in self.cluster.nodes.values():
            node.resume()
        down = [node for node in self.cluster.nodes.values() if not node.is_running]
        for node in down:
            node.launch()
        for node in down:
            node.await_ready()
        self.may_end.clear()

    def await_full_isr(self) -> None:
        """Every replica is in sync."""

        def look() -> list[str]:
            self.check_alive()
            found = self.view.partitions(TOPIC)
            behind = [
                f"{number}: leader {each.leader}, isr {each.isr}"
                for number, each in found.items()
                if len(each.isr) < len(each.replicas) or each.leader < 0
            ]
            if len(found) < self.partitions:
                behind.append(f"{len(found)} partitions")
            return behind

        await_that(look, lambda behind: not behind, HEAL_TIMEOUT_S, "all replicas in sync")

    def balance(self) -> None:
        """Preferred leaders lead again, so that every broker leads something."""
        request = ElectLeadersRequest(election_type=0, topic_partitions=None, timeout_ms=10_000)

        def elect() -> int:
            return int(self.view.order(request, 2).error_code)

        await_that(elect, lambda code: code == ErrorCode.NONE, HEAL_TIMEOUT_S, "preferred leaders")


def make_topic(cluster: ClusterProcess, partitions: int, min_isr: int = 2) -> None:
    """The topic of a campaign, on all brokers, with nothing deleted."""
    configs = {"min.insync.replicas": str(min_isr), "retention.ms": "-1"}
    new = CreatableTopic(
        name=TOPIC,
        num_partitions=partitions,
        replication_factor=min(3, len(cluster.brokers)),
        assignments=[],
        configs=[CreatableTopicConfig(name=key, value=value) for key, value in configs.items()],
    )
    view = ClusterView(cluster)
    everybody = {node.node_id for node in cluster.brokers}
    await_that(view.live_brokers, lambda found: found == everybody, HEAL_TIMEOUT_S, "all brokers")
    create_topic(view, new)
    await_that(lambda: view.has_topic(TOPIC, partitions), bool, HEAL_TIMEOUT_S, "the new topic")
