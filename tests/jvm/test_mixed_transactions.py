"""Transactions in one cluster of our nodes and Apache Kafka's.

The coordinator is a broker of one kind, and partitions are led by brokers of both kinds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from barnabas.client.admin.cluster.features import UpgradeType
from barnabas.client.admin.topics.partitions import ElectionType
from barnabas.client.admin.topics.topics import NewTopic
from barnabas.client.facade import Client
from barnabas.client.fetch.record_decoding import read_records
from barnabas.client.topic_partition import TopicPartition
from barnabas.testing.cluster_process import ClusterProcess
from barnabas.testing.node_process import NodeOptions, NodeProcess
from jvm.test_mixed_cluster import PlainKafkaNode
from jvm.transactors import KINDS, Transactor
from waiting import eventually, eventually_equal

pytestmark = pytest.mark.conformance

# A limit for what hangs.
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
    # A broker that is killed is noticed soon.
    "broker.session.timeout.ms": "6000",
    "broker.heartbeat.interval.ms": "1000",
}
FEATURE = "transaction.version"
STATE = TopicPartition("__transaction_state", 0)
GROUPS = [f"group-{number}" for number in range(6)]
# Leaders of the partitions. The last partition needs the third and the fourth broker in sync.
LEADERS = [OURS, KAFKAS, THIRD]


class MixedCluster(ClusterProcess):
    """Broker 2 is Apache Kafka's, the other three are ours."""

    def __init__(self, directory: Path, java: set[int]) -> None:
        class EitherNode(NodeProcess):
            def __new__(cls, options: NodeOptions, settings: Mapping[str, str]) -> NodeProcess:
                kind = PlainKafkaNode if options.node_id in java else NodeProcess
                return kind(options, settings)

        super().__init__(4, 1, directory, SETTINGS, node_type=EitherNode)


@pytest.fixture(scope="module", params=["our controller", "Apache Kafka's controller"])
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


class Stage:
    """A topic, and a producer whose transactions one of the brokers coordinates."""

    def __init__(self, cluster: MixedCluster, client: Client, topic: str, kind: str) -> None:
        self.cluster = cluster
        self.client = client
        self._kind = kind
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

    def set_level(self, level: int) -> None:
        """Finalize a level of the feature; brokers have it when this returns."""

        def found() -> set[int | None]:
            brokers = self.client.describe_cluster().brokers
            versions = [self.client.admin.describe_versions(each.id) for each in brokers]
            return {each.finalized_features.get(FEATURE) for each in versions}

        if found() != {level}:
            kind = UpgradeType.SAFE_DOWNGRADE if level < 2 else UpgradeType.UPGRADE
            self.client.admin.update_features({FEATURE: level}, kind=kind)
        eventually_equal(found, {level})

    def place_coordinator(self, node: int) -> None:
        """Have a broker coordinate, with the broker of the other kind as its only follower."""
        target = {STATE: [node, OTHER[node]]}
        self.client.admin.alter_reassignments(target)
        eventually(lambda: not self.client.admin.list_reassignments([STATE]), "reassignment")

        def leads() -> bool:
            # Refused until the broker is in sync.
            self.client.admin.elect_leaders(ElectionType.PREFERRED, [STATE], raise_errors=False)
            return self.leader(STATE) == node

        eventually(leads, f"broker {node} does not lead {STATE}")
        self.await_in_sync()

    def leader(self, tp: TopicPartition) -> int:
        return self.client.describe_topics([tp.topic])[tp.topic].partitions[tp.partition].leader

    def in_sync(self, tp: TopicPartition) -> list[int]:
        return list(self.client.describe_topics([tp.topic])[tp.topic].partitions[tp.partition].isr)

    def await_in_sync(self) -> None:
        """Wait until no replica is behind, and the partitions are led as they were created."""

        def is_complete() -> bool:
            self.client.admin.elect_leaders(ElectionType.PREFERRED, self.places, raise_errors=False)
            found = self.client.describe_topics([STATE.topic, *{tp.topic for tp in self.places}])
            partitions = [each for topic in found.values() for each in topic.partitions.values()]
            return [self.leader(tp) for tp in self.places] == LEADERS and all(
                sorted(each.isr) == sorted(each.replicas) for each in partitions
            )

        eventually(is_complete, self.cluster.log, SECONDS)

    def transactor(self) -> Transactor:
        return KINDS[self._kind](self.cluster.bootstrap, f"id-{self._id}")

    def send_all(self, producer: Transactor, value: str) -> None:
        """Send a record to each partition."""
        for tp in self.places:
            producer.send(tp.topic, tp.partition, value)

    def send_offsets(self, producer: Transactor, offset: int) -> None:
        """Send an offset of each group."""
        for group in GROUPS:
            producer.offset(group, *self.places[0], offset)

    def committed(self) -> list[list[bytes | None]]:
        """Committed values by partition, once no transaction is open."""
        asked = dict.fromkeys(self.places, "latest")

        def ends(level: str) -> dict[TopicPartition, int]:
            found = self.client.list_offsets(asked, isolation_level=level)
            return {tp: listed.offset for tp, listed in found.items()}

        eventually(
            lambda: ends("read_committed") == ends("read_uncommitted"),
            lambda: f"{ends('read_committed')} {ends('read_uncommitted')}\n{self.cluster.log()}",
            SECONDS,
        )
        values: list[list[bytes | None]] = []
        for tp, end in ends("read_committed").items():
            batches = self.client.fetch_range({tp: (0, end)})
            values.append([record.value for batch in batches for record in read_records(batch)])
        return values

    def offsets(self) -> dict[str, int]:
        """Committed offsets of the groups, for partition 0."""
        place = self.places[0]
        found = {group: self.client.committed(group, [place]) for group in GROUPS}
        return {group: each[place].offset for group, each in found.items() if place in each}


