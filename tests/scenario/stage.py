"""Plays stories: each command of the language is a method on a cluster of real processes."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.partition_changes import (
    AlterPartitionReassignmentsRequest,
    ElectLeadersRequest,
    ReassignablePartition,
    ReassignableTopic,
    TopicPartitions,
)
from barnabas.protocol.messages.topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
)
from barnabas.testing.cluster_process import ClusterProcess, NodeProcess
from barnabas.testing.relays import Relays
from chaos.checker import Verdict, check
from chaos.cluster_view import IS_LATE, ClusterView, PartitionView, await_that, create_topic
from chaos.history import PartitionLog
from chaos.small_disk import SmallDisk
from jvm.kafka_node import KafkaNode
from scenario.actors import Actors
from scenario.language import Step, Story, numbers, pairs
from scenario.segments import lose_last_records, read_replica
from scenario.transactions.steps import TRANSACTION_METHODS, TransactionSteps
from waiting import PATIENCE_S

SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    # The interval of the coordinator's checks for expired transactions.
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
    "auto.create.topics.enable": "false",
}
# Kafka detects a dead broker only by the end of its session.
KAFKA_SETTINGS = {"broker.session.timeout.ms": "3000", "broker.heartbeat.interval.ms": "500"}
# Faults that a story with "records may be lost" allows.
LOSSES = {"lost", "vanished", "unread", "went back", "two values", "misplaced"}


class StepError(AssertionError):
    """A step that did not have the expected result."""


class Stage:
    """One story's cluster and clients.

    Args:
        directory: contains the directories of the nodes.
        kafka: whether the cluster is Apache Kafka's.
    """

    def __init__(self, directory: Path, *, kafka: bool = False) -> None:
        self._directory = directory
        self._kafka = kafka
        self._settings: dict[str, str] = dict(SETTINGS)
        self._cluster: ClusterProcess | None = None
        self._relays: Relays | None = None
        self._actors: Actors | None = None
        self._transactions: TransactionSteps | None = None
        self._topics: list[str] = []
        self._may_lose = False
        # Megabytes by broker, until there are brokers; then their disks.
        self._disk_sizes: dict[int, int] = {}
        self._disks: dict[int, SmallDisk] = {}
        # The nodes that "it" refers to.
        self._last: list[NodeProcess] = []
        # The time of the last change of a link.
        self._changed_at = 0.0
        self.timings: list[tuple[Step, float]] = []

    # Playing

    def play(self, story: Story) -> None:
        """Run all steps, and check the observations of the clients.

        Raises:
            StepError: a step failed; the message has the line and the observed state.
        """
        self.play_steps(story.steps, story.name)
        verdict = self._verdict()
        faults = [] if self._transactions is None else self._transactions.verdict()
        if not verdict.is_clean or faults:
            raise StepError("\n".join([f"{story.name}: after all: {verdict}", *faults[:20]]))

    def play_steps(self, steps: Iterable[Step], name: str = "") -> None:
        """Run steps of a story, without a verdict.

        Raises:
            StepError: a step failed; the message has the line and the observed state.
        """
        for step in steps:
            started = time.monotonic()
            try:
                self._do(step)
            except Exception as error:
                logs = self.cluster.log() if self._cluster is not None else ""
                raise StepError(f"{name}:{step.line}: {step.text}\n  {error}\n{logs}") from error
            self.timings.append((step, time.monotonic() - started))

    def close(self) -> None:
        """End clients, processes and relays."""
        if self._actors is not None:
            self._actors.close()
        if self._transactions is not None:
            self._transactions.close()
        if self._cluster is not None:
            self._cluster.close()
        for disk in self._disks.values():
            disk.close()
        if self._relays is not None:
            self._relays.close()

    def _do(self, step: Step) -> None:
        if step.command in TRANSACTION_METHODS:
            TRANSACTION_METHODS[step.command](self.transactions, **step.arguments)
        else:
            _METHODS[step.command](self, **step.arguments)

    def _verdict(self) -> Verdict:
        verdict = check(self.actors.history(self._read_all()))
        if self._may_lose:
            for kind in LOSSES:
                verdict.counts.pop(kind, None)
        return verdict

    def _read_all(self) -> dict[str, PartitionLog]:
        """Read all topics without transactions, whose offsets have no gaps."""
        written = set() if self._transactions is None else set(self._transactions.ledger.topics)
        return {topic: self.actors.read(topic) for topic in self._topics if topic not in written}

    @property
    def cluster(self) -> ClusterProcess:
        """The processes of the cluster."""
        assert self._cluster is not None, "no brokers yet: 3 brokers"
        return self._cluster

    @property
    def actors(self) -> Actors:
        """The clients."""
        assert self._actors is not None, "no brokers yet: 3 brokers"
        return self._actors

    @property
    def transactions(self) -> TransactionSteps:
        """The transactional clients."""
        if self._transactions is None:
            self._transactions = TransactionSteps(self.cluster)
        return self._transactions

    @property
    def view(self) -> ClusterView:
        """The state that the cluster reports."""
        return ClusterView(self.cluster)

    # The stage

    def start_brokers(self, n: str, m_n: str = "0") -> None:
        node_type = KafkaNode if self._kafka else NodeProcess
        settings = {**(KAFKA_SETTINGS if self._kafka else {}), **self._settings}
        self._cluster = ClusterProcess(
            int(n), int(m_n), self._directory, settings, self._relays, node_type
        )
        if self._relays is not None:
            nodes = self._cluster.nodes
            self._relays.pids = lambda: {i: n.pid for i, n in nodes.items() if n.is_running}
        for number, size_mb in self._disk_sizes.items():
            self._disks[number] = SmallDisk(self._cluster.node(number), size_mb)
        self._cluster.start()
        self._actors = Actors(self._cluster.bootstrap)
        brokers = {node.node_id for node in self._cluster.brokers}
        self._await(self.view.live_brokers, lambda found: found == brokers, "all brokers")

    def setting(self, word: str, rest: str) -> None:
        assert self._cluster is None, "settings come before the brokers"
        self._settings[word] = rest

    def small_disk(self, n: str, m_n: str) -> None:
        assert self._cluster is None, "disks come before the brokers"
        self._disk_sizes[int(m_n)] = int(n)

    def only_here(self, rest: str) -> None:
        if self._kafka:
            pytest.skip(rest)

    def make_relays(self) -> None:
        assert self._cluster is None, "relays come before the brokers"
        self._relays = Relays()

    def may_lose(self) -> None:
        self._may_lose = True

    def topic(self, topic: str, ids: str, n: str | None = None, keys: str | None = None) -> None:
        configs = pairs(keys) if keys else {}
        if n is not None:
            configs["min.insync.replicas"] = n
        placed = CreatableReplicaAssignment(partition_index=0, broker_ids=numbers(ids))
        new = CreatableTopic(
            name=topic,
            num_partitions=-1,
            replication_factor=-1,
            assignments=[placed],
            configs=[CreatableTopicConfig(name=k, value=v) for k, v in configs.items()],
        )
        create_topic(self.view, new)
        up = {node.node_id for node in self.cluster.brokers if node.is_running}
        isr = tuple(sorted(up.intersection(numbers(ids))))
        self._partition(topic, lambda found: found.isr == isr, "isr")
        self._await(lambda: self.view.has_topic(topic, 1), bool, "the new topic everywhere")
        self._topics.append(topic)

    def topic_anyway(self, topic: str, ids: str, n: str) -> None:
        """Create a topic, with retries while the cluster has no controller."""
        self._await(self.view.controller, lambda _: True, "a controller")
        self.topic(topic, ids, n)

    # Clients

    def produce(self, topic: str, n: str, acks: str = "all") -> None:
        self.actors.produce(topic, int(n), acks)

    def produce_fails(self, topic: str, n: str, acks: str) -> None:
        self.actors.produce_and_expect_failure(topic, int(n), acks)

    def produce_takes(self, topic: str, n: str, acks: str, ms: str) -> None:
        self.actors.produce(topic, int(n), acks)
        took_ms = (time.monotonic() - self._changed_at) * 1000
        assert took_ms >= int(ms), f"the send took only {took_ms:.0f} ms"

    def keep_producing(self, topic: str) -> None:
        self.actors.keep_producing(topic)

    def stop_producing(self) -> None:
        self.actors.stop_producing()

    def consume(self, topic: str, group: str) -> None:
        self.actors.keep_consuming(topic, group)
        self.actors.stop_consuming()

    def keep_consuming(self, topic: str, group: str) -> None:
        self.actors.keep_consuming(topic, group)

    def stop_consuming(self) -> None:
        self.actors.stop_consuming()

    # Nodes

    def _nodes(self, node: str) -> list[NodeProcess]:
        """Return the named nodes. Afterwards "it" refers to the same nodes."""
        if node == "it":
            assert self._last, 'no node was named before "it"'
            return self._last
        if node == "all":
            found = list(self.cluster.nodes.values())
        elif node == "all brokers":
            found = self.cluster.brokers
        else:
            found = [self.cluster.node(self._number(node))]
        self._last = found
        return found

    def _number(self, node: str) -> int:
        kind, _, name = node.partition(" of ")
        if node == "controller":
            return self._await(self.view.controller, lambda _: True, "a controller")[0]
        if kind == "transaction coordinator":
            return self._await(lambda: self.transactions.coordinator(name), lambda _: True, node)
        if kind == "coordinator":
            return self._await(lambda: self.view.coordinator(name), lambda _: True, node)
        if kind in {"leader", "follower"}:
            found = self._await(lambda: self.view.partition(name), lambda v: v.leader > 0, node)
            if kind == "leader":
                return found.leader
            return next(each for each in found.isr if each != found.leader)
        return int(node.split()[1])

    def kill(self, node: str) -> None:
        for each in self._nodes(node):
            each.kill()

    def stop(self, node: str) -> None:
        found = self._nodes(node)
        for each in found:
            each.terminate()
        for each in found:
            each.stop()

    def launch(self, node: str) -> None:
        for each in self._nodes(node):
            each.launch()

    def start(self, node: str) -> None:
        self.launch(node)
        for each in self._last:
            each.await_ready()

    def restart(self, node: str) -> None:
        self.stop(node)
        self.start("it")

    def pause(self, node: str) -> None:
        for each in self._nodes(node):
            each.pause()

    def resume(self, node: str) -> None:
        for each in self._nodes(node):
            each.resume()

    def wipe(self, node: str) -> None:
        for each in self._nodes(node):
            each.wipe()

    def fill_disk(self, node: str) -> None:
        for each in self._nodes(node):
            self._disks[each.node_id].fill()

    def free_disk(self, node: str) -> None:
        for each in self._nodes(node):
            self._disks[each.node_id].free()

    def expect_down(self, node: str) -> None:
        for each in self._nodes(node):
            self._await(
                lambda each=each: each.is_running, lambda runs: not runs, f"the end of {node}"
            )

    def lose(self, node: str, n: str, topic: str) -> None:
        for each in self._nodes(node):
            assert not each.is_running, "stop the node before it loses records"
            lose_last_records(each.data_directory, topic, int(n))

    # Links

    def _links(self, nodes: str, other: str) -> list[tuple[int, int]]:
        groups = {
            "all": list(self.cluster.nodes),
            "brokers": [node.node_id for node in self.cluster.brokers],
            "controllers": [node.node_id for node in self.cluster.controllers],
        }
        self._changed_at = time.monotonic()
        first = groups.get(nodes) or [int(nodes)]
        second = groups.get(other) or [int(other)]
        return [(one, two) for one in first for two in second if one != two]

    @property
    def relays(self) -> Relays:
        """The relays between the nodes."""
        assert self._relays is not None, "the story lacks the command: relays"
        return self._relays

    def cut(self, nodes: str, b_nodes: str) -> None:
        for one, other in self._links(nodes, b_nodes):
            self.relays.cut(one, other)

    def stall(self, nodes: str, b_nodes: str) -> None:
        for one, other in self._links(nodes, b_nodes):
            self.relays.stall(one, other)

    def delay(self, nodes: str, b_nodes: str, ms: str) -> None:
        for one, other in self._links(nodes, b_nodes):
            self.relays.delay(one, other, float(ms))

    def heal(self) -> None:
        self.relays.heal()

    # Operators

    def reassign(self, topic: str, ids: str) -> None:
        partition = ReassignablePartition(partition_index=0, replicas=numbers(ids))
        moved = ReassignableTopic(name=topic, partitions=[partition])
        request = AlterPartitionReassignmentsRequest(topics=[moved], timeout_ms=10_000)
        response = self._retry_request(request, 0)
        result = response.responses[0].partitions[0]
        assert result.error_code == ErrorCode.NONE, (result.error_code, result.error_message)

    def coordinate(self, word: str, ids: str) -> None:
        """Create the internal topic, move its partition, and elect the first replica."""
        topic = {"groups": "__consumer_offsets", "transactions": "__transaction_state"}[word]
        find = self.view.coordinator if word == "groups" else self.transactions.coordinator
        self._await(lambda: find("any"), lambda _: True, f"a coordinator of {word}")
        expected = tuple(numbers(ids))
        if self.view.partition(topic).replicas != expected:
            self.reassign(topic, ids)
        self._partition(
            topic, lambda v: v.replicas == expected and v.isr == tuple(sorted(expected)), "replicas"
        )
        self._elect(topic, 0)
        self._await(
            lambda: find("any"), lambda node: node == expected[0], f"{word} on {expected[0]}"
        )

    def elect_preferred(self, topic: str) -> None:
        self._elect(topic, 0)

    def elect_unclean(self, topic: str) -> None:
        self._elect(topic, 1)

    def _elect(self, topic: str, election_type: int) -> None:
        expected = TopicPartitions(topic=topic, partitions=[0])
        request = ElectLeadersRequest(
            election_type=election_type, topic_partitions=[expected], timeout_ms=10_000
        )
        accepted = (ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED)
        # The expected leader may be reported as back a moment later.
        self._await(
            lambda: self._retry_request(request, 2).replica_election_results[0].partition_result[0],
            lambda result: result.error_code in accepted,
            f"the election of {topic}",
        )

    def _retry_request(self, request: object, version: int) -> Any:
        """Send a request, with retries while there is no controller."""
        return self._await(
            lambda: self.view.order(request, version),
            lambda response: response.error_code not in IS_LATE,
            type(request).__name__,
        )

    def wait(self, n: str) -> None:
        time.sleep(int(n) / 1000)

    # Expected states

    def _await(self, observe: Callable, expected: Callable, what: str):  # type: ignore[no-untyped-def, type-arg]
        return await_that(observe, expected, PATIENCE_S, what)

    def _partition(self, topic: str, expected: Callable[[PartitionView], bool], what: str) -> None:
        self._await(lambda: self.view.partition(topic), expected, f"{what} of {topic}")

    def expect_leader(self, topic: str, ids: str) -> None:
        leader = (numbers(ids) or [-1])[0]
        self._partition(topic, lambda found: found.leader == leader, "leader")

    def expect_leader_in(self, topic: str, ids: str) -> None:
        self._partition(topic, lambda found: found.leader in numbers(ids), "leader")

    def expect_isr(self, topic: str, ids: str) -> None:
        isr = tuple(sorted(numbers(ids)))
        self._partition(topic, lambda found: found.isr == isr, "isr")

    def expect_elr(self, topic: str, ids: str) -> None:
        elr = tuple(sorted(numbers(ids)))
        self._partition(topic, lambda found: found.elr == elr, "elr")

    def expect_replicas(self, topic: str, ids: str) -> None:
        expected = sorted(numbers(ids))
        self._partition(topic, lambda found: sorted(found.replicas) == expected, "replicas")

    def expect_epoch(self, topic: str, n: str) -> None:
        self._partition(topic, lambda found: found.leader_epoch == int(n), "epoch")

    def expect_log_end(self, topic: str, n: str, m_n: str) -> None:
        directory = self.cluster.node(int(n)).data_directory
        self._await(
            lambda: read_replica(directory, topic).end_offset,
            lambda end: end == int(m_n),
            f"log end of {topic} on {n}",
        )

    def expect_epochs(self, topic: str, n: str, rest: str) -> None:
        expected = [tuple(map(int, each.split(":"))) for each in rest.split()]
        directory = self.cluster.node(int(n)).data_directory
        self._await(
            lambda: read_replica(directory, topic).epochs,
            lambda found: found == expected,
            f"epochs of {topic} on {n}",
        )

    def expect_same_logs(self, n: str, m_n: str) -> None:
        one = self.cluster.node(int(n)).data_directory
        other = self.cluster.node(int(m_n)).data_directory
        for topic in self._topics:
            self._await(
                lambda topic=topic: (read_replica(one, topic), read_replica(other, topic)),
                lambda logs: bool(logs[0].data) and logs[0].data == logs[1].data,
                f"the same bytes of {topic} on {n} and {m_n}",
            )
            fetched = self.actors.values(topic)
            stored = read_replica(one, topic).values()
            assert fetched == stored[: len(fetched)], (
                f"the fetched records of {topic} differ from the log"
            )

    def expect_holds(self, topic: str, n: str) -> None:
        self._await(
            lambda: len(self.actors.values(topic)), lambda found: found == int(n), "records"
        )

    def expect_committed(self, group: str, topic: str, n: str) -> None:
        self._await(
            lambda: self.actors.committed(topic, group), lambda found: found == int(n), "committed"
        )

    def expect_controller_is_not(self, node: str) -> None:
        former = {each.node_id for each in self._nodes(node)}
        self._await(self.view.controller, lambda found: found[0] not in former, "controller")

    def expect_brokers(self, ids: str) -> None:
        expected = set(numbers(ids))
        self._await(self.view.live_brokers, lambda found: found == expected, "brokers")

    def expect_no_failed_sends(self) -> None:
        failures = self.actors.failures()
        assert not failures, failures[:5]

    def expect_mentioned(self, n: str, rest: str) -> None:
        node = self.cluster.node(int(n))
        self._await(lambda: re.search(rest, node.log()), bool, f"{rest} in the log of {n}")


_METHODS: dict[str, Callable[..., None]] = {
    "{n} brokers": Stage.start_brokers,
    "{n} brokers {m_n} controllers": Stage.start_brokers,
    "setting {word} = {rest}": Stage.setting,
    "disk of {n} MB for broker {m_n}": Stage.small_disk,
    "only on Barnabas: {rest}": Stage.only_here,
    "relays": Stage.make_relays,
    "records may be lost": Stage.may_lose,
    "topic {topic} replicas {ids}": Stage.topic,
    "topic {topic} replicas {ids} min-isr {n}": Stage.topic,
    "topic {topic} replicas {ids} with {keys}": Stage.topic,
    "topic {topic} replicas {ids} min-isr {n} while nodes are down": Stage.topic_anyway,
    "produce {topic} {n}": Stage.produce,
    "produce {topic} {n} acks {acks}": Stage.produce,
    "produce {topic} {n} acks {acks} fails": Stage.produce_fails,
    "produce {topic} {n} acks {acks} takes {ms} ms": Stage.produce_takes,
    "keep producing {topic}": Stage.keep_producing,
    "stop producing": Stage.stop_producing,
    "consume {topic} as {group}": Stage.consume,
    "keep consuming {topic} as {group}": Stage.keep_consuming,
    "stop consuming": Stage.stop_consuming,
    "kill {node}": Stage.kill,
    "stop {node}": Stage.stop,
    "start {node}": Stage.start,
    "launch {node}": Stage.launch,
    "restart {node}": Stage.restart,
    "pause {node}": Stage.pause,
    "resume {node}": Stage.resume,
    "wipe {node}": Stage.wipe,
    "fill disk of {node}": Stage.fill_disk,
    "free disk of {node}": Stage.free_disk,
    "expect {node} down": Stage.expect_down,
    "{node} loses the last {n} records of {topic}": Stage.lose,
    "cut {nodes} from {b_nodes}": Stage.cut,
    "stall {nodes} from {b_nodes}": Stage.stall,
    "delay {nodes} to {b_nodes} by {ms} ms": Stage.delay,
    "heal": Stage.heal,
    "reassign {topic} to {ids}": Stage.reassign,
    "coordinate {word} on {ids}": Stage.coordinate,
    "elect preferred leader of {topic}": Stage.elect_preferred,
    "elect unclean leader of {topic}": Stage.elect_unclean,
    "await {n} ms": Stage.wait,
    "expect leader of {topic} = {ids}": Stage.expect_leader,
    "expect leader of {topic} in {ids}": Stage.expect_leader_in,
    "expect isr of {topic} = {ids}": Stage.expect_isr,
    "expect elr of {topic} = {ids}": Stage.expect_elr,
    "expect replicas of {topic} = {ids}": Stage.expect_replicas,
    "expect epoch of {topic} = {n}": Stage.expect_epoch,
    "expect log end of {topic} on {n} = {m_n}": Stage.expect_log_end,
    "expect epochs of {topic} on {n} = {rest}": Stage.expect_epochs,
    "expect log of {n} = log of {m_n}": Stage.expect_same_logs,
    "expect {topic} holds {n} records": Stage.expect_holds,
    "expect committed of {group} on {topic} = {n}": Stage.expect_committed,
    "expect controller is not {node}": Stage.expect_controller_is_not,
    "expect brokers {ids}": Stage.expect_brokers,
    "expect no failed sends": Stage.expect_no_failed_sends,
    "expect log of {n} mentions {rest}": Stage.expect_mentioned,
}


def runs_on_kafka() -> bool:
    """Return whether the stories run on Apache Kafka instead of Barnabas."""
    return os.environ.get("BARNABAS_CONFORMANCE_BOOTSTRAP") == "kafka"
