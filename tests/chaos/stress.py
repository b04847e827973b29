"""A cluster under load: selects targets of faults, and heals all faults."""

from __future__ import annotations

import random
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.partition_changes import ElectLeadersRequest
from barnabas.protocol.messages.topics import CreatableTopic, CreatableTopicConfig
from barnabas.testing.broker_process import BrokerStartError
from barnabas.testing.cluster_process import ClusterProcess, NodeProcess
from barnabas.testing.relays import Relays
from chaos.chaos_node import ChaosNode
from chaos.cluster_view import ClusterView, PartitionView, await_that, create_topic
from chaos.group_load import GroupLoad
from chaos.hostile import TOPIC as HOSTILE_TOPIC
from chaos.load import Load
from chaos.resources import Leftovers
from chaos.side.side_load import SideLoad
from chaos.side.upkeep import CompactedLoad
from chaos.tier.tier_store import ChaosTier
from chaos.transactional_load import TransactionalLoad
from conformance.tls_cluster import TlsFiles

# Several nodes start at the same time, on a machine that may be busy.
HEAL_TIMEOUT_S = 300.0
# Replicas of each partition, if there are so many brokers.
REPLICAS = 3
TOPIC = "chaos"
# Internal topics that the loads create.
OFFSETS_TOPIC, TRANSACTION_TOPIC = "__consumer_offsets", "__transaction_state"
INTERNAL_TOPICS = {OFFSETS_TOPIC: 3, TRANSACTION_TOPIC: 3}
# Replicas of these topics may be compacted at different times.
COMPACTED_TOPICS = {*INTERNAL_TOPICS, CompactedLoad.TOPIC}
# Prefix of the error message with which `barnabas start` ends.
REFUSAL = "barnabas: "
# Small segments, so that some are closed, and a retention time below the jumps of clocks.
TOPIC_CONFIGS = {"segment.bytes": str(1 << 20), "retention.ms": str(7 * 24 * 3_600_000)}


@dataclass
class Stress:
    """The parts of a campaign."""

    cluster: ClusterProcess
    relays: Relays | None
    load: Load
    rng: random.Random
    partitions: int
    # Certificates of a cluster with TLS on all listeners, or None.
    tls: TlsFiles | None = None
    # Transactional clients beside the load, or None.
    transactional: TransactionalLoad | None = None
    # Members of a consumer, a share and a streams group beside the load, or None.
    groups: GroupLoad | None = None
    # Clients beside the load, each with topics and a checker of its own.
    sides: list[SideLoad] = field(default_factory=list)
    # The remote tier of the topics of the loads, or None.
    tier: ChaosTier | None = None
    # Nodes that may end because of the fault.
    may_end: set[int] = field(default_factory=set)
    # Nodes that may refuse to start after the fault. They are then wiped.
    may_refuse: set[int] = field(default_factory=set)
    # Called at the beginning of `heal` to undo changes of the fault.
    undo: list[Callable[[], object]] = field(default_factory=list)
    # Called once all replicas are in sync again. Each returns a description of its work.
    after_healing: list[Callable[[], str]] = field(default_factory=list)
    # Descriptions of the steps that healed the cluster.
    notes: list[str] = field(default_factory=list)
    # CPU time of the longest turn of an event loop, from `sample_turns`.
    longest_turn_cpu_ms: float = 0.0

    @property
    def view(self) -> ClusterView:
        """The state that the cluster reports."""
        return view_of(self.cluster, self.tls)

    @property
    def topics(self) -> dict[str, int]:
        """The topics of the loads, with their numbers of partitions."""
        found = {TOPIC: self.partitions}
        if self.transactional is not None:
            found |= self.transactional.topics | INTERNAL_TOPICS
        if self.groups is not None:
            found |= self.groups.topics
        for side in self.sides:
            found |= {name: shape.partitions for name, shape in side.topics.items()}
        return found

    def leftovers(self) -> Leftovers:
        """Return what the loads have made, and the nodes may keep."""
        made = sum((side.leftovers() for side in self.sides), Leftovers())
        if self.transactional is not None:
            made += self.transactional.leftovers()
        return made

    def state(self) -> tuple[dict[int, PartitionView], tuple[int, int]]:
        """Return all partitions, and the controller with its epoch."""
        return (
            await_that(lambda: self.view.partitions(TOPIC), bool, HEAL_TIMEOUT_S, "partitions"),
            await_that(self.view.controller, bool, HEAL_TIMEOUT_S, "a controller"),
        )

    def leader(self) -> NodeProcess:
        """Return the leader of a random partition."""
        found, _ = self.state()
        return self.cluster.node(self.rng.choice(list(found.values())).leader)

    def controller(self) -> NodeProcess:
        """Return the node with the active controller."""
        return self.cluster.node(self.state()[1][0])

    def any_broker(self) -> NodeProcess:
        """Return a random broker."""
        return self.rng.choice(self.cluster.brokers)

    def check_alive(self) -> None:
        """Check that no node has ended without a fault.

        Raises:
            AssertionError: a node has ended. The message has the end of its log.
        """
        for number, node in self.cluster.nodes.items():
            if not node.is_running and number not in self.may_end:
                raise AssertionError(f"node {number} has ended by itself\n{node.log()[-3000:]}")
        self.load.check_alive()
        if self.transactional is not None:
            self.transactional.check_alive()
        if self.groups is not None:
            self.groups.check_alive()
        for side in self.sides:
            side.check_alive()

    def heal(self) -> None:
        """Restart and reconnect all nodes."""
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
        """Complete the repairs that need all replicas in sync."""
        while self.after_healing:
            self.notes.append(self.after_healing.pop()())

    def pop_notes(self) -> list[str]:
        """Return and clear the notes."""
        notes, self.notes = self.notes, []
        return notes

    def sample_turns(self) -> None:
        """Read the longest turns from the metrics of the nodes, before a restart resets them."""
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
        """Wait for a node. If it refuses to start with a reason, wipe and restart it."""
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
        """Wait until all replicas of all topics of the loads are in sync."""

        def look() -> list[str]:
            self.check_alive()
            return [words for topic, count in self.topics.items() for words in behind(topic, count)]

        def behind(topic: str, count: int) -> list[str]:
            found = self.view.partitions(topic)
            told = [
                f"{topic}-{number}: leader {each.leader}, isr {each.isr}"
                for number, each in found.items()
                if len(each.isr) < len(each.replicas) or each.leader < 0
            ]
            if len(found) < count:
                told.append(f"{topic}: {len(found)} partitions")
            return told

        await_that(look, lambda behind: not behind, HEAL_TIMEOUT_S, "all replicas in sync")

    def balance(self) -> None:
        """Elect preferred leaders, so that every broker leads partitions."""
        request = ElectLeadersRequest(election_type=0, topic_partitions=None, timeout_ms=10_000)

        def elect() -> int:
            return int(self.view.order(request, 2).error_code)

        await_that(elect, lambda code: code == ErrorCode.NONE, HEAL_TIMEOUT_S, "preferred leaders")


