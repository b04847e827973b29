"""Transactions in a cluster of Barnabas and Apache Kafka brokers.

The coordinator is a broker of one kind, and partitions are led by brokers of both kinds. Producers
of both kinds have transactions open at the same time, of which some commit and some abort.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from barnabas.client.admin.cluster import UpgradeType
from barnabas.client.admin.partitions import ElectionType
from barnabas.client.admin.topics import NewTopic
from barnabas.client.facade import Client
from barnabas.client.fetch.record_set import read_records
from barnabas.client.topic_partition import TopicPartition
from barnabas.testing.cluster_process import ClusterProcess, NodeOptions, NodeProcess
from jvm.kafka_node import KafkaNode
from jvm.transactors import KINDS, Transactor
from selection import nightly_unless
from waiting import eventually, eventually_equal

pytestmark = pytest.mark.conformance

# Timeout for operations that hang.
SECONDS = 180.0
OURS, KAFKAS, THIRD, FOURTH, CONTROLLER = 1, 2, 3, 4, 101
OTHER = {OURS: KAFKAS, KAFKAS: OURS}
NAMES = {OURS: "ours", KAFKAS: "Apache Kafka's"}
SETTINGS = {
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    "auto.create.topics.enable": "false",
    "auto.leader.rebalance.enable": "false",
    # The controller detects a killed broker early.
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
}
FEATURE = "transaction.version"
STATE = TopicPartition("__transaction_state", 0)
# Groups of each producer: coordinators of both kinds serve some.
GROUPS = 4
# Kinds of producers by level of transaction.version; librdkafka does not support level 2.
PRODUCERS = {2: ["barnabas", "java"], 1: ["java"]}
# Leaders of the partitions. The last partition needs the third and the fourth broker in sync.
LEADERS = [OURS, KAFKAS, THIRD]


class MixedCluster(ClusterProcess):
    """Broker 2 is Apache Kafka, the other three are Barnabas."""

    def __init__(self, directory: Path, java: set[int]) -> None:
        class EitherNode(NodeProcess):
            def __new__(cls, options: NodeOptions, settings: Mapping[str, str]) -> NodeProcess:
                kind = KafkaNode if options.node_id in java else NodeProcess
                return kind(options, settings)

        super().__init__(4, 1, directory, SETTINGS, node_type=EitherNode)


@pytest.fixture(
    scope="module",
    params=nightly_unless("our controller".__eq__, ["our controller", "Apache Kafka's controller"]),
)
def cluster(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[MixedCluster]:
    request.getfixturevalue("kafka_jars")
    java = {KAFKAS} if request.param == "our controller" else {KAFKAS, CONTROLLER}
    made = MixedCluster(tmp_path_factory.mktemp("mixed"), java)
    try:
        yield made.start(SECONDS)
    finally:
        made.close()


@pytest.fixture(scope="module")
def client(cluster: MixedCluster) -> Iterator[Client]:
    with Client(cluster.bootstrap, isolation_level="read_committed") as made:
        with made.producer(transactional_id="first") as producer:
            producer.init_transactions()
        yield made


class Party:
    """A producer whose transaction has one outcome, "commit" or "abort"."""

    def __init__(self, producer: Transactor, name: str, outcome: str) -> None:
        self.producer = producer
        # A part of its values and groups, which identifies its records.
        self.name = name
        self.outcome = outcome
        self.groups = [f"{name}-{number}" for number in range(GROUPS)]

    @property
    def commits(self) -> bool:
        return self.outcome == "commit"

    def begin(self) -> None:
        self.producer.init()
        self.producer.begin()

    def end(self) -> None:
        self.producer.commit() if self.commits else self.producer.abort()


class Stage:
    """Topics and producers of one test at a level of transaction.version."""

    def __init__(self, cluster: MixedCluster, client: Client, topic: str, level: int) -> None:
        self.cluster = cluster
        self.client = client
        self._level = level
        self._id = topic
        strict = f"{topic}-strict"
        mixed = {0: [OURS, KAFKAS], 1: [KAFKAS, OURS]}
        both = {"min.insync.replicas": "2"}
        client.create_topics(
            [
                NewTopic(topic, assignments=mixed),
                NewTopic(strict, assignments={0: [THIRD, FOURTH]}, configs=both),
            ]
        )
        self.places = [
            TopicPartition(topic, 0),
            TopicPartition(topic, 1),
            TopicPartition(strict, 0),
        ]

    def set_level(self) -> None:
        """Finalize the level of the feature, and wait until all brokers have it."""

        def found() -> set[int | None]:
            brokers = self.client.describe_cluster().brokers
            versions = [self.client.admin.describe_versions(each.id) for each in brokers]
            return {each.finalized_features.get(FEATURE) for each in versions}

        if found() != {self._level}:
            kind = UpgradeType.SAFE_DOWNGRADE if self._level < 2 else UpgradeType.UPGRADE
            self.client.admin.update_features({FEATURE: self._level}, kind=kind)
        eventually_equal(found, {self._level})

    def place_coordinator(self, node: int) -> None:
        """Make a broker the coordinator, with the broker of the other kind as its only follower."""
        target = {STATE: [node, OTHER[node]]}
        self.client.admin.alter_reassignments(target)
        eventually(lambda: not self.client.admin.list_reassignments([STATE]), "reassignment")

        def leads() -> bool:
            # The election is refused until the broker is in sync.
            self.client.admin.elect_leaders(ElectionType.PREFERRED, [STATE], raise_errors=False)
            return self.leader(STATE) == node

        eventually(leads, f"broker {node} does not lead {STATE}")
        self.await_in_sync()

    def leader(self, tp: TopicPartition) -> int:
        return self.client.describe_topics([tp.topic])[tp.topic].partitions[tp.partition].leader

    def in_sync(self, tp: TopicPartition) -> list[int]:
        return list(self.client.describe_topics([tp.topic])[tp.topic].partitions[tp.partition].isr)

    def await_in_sync(self) -> None:
        """Wait until all replicas are in sync, and the preferred replicas lead."""

        def is_complete() -> bool:
            self.client.admin.elect_leaders(ElectionType.PREFERRED, self.places, raise_errors=False)
            found = self.client.describe_topics([STATE.topic, *{tp.topic for tp in self.places}])
            partitions = [each for topic in found.values() for each in topic.partitions.values()]
            return [self.leader(tp) for tp in self.places] == LEADERS and all(
                sorted(each.isr) == sorted(each.replicas) for each in partitions
            )

        eventually(is_complete, self.cluster.log, SECONDS)

    @contextlib.contextmanager
    def parties(self, *outcomes: str) -> Iterator[list[Party]]:
        """Create producers of each kind for each outcome, without open transactions."""
        with contextlib.ExitStack() as stack:
            made = []
            for kind in PRODUCERS[self._level]:
                for outcome in outcomes:
                    name = f"{self._id}-{kind}-{outcome}"
                    producer = stack.enter_context(self.transactor(kind, name))
                    made.append(Party(producer, name, outcome))
            yield made

    def transactor(self, kind: str, transactional_id: str) -> Transactor:
        return KINDS[kind](self.cluster.bootstrap, transactional_id)

    def send_all(self, party: Party, value: str) -> None:
        """Send a record to each partition."""
        for tp in self.places:
            party.producer.send(tp.topic, tp.partition, f"{party.name}:{value}")

    def send_offsets(self, party: Party, offset: int) -> None:
        """Send an offset of each group of the producer."""
        for group in party.groups:
            party.producer.offset(group, *self.places[0], offset)

    def committed(self) -> list[dict[str, list[str]]]:
        """Wait until no transaction is open; return the values of each partition by producer."""
        asked = dict.fromkeys(self.places, "latest")

        def ends(level: str) -> dict[TopicPartition, int]:
            found = self.client.list_offsets(asked, isolation_level=level)
            return {tp: listed.offset for tp, listed in found.items()}

        eventually(
            lambda: ends("read_committed") == ends("read_uncommitted"),
            lambda: f"{ends('read_committed')} {ends('read_uncommitted')}\n{self.cluster.log()}",
            SECONDS,
        )
        values: list[dict[str, list[str]]] = []
        for tp, end in ends("read_committed").items():
            by_producer: dict[str, list[str]] = {}
            for batch in self.client.fetch_range({tp: (0, end)}):
                for record in read_records(batch):
                    assert record.value is not None
                    name, _, value = record.value.decode().partition(":")
                    by_producer.setdefault(name, []).append(value)
            values.append(by_producer)
        return values

    def offsets(self, parties: Sequence[Party]) -> dict[str, int]:
        """Return the committed offsets of the producers' groups for partition 0."""
        place = self.places[0]
        groups = [group for party in parties for group in party.groups]
        found = {group: self.client.committed(group, [place]) for group in groups}
        return {group: each[place].offset for group, each in found.items() if place in each}