@pytest.fixture(params=["barnabas 2", "java 2", "java 1"])
def stage(
    request: pytest.FixtureRequest, cluster: MixedCluster, client: Client, tmp_path: Path
) -> Iterator[Stage]:
    """Parametrized by the kind of the producer and the level of transaction.version."""
    kind, level = request.param.split()
    made = Stage(cluster, client, tmp_path.name.replace("_", "-"), kind)
    made.set_level(int(level))
    yield made
    for node in cluster.brokers:
        if not node.is_running:
            node.start()


@pytest.fixture(params=NAMES, ids=NAMES.values())
def coordinator(request: pytest.FixtureRequest, stage: Stage) -> int:
    stage.place_coordinator(request.param)
    return int(request.param)


def everywhere(*values: bytes) -> list[list[bytes]]:
    return [list(values)] * len(LEADERS)


def test_transactions_are_committed_and_aborted(stage: Stage, coordinator: int) -> None:
    with stage.transactor() as producer:
        producer.init()
        for number, outcome in enumerate(["commit", "abort", "commit", "abort"]):
            producer.begin()
            stage.send_all(producer, f"{outcome}-{number}")
            stage.send_offsets(producer, number + 1)
            getattr(producer, outcome)()
        assert stage.leader(STATE) == coordinator
        assert stage.committed() == everywhere(b"commit-0", b"commit-2")
        eventually_equal(stage.offsets, dict.fromkeys(GROUPS, 3))


@pytest.mark.parametrize("outcome", ["commit", "abort"])
def test_an_open_transaction_continues_with_a_coordinator_of_the_other_kind(
    stage: Stage, coordinator: int, outcome: str
) -> None:
    with stage.transactor() as producer:
        producer.init()
        producer.begin()
        stage.send_all(producer, "before")
        stage.cluster.node(coordinator).kill()
        stage.send_all(producer, "after")
        stage.send_offsets(producer, 1)
        getattr(producer, outcome)()
        assert stage.leader(STATE) == OTHER[coordinator]
        expected = everywhere(b"before", b"after") if outcome == "commit" else everywhere()
        assert stage.committed() == expected
        offsets = dict.fromkeys(GROUPS, 1) if outcome == "commit" else {}
        eventually_equal(stage.offsets, offsets)
        # And the transactions after that.
        producer.begin()
        stage.send_all(producer, "next")
        producer.commit()
        assert stage.committed() == [[*values, b"next"] for values in expected]


def test_a_transaction_without_its_producer_is_aborted_by_a_coordinator_of_the_other_kind(
    stage: Stage, coordinator: int
) -> None:
    with stage.transactor() as lost, stage.transactor() as producer:
        lost.init()
        lost.begin()
        stage.send_all(lost, "lost")
        stage.cluster.node(coordinator).kill()
        producer.init()
        producer.begin()
        stage.send_all(producer, "found")
        producer.commit()
        assert stage.committed() == everywhere(b"found")
        with pytest.raises(Exception, match=r"(?i)fenced|epoch"):
            stage.send_all(lost, "late")
        assert stage.committed() == everywhere(b"found")


@pytest.mark.parametrize("outcome", ["commit", "abort"])
def test_a_prepared_end_is_completed_by_a_coordinator_of_the_other_kind(
    stage: Stage, coordinator: int, outcome: str
) -> None:
    """A partition has too few replicas in sync while the transaction ends; its marker comes later.

    A partition without a leader will not do: Kafka's coordinator gives up its marker.
    """
    with stage.transactor() as producer:
        producer.init()
        producer.begin()
        stage.send_all(producer, "prepared")
        stage.cluster.node(FOURTH).kill()
        eventually_equal(lambda: stage.in_sync(stage.places[-1]), [THIRD])
        getattr(producer, outcome)()
        stage.cluster.node(coordinator).kill()
        eventually_equal(lambda: stage.leader(STATE), OTHER[coordinator])
        stage.cluster.node(FOURTH).start()
        expected = everywhere(b"prepared") if outcome == "commit" else everywhere()
        assert stage.committed() == expected
