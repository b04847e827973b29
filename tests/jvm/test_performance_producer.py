"""Apache Kafka's ProducerPerformance writes transactions while a broker is killed and restarted.

The tool numbers its records, and it commits each of its transactions or fails. So read_committed
readers must get each number once, and in order within a partition. The readers read from before
the fault to the end.
"""

from __future__ import annotations

import contextlib
import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from barnabas.client.admin.topics.topic_partitions import PartitionState
from barnabas.client.admin.topics.topics import NewTopic
from barnabas.client.facade import Client
from barnabas.client.topic_partition import TopicPartition
from barnabas.testing.cluster_process import ClusterProcess
from barnabas.testing.node_process import NodeProcess
from chaos.transactional.clients import CONSUMERS, CommittedConsumer
from jvm.java import java_command
from jvm.java_application import JavaApplication
from jvm.kafka_node import KafkaNode
from jvm.kafka_process import QUICK_FENCING
from jvm.tool_host import TOOLS
from selection import nightly_unless
from waiting import eventually, eventually_equal

pytestmark = pytest.mark.conformance

SETTINGS = {
    **QUICK_FENCING,
    "transaction.state.log.num.partitions": "1",
    "auto.leader.rebalance.enable": "false",
}
STATE = "__transaction_state"
RECORDS = 4000
# Value of the record that follows the tool's records in each partition.
END = RECORDS
RECORDS_PER_S = 500
TRANSACTION_MS = 100
# Numbers of records that each reader gets before the kill, and before the restart. Another broker
# has replaced the killed one when the second number is reached.
BEFORE_KILL, BEFORE_RESTART = 800, 2500


@pytest.fixture(scope="module", params=nightly_unless("barnabas".__eq__, ["barnabas", "kafka"]))
def cluster(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ClusterProcess]:
    request.getfixturevalue("kafka_jars")
    kind = KafkaNode if request.param == "kafka" else NodeProcess
    directory = tmp_path_factory.mktemp(f"three-{request.param}")
    with ClusterProcess(3, directory=directory, settings=SETTINGS, node_type=kind) as started:
        yield started


@pytest.fixture(scope="module")
def client(cluster: ClusterProcess) -> Iterator[Client]:
    with Client(cluster.bootstrap) as made:
        with made.producer(transactional_id="first") as producer:
            producer.init_transactions()
        yield made


class Reading:
    """The numbers that a read_committed reader gets from the topic."""

    def __init__(
        self, client: str, consumer_type: Callable[..., CommittedConsumer], stage: Stage
    ) -> None:
        self._client = client
        self._errors: list[object] = []
        self._consumer = consumer_type(stage.cluster.bootstrap, "", self._errors.append)
        self._consumer.assign(stage.places)
        # Numbers by partition.
        self._found: dict[int, list[int]] = {place.partition: [] for place in stage.places}

    def __str__(self) -> str:
        return f"{self._client}: {self._count} records, errors {self._errors[-10:]}"

    @property
    def _count(self) -> int:
        return sum(map(len, self._found.values()))

    def has(self, count: int) -> bool:
        """Read on; return whether the reader has so many records."""
        self._poll()
        return self._count >= count

    def has_ends(self) -> bool:
        """Read on; return whether the reader has the record after the tool's records everywhere."""
        self._poll()
        return all(numbers[-1:] == [END] for numbers in self._found.values())

    def _poll(self) -> None:
        for read in self._consumer.poll(1000, 0.05):
            self._found[read.place[1]].append(int(read.value or b""))

    def check(self) -> None:
        """Check that the reader got each number once, and in order within a partition."""
        found = Counter(number for numbers in self._found.values() for number in numbers)
        expected = Counter([*range(RECORDS), *[END] * len(self._found)])
        missing, surplus = sorted(expected - found), sorted(found - expected)
        assert (missing, surplus) == ([], []), self
        for numbers in self._found.values():
            assert numbers == sorted(numbers), self

    def close(self) -> None:
        self._consumer.close()


