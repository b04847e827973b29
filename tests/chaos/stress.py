"""A cluster under load that faults are done to: victims are found here, and all is healed."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
)
from barnabas.protocol.messages.elect_leaders import ElectLeadersRequest
from barnabas.testing.cluster_process import ClusterProcess
from barnabas.testing.node_process import NodeProcess
from barnabas.testing.relays import Relays
from barnabas.testing.server_process import BrokerStartError
from chaos.chaos_node import ChaosNode
from chaos.cluster_view import ClusterView, PartitionView, await_that, create_topic
from chaos.hostile import TOPIC as HOSTILE_TOPIC
from chaos.load import Load

HEAL_TIMEOUT_S = 90.0
TOPIC = "chaos"
# The beginning of what `barnabas start` says when it ends with an error.
REFUSAL = "barnabas: "
# Closed segments within a campaign, and records that a wrong clock would delete.
TOPIC_CONFIGS = {"segment.bytes": str(1 << 20), "retention.ms": str(7 * 24 * 3_600_000)}


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
    # Nodes that may refuse to start over what the fault did; they are then wiped.
    may_refuse: set[int] = field(default_factory=set)
    # Puts right what the fault has changed, at the beginning of `heal`.
    undo: list[Callable[[], object]] = field(default_factory=list)
    # Called once all replicas are in sync again; each returns what it did, in words.
    after_healing: list[Callable[[], str]] = field(default_factory=list)
    # What was done to heal, in words.
    notes: list[str] = field(default_factory=list)
    # CPU time of the longest turn of an event loop that `look_at_turns` has seen.
    longest_turn_cpu_ms: float = 0.0

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
        while self.undo:
            self.undo.pop()()
        if self.relays is not None:
            self.relays.heal()
        for node in self.cluster.nodes.values():
            node.resume()
        down = [node for node in self.cluster.nodes.values() if not node.is_running]
        for node in down:
            node.launch()
        for node in down:
            self._await_ready(node)
        self.may_end.clear()
        self.may_refuse.clear()

    def finish_healing(self) -> None:
        """Do what waits for all replicas to be in sync."""
        while self.after_healing:
            self.notes.append(self.after_healing.pop()())

    def pop_notes(self) -> list[str]:
        """Return what was done to heal, once."""
        notes, self.notes = self.notes, []
        return notes

    def look_at_turns(self) -> None:
        """Ask our nodes for the longest turn of their event loops; a node's count ends with it."""
        for node in self.cluster.nodes.values():
            if isinstance(node, ChaosNode):
                longest_ms = await_that(
                    lambda node=node: node.turns().longest_cpu_ms,
                    lambda _: True,
                    HEAL_TIMEOUT_S,
                    f"metrics of node {node.node_id}",
                )
                self.longest_turn_cpu_ms = max(self.longest_turn_cpu_ms, longest_ms)

    def _await_ready(self, node: NodeProcess) -> None:
        """Wait for a node; if it says that it refuses to start, wipe it and start it again."""
        try:
            node.await_ready()
        except BrokerStartError:
            if node.node_id not in self.may_refuse:
                raise
            words = _refusal(node.log())
            self.notes.append(f"node {node.node_id} refused to start and was wiped: {words}")
            node.wipe()
            node.start()

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


def _refusal(log: str) -> str:
    """Return the words with which a node refused to start.

    Raises:
        AssertionError: it ended without such words, or by an unexpected error.
    """
    last = log.rstrip().split("\n")[-1]
    assert last.startswith(REFUSAL), f"a node ended without saying why:\n{log[-3000:]}"
    return last.removeprefix(REFUSAL).strip()


def make_topic(cluster: ClusterProcess, partitions: int, min_isr: int = 2) -> None:
    """The topic of a campaign, on all brokers, with nothing deleted."""
    view = ClusterView(cluster)
    everybody = {node.node_id for node in cluster.brokers}
    await_that(view.live_brokers, lambda found: found == everybody, HEAL_TIMEOUT_S, "all brokers")
    _make(cluster, TOPIC, partitions, {"min.insync.replicas": str(min_isr), **TOPIC_CONFIGS})


def make_hostile_topic(cluster: ClusterProcess) -> None:
    """The topic that a hostile client fills; it holds no more than some megabytes."""
    _make(
        cluster, HOSTILE_TOPIC, 1, {"retention.bytes": str(8 << 20), "segment.bytes": str(4 << 20)}
    )


def _make(cluster: ClusterProcess, name: str, partitions: int, configs: dict[str, str]) -> None:
    new = CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=min(3, len(cluster.brokers)),
        assignments=[],
        configs=[CreatableTopicConfig(name=key, value=value) for key, value in configs.items()],
    )
    view = ClusterView(cluster)
    create_topic(view, new)
    await_that(lambda: view.has_topic(name, partitions), bool, HEAL_TIMEOUT_S, f"topic {name}")
