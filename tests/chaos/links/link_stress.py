"""Two clusters with links between them, under load: starts them, heals them, waits for mirrors.

Brokers reach the other cluster only through a listener of its own behind relays, so the connections
of links can be cut, stalled and delayed while clients go on.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from barnabas.client.errors import ClientError
from barnabas.client.facade import Client
from barnabas.client.topic_partition import TopicPartition
from barnabas.testing.cluster_process import ClusterProcess, NodeProcess
from barnabas.testing.free_ports import HOST, free_ports
from barnabas.testing.relays import Relays
from chaos.chaos_node import ChaosNode
from chaos.cluster_view import await_that
from chaos.links.ledger import LEDGER, PARTITIONS as LEDGER_PARTITIONS
from chaos.load import Load, LoadOptions
from chaos.stress import HEAL_TIMEOUT_S, TOPIC, Stress, make_lasting_topics
from conformance.cli_shell import Shell
from jvm.kafka_node import KafkaNode
from jvm.migration import PATIENT
from waiting import eventually

LINK, TRUNCATING_LINK = "prod", "truncating"
RETAINED, COMPACTED, TRUNCATED = "retained", "compacted", "truncated"
# Of the load.
PARTITIONS = 3
LISTENER = "LINK"
# The relays know the brokers of the second cluster by their ids plus this number.
SECOND_IDS = 50
# The relays know the commands of this process by this id.
_COMMANDS = 99
_SEGMENT = {"segment.bytes": str(1 << 20)}
# Topics of the link beside those of the load, with partitions and configs.
TOPICS: Mapping[str, tuple[int, Mapping[str, str]]] = {
    LEDGER: (LEDGER_PARTITIONS, {}),
    RETAINED: (1, {"retention.bytes": str(1 << 20)}),
    COMPACTED: (1, {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}),
}
SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
    "auto.create.topics.enable": "false",
    "auto.leader.rebalance.enable": "false",
    "log.retention.check.interval.ms": "1000",
    "log.initial.task.delay.ms": "1000",
    "log.cleaner.backoff.ms": "2000",
    "default.replication.factor": "3",
    # Six brokers and their clients share the processors.
    **PATIENT,
}
# All nodes may start at the same time.
START_TIMEOUT_S = 600.0


@dataclass(frozen=True)
class LinkOptions:
    """The options of a campaign with links."""

    seconds: float
    seed: int
    # Whether the source of the links is Apache Kafka. Then topics do not move there and back.
    kafka: bool = False
    # Records per second of each of the two producers.
    rate: int = 60
    # Names of the faults to choose from; all if empty.
    faults: tuple[str, ...] = ()


@dataclass
class Side:
    """One of the two clusters."""

    name: str
    cluster: ClusterProcess
    stress: Stress
    # Addresses at which the other cluster reaches this one.
    link_bootstrap: str
    # Added to the ids of its brokers to get those of the relays.
    first_id: int

    @property
    def bootstrap(self) -> str:
        """The addresses for clients."""
        return self.cluster.bootstrap

    @property
    def relay_ids(self) -> list[int]:
        """The ids of the brokers at the relays."""
        return [self.first_id + node.node_id for node in self.cluster.brokers]


class LinkStress:
    """Two clusters; the topics of link `prod` are mirrored from `active` to `passive`.

    Args:
        options: the options of the campaign.
        directory: an empty one.
    """

    def __init__(self, options: LinkOptions, directory: Path) -> None:
        self.options = options
        self.directory = directory
        self.rng = random.Random(options.seed)
        self.relays = Relays()
        # Where the links were created from, and where they were created.
        self.first = self._side("first", KafkaNode if options.kafka else ChaosNode, 0)
        self.second = self._side("second", ChaosNode, SECOND_IDS)
        # The cluster with the producers, and the cluster with the mirrors of the link `prod`.
        self.active, self.passive = self.first, self.second
        self.relays.pids = self._pids
        self.shell = Shell(self.second.bootstrap)
        # Descriptions of what happened during the present fault.
        self.notes: list[str] = []

    def _side(self, name: str, kind: type[NodeProcess], first_id: int) -> Side:
        cluster = ClusterProcess(3, 0, self.directory / name, SETTINGS, None, kind)
        for node in cluster.nodes.values():
            node.start_timeout_s = START_TIMEOUT_S
        options = LoadOptions(TOPIC, PARTITIONS)
        # `LinkedLoad` replaces this load before it starts one.
        stress = Stress(cluster, None, Load(cluster.bootstrap, options), self.rng, PARTITIONS)
        return Side(name, cluster, stress, self._add_listener(cluster, first_id), first_id)

    def _add_listener(self, cluster: ClusterProcess, first_id: int) -> str:
        """Give all brokers the listener for the other cluster; return its addresses."""
        found: list[str] = []
        for node, port in zip(cluster.brokers, free_ports(len(cluster.brokers)), strict=True):
            reached = self.relays.relayed(first_id + node.node_id, LISTENER, (HOST, port))
            found.append(f"{reached[0]}:{reached[1]}")
            node.settings["listeners"] += f",{LISTENER}://{HOST}:{port}"
            node.settings["advertised.listeners"] += f",{LISTENER}://{found[-1]}"
            node.settings["listener.security.protocol.map"] += f",{LISTENER}:PLAINTEXT"
        return ",".join(found)

    def _pids(self) -> dict[int, int]:
        """Return the process of each id that the relays know."""
        running = {
            side.first_id + node.node_id: node.pid
            for side in (self.first, self.second)
            for node in side.cluster.brokers
            if node.is_running
        }
        return {**running, _COMMANDS: os.getpid()}

    @property
    def sides(self) -> tuple[Side, Side]:
        """Both clusters."""
        return self.first, self.second

    def start(self) -> None:
        """Start both clusters, create the topics and the links."""
        for side in self.sides:
            side.cluster.launch()
        for side in self.sides:
            side.cluster.await_ready(START_TIMEOUT_S)
        first = self.first.cluster
        make_lasting_topics(first, {TOPIC: PARTITIONS})
        for name, (partitions, configs) in TOPICS.items():
            make_lasting_topics(first, {name: partitions}, configs={**_SEGMENT, **configs})
        self._make_truncated_topic()
        config = self.properties(self.first)
        words = ["--groups", "chaos", "--group-interval", "500"]
        names = "|".join((TOPIC, *TOPICS))
        self.command("links", "create", LINK, "--config", config, "--topics", names, *words)
        words = ["--topics", TRUNCATED, "--on-truncation", "follow"]
        self.command("links", "create", TRUNCATING_LINK, "--config", config, *words)
        eventually(lambda: set(self.mirror_topics) <= self._topics(self.second), "no mirrors")

    def _make_truncated_topic(self) -> None:
        """Create the topic whose unclean elections are followed: two replicas may be too few."""
        configs = ["unclean.leader.election.enable=true", "min.insync.replicas=1"]
        words = [word for each in configs for word in ("--config", each)]
        create = ["topics", "create", TRUNCATED, "--partitions", "1", "--replication-factor", "2"]
        done = Shell(self.first.bootstrap).run_in_process(*create, *words)
        assert done.returncode == 0, done.stderr

    def _topics(self, side: Side) -> set[str]:
        with Client(side.bootstrap) as client:
            return set(client.describe_topics())

    @property
    def mirror_topics(self) -> dict[str, int]:
        """The topics of link `prod`, with their numbers of partitions."""
        return {TOPIC: PARTITIONS, **{name: count for name, (count, _) in TOPICS.items()}}

    def properties(self, side: Side) -> str:
        """Write a file with which brokers of the other cluster connect to this one."""
        file = self.directory / f"{side.name}.properties"
        file.write_text(f"bootstrap.servers={side.link_bootstrap}\n")
        return str(file)

    def command(self, *words: str) -> str:
        """Run a command that must succeed in the cluster of the links; return its output."""
        done = self.shell.run_in_process(*words)
        assert done.returncode == 0, f"{words}: {done.stderr}"
        return done.stdout

    def cut(self) -> None:
        """Close all connections between the clusters, and every new one."""
        for one, other in self.link_pairs():
            self.relays.cut(one, other)

    def link_pairs(self) -> list[tuple[int, int]]:
        """Return the pairs of brokers of both clusters by the ids of the relays."""
        first, second = self.first.relay_ids, self.second.relay_ids
        return [(one, other) for one in first for other in second]

    def heal(self) -> None:
        """Restart and reconnect everything, and wait until all replicas are in sync."""
        self.relays.heal()
        for side in self.sides:
            side.stress.heal()
        for side in self.sides:
            side.stress.await_full_isr()
            side.stress.finish_healing()
            self.notes += side.stress.pop_notes()

    def check_alive(self) -> None:
        """Check that no node has ended without a fault."""
        for side in self.sides:
            side.stress.check_alive()

    def await_mirrored(self) -> None:
        """Wait until the mirrors have all records that their sources have now."""
        for topics, source, mirror in (
            (self.mirror_topics, self.active, self.passive),
            ({TRUNCATED: 1}, self.first, self.second),
        ):
            wanted = await_ranges(source.bootstrap, topics)

            def behind(
                topics: Mapping[str, int] = topics,
                wanted: Mapping[TopicPartition, tuple[int, int]] = wanted,
                mirror: Side = mirror,
            ) -> list[str]:
                self.check_alive()
                found = await_ranges(mirror.bootstrap, topics)
                return [
                    f"{tp.topic}-{tp.partition}: {found.get(tp)} of {end}"
                    for tp, end in wanted.items()
                    if found.get(tp, (0, -1))[1] < end[1]
                ]

            await_that(behind, lambda left: not left, HEAL_TIMEOUT_S, self._describe())

    def _describe(self) -> str:
        shell = Shell(self.passive.bootstrap)
        done = shell.run_in_process("links", "describe", LINK)
        return f"the mirrors\n{done.stdout}{done.stderr}"

    def close(self) -> None:
        """End all processes."""
        for side in self.sides:
            side.cluster.close()
        self.relays.close()


def await_ranges(
    bootstrap: str, topics: Mapping[str, int]
) -> dict[TopicPartition, tuple[int, int]]:
    """Return log start offset and high watermark of each partition, when all are known."""
    keys = [TopicPartition(name, n) for name, count in topics.items() for n in range(count)]
    errors: list[object] = []

    def look() -> dict[TopicPartition, tuple[int, int]]:
        try:
            with Client(bootstrap) as client:
                starts, ends = (_offsets(client, keys, spec) for spec in ("earliest", "latest"))
        except ClientError as error:
            errors.append(error)
            return {}
        return {key: (starts[key], ends[key]) for key in keys if key in starts and key in ends}

    return eventually(
        lambda: found if len(found := look()) == len(keys) else {},
        lambda: f"offsets of {topics}: {errors[-1:]}",
        HEAL_TIMEOUT_S,
    )


def _offsets(
    client: Client, keys: Iterable[TopicPartition], spec: str
) -> dict[TopicPartition, int]:
    found = client.admin.list_offsets(dict.fromkeys(keys, spec))
    return {key: each.offset for key, each in found.items() if not isinstance(each, ClientError)}