def _refusal(log: str) -> str:
    """Return the message with which a node refused to start.

    Raises:
        AssertionError: it ended without such words, or by an unexpected error.
    """
    last = log.rstrip().split("\n")[-1]
    assert last.startswith(REFUSAL), f"a node ended without saying why:\n{log[-3000:]}"
    return last.removeprefix(REFUSAL).strip()


def view_of(cluster: ClusterProcess, tls: TlsFiles | None) -> ClusterView:
    """Return a view that accepts any certificate, including expired ones."""
    if tls is None:
        return ClusterView(cluster)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    # The nodes check the certificates of clients.
    context.load_cert_chain(tls.client_certificate, tls.client_key)
    return ClusterView(cluster, context)


def make_topic(
    cluster: ClusterProcess,
    partitions: int,
    min_isr: int = 2,
    tls: TlsFiles | None = None,
    configs: Mapping[str, str] | None = None,
) -> None:
    """Create the topic of a campaign on all brokers, without deletion."""
    view = view_of(cluster, tls)
    all_nodes = {node.node_id for node in cluster.brokers}
    await_that(view.live_brokers, lambda found: found == all_nodes, HEAL_TIMEOUT_S, "all brokers")
    all_configs = {"min.insync.replicas": str(min_isr), **TOPIC_CONFIGS, **(configs or {})}
    _make(cluster, TOPIC, partitions, all_configs, tls)


def make_hostile_topic(cluster: ClusterProcess, tls: TlsFiles | None = None) -> None:
    """Create the topic that a hostile client fills, with a retention of some megabytes."""
    configs = {"retention.bytes": str(8 << 20), "segment.bytes": str(4 << 20)}
    _make(cluster, HOSTILE_TOPIC, 1, configs, tls)


def make_lasting_topics(
    cluster: ClusterProcess,
    topics: Mapping[str, int],
    tls: TlsFiles | None = None,
    configs: Mapping[str, str] | None = None,
) -> None:
    """Create topics from which nothing is deleted, whatever the clocks say."""
    all_configs = {"min.insync.replicas": "2", **TOPIC_CONFIGS, "retention.ms": "-1"}
    all_configs |= configs or {}
    for name, partitions in topics.items():
        _make(cluster, name, partitions, all_configs, tls)


def _make(
    cluster: ClusterProcess,
    name: str,
    partitions: int,
    configs: dict[str, str],
    tls: TlsFiles | None = None,
) -> None:
    new = CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=min(REPLICAS, len(cluster.brokers)),
        assignments=[],
        configs=[CreatableTopicConfig(name=key, value=value) for key, value in configs.items()],
    )
    view = view_of(cluster, tls)
    create_topic(view, new)
    await_that(lambda: view.has_topic(name, partitions), bool, HEAL_TIMEOUT_S, f"topic {name}")