@pytest.fixture(params=nightly_unless((2).__eq__, PRODUCERS), ids=lambda level: f"level {level}")
def stage(
    request: pytest.FixtureRequest, cluster: MixedCluster, client: Client, tmp_path: Path
) -> Iterator[Stage]:
    """Parametrized by the level of transaction.version."""
    made = Stage(cluster, client, tmp_path.name.replace("_", "-"), request.param)
    made.set_level()
    yield made
    for node in cluster.brokers:
        if not node.is_running:
            node.start()


@pytest.fixture(params=NAMES, ids=NAMES.values())
def coordinator(request: pytest.FixtureRequest, stage: Stage) -> int:
    stage.place_coordinator(request.param)
    return int(request.param)


def everywhere(parties: Sequence[Party], *values: str) -> list[dict[str, list[str]]]:
    """Return the expected values in each partition from the producers that commit."""
    return [{party.name: list(values) for party in parties if party.commits}] * len(LEADERS)


def test_transactions_are_committed_and_aborted(stage: Stage, coordinator: int) -> None:
    with stage.parties("commit") as parties:
        for party in parties:
            party.producer.init()
        for number, outcome in enumerate(["commit", "abort", "commit", "abort"]):
            for party in parties:
                party.producer.begin()
                stage.send_all(party, f"{outcome}-{number}")
                stage.send_offsets(party, number + 1)
            for party in parties:
                getattr(party.producer, outcome)()
        assert stage.leader(STATE) == coordinator
        assert stage.committed() == everywhere(parties, "commit-0", "commit-2")
        offsets = {group: 3 for party in parties for group in party.groups}
        eventually_equal(lambda: stage.offsets(parties), offsets)