class Stage:
    """A topic of two partitions, whose leaders do not coordinate transactions."""

    def __init__(self, cluster: ClusterProcess, client: Client, topic: str) -> None:
        self.cluster = cluster
        self.client = client
        self.topic = topic
        self.await_in_sync(STATE)
        self.coordinator = self._partitions(STATE)[0].leader
        self.leaders = [n.node_id for n in cluster.brokers if n.node_id != self.coordinator]
        first, second = self.leaders
        assignments = {
            0: [first, second, self.coordinator],
            1: [second, first, self.coordinator],
        }
        client.create_topics([NewTopic(topic, assignments=assignments)])
        self.await_in_sync(topic)
        self.places = [TopicPartition(topic, number) for number in assignments]

    def _partitions(self, topic: str) -> dict[int, PartitionState]:
        return self.client.describe_topics([topic])[topic].partitions

    def await_in_sync(self, topic: str) -> None:
        """Wait until all replicas of a topic are in sync."""
        eventually(
            lambda: all(
                len(each.isr) == len(self.cluster.brokers)
                for each in self._partitions(topic).values()
            ),
            self.cluster.log,
        )

    def performance_producer(self, directory: Path) -> JavaApplication:
        """Start the tool."""
        words = [
            "--bootstrap-server", self.cluster.bootstrap, "--topic", self.topic,
            "--num-records", str(RECORDS), "--payload-monotonic",
            "--throughput", str(RECORDS_PER_S), "--transactional-id", f"id-{self.topic}",
            "--transaction-duration-ms", str(TRANSACTION_MS),
        ]  # fmt: skip
        command = [*java_command("kafka-tools"), f"{TOOLS}ProducerPerformance", *words]
        return JavaApplication(command, directory / "tool.log")

    def write_ends(self) -> None:
        """Write a record behind the tool's records in each partition."""
        with self.client.producer() as producer:
            for topic, partition in self.places:
                producer.send(topic, b"%d" % END, partition=partition)

    def state(self) -> str | None:
        """Return the state of the tool's transactional id."""
        listed = self.client.admin.list_transactions()
        states = {each.transactional_id: each.state for each in listed}
        return states.get(f"id-{self.topic}")

    def ends(self, isolation_level: str) -> list[int]:
        asked = dict.fromkeys(self.places, "latest")
        found = self.client.list_offsets(asked, isolation_level=isolation_level)
        return [found[place].offset for place in self.places]


@pytest.fixture
def stage(cluster: ClusterProcess, client: Client, tmp_path: Path) -> Stage:
    return Stage(cluster, client, tmp_path.name)


@pytest.fixture
def readings(stage: Stage) -> Iterator[list[Reading]]:
    """A reader of each client."""
    with contextlib.ExitStack() as stack:
        made = []
        for name, consumer_type in CONSUMERS.items():
            reading = Reading(name, consumer_type, stage)
            stack.callback(reading.close)
            made.append(reading)
        yield made


@pytest.mark.parametrize("killed", ["the coordinator", "a leader of the topic"])
def test_each_record_is_read_once_after_a_broker_is_killed(
    killed: str, stage: Stage, readings: list[Reading], tmp_path: Path
) -> None:
    victim = stage.coordinator if killed == "the coordinator" else stage.leaders[0]
    node = stage.cluster.node(victim)
    with stage.performance_producer(tmp_path) as tool:

        def await_all(is_met: Callable[[Reading], bool]) -> None:
            for reading in readings:
                eventually(
                    lambda reading=reading: is_met(reading),
                    lambda: f"{[*map(str, readings)]}\n{tool.log()[-6000:]}",
                )

        await_all(lambda reading: reading.has(BEFORE_KILL))
        node.kill()
        await_all(lambda reading: reading.has(BEFORE_RESTART))
        node.start()
        await_all(lambda reading: reading.has(RECORDS))
        assert tool.end_input() == 0, tool.log()
    assert re.search(rf"^{RECORDS} records sent, .* 99.9th", tool.log(), re.MULTILINE), tool.log()
    eventually_equal(stage.state, "CompleteCommit")
    eventually(
        lambda: stage.ends("read_committed") == stage.ends("read_uncommitted"),
        lambda: f"{stage.ends('read_committed')} {stage.ends('read_uncommitted')}",
    )
    stage.write_ends()
    for reading in readings:
        eventually(reading.has_ends, lambda reading=reading: str(reading))
        reading.check()