def test_open_transactions_continue_with_a_coordinator_of_the_other_kind(
    stage: Stage, coordinator: int
) -> None:
    with stage.parties("commit", "abort") as parties:
        for party in parties:
            party.begin()
            stage.send_all(party, "before")
        stage.cluster.node(coordinator).kill()
        for party in parties:
            stage.send_all(party, "after")
            stage.send_offsets(party, 1)
            party.end()
        assert stage.leader(STATE) == OTHER[coordinator]
        assert stage.committed() == everywhere(parties, "before", "after")
        offsets = {group: 1 for party in parties if party.commits for group in party.groups}
        eventually_equal(lambda: stage.offsets(parties), offsets)
        # The next transactions succeed too.
        for party in parties:
            party.producer.begin()
            stage.send_all(party, "next")
            party.producer.commit()
        values = {True: ["before", "after", "next"], False: ["next"]}
        expected = {party.name: values[party.commits] for party in parties}
        assert stage.committed() == [expected] * len(LEADERS)


@pytest.mark.nightly
def test_transactions_without_their_producers_are_aborted_by_a_coordinator_of_the_other_kind(
    stage: Stage, coordinator: int
) -> None:
    with stage.parties("commit") as lost, stage.parties("commit") as parties:
        for party in lost:
            party.begin()
            stage.send_all(party, "lost")
        stage.cluster.node(coordinator).kill()
        for party in parties:
            party.begin()
            stage.send_all(party, "found")
            party.end()
        assert stage.committed() == everywhere(parties, "found")
        for party in lost:
            with pytest.raises(Exception, match=r"(?i)fenced|epoch"):
                stage.send_all(party, "late")
        assert stage.committed() == everywhere(parties, "found")


@pytest.mark.nightly
def test_prepared_ends_are_completed_by_a_coordinator_of_the_other_kind(
    stage: Stage, coordinator: int
) -> None:
    """A partition has too few in-sync replicas while transactions end, and gets its markers later.

    A partition without a leader cannot be used, because Kafka's coordinator drops its marker.
    """
    with stage.parties("commit", "abort") as parties:
        for party in parties:
            party.begin()
            stage.send_all(party, "prepared")
        # A broker that stops cleanly leaves the ISR at once.
        stage.cluster.node(FOURTH).stop()
        eventually_equal(lambda: stage.in_sync(stage.places[-1]), [THIRD])
        for party in parties:
            party.end()
        stage.cluster.node(coordinator).kill()
        eventually_equal(lambda: stage.leader(STATE), OTHER[coordinator])
        stage.cluster.node(FOURTH).start()
        assert stage.committed() == everywhere(parties, "prepared")
