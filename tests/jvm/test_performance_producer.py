"""Apache Kafka's ProducerPerformance writes transactions while a broker or the tool is killed.

The tool numbers its records, and it commits each of its transactions or fails. So read_committed
readers must get each number once, and in order within a partition. Of a killed tool they get the
numbers before its open transaction. The readers read from before the fault to the end.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import barnabas
from barnabas.client.errors import ClientError
from barnabas.client.facade import Client
from barnabas.client.topic_partition import TopicPartition
from barnabas.testing.cluster_process import ClusterProcess
from chaos.transactional.clients import CONSUMERS, CommittedConsumer
from jvm.java import java_command
from jvm.java_application import JavaApplication
from jvm.three_brokers import three_brokers_of
from jvm.tool_host import TOOLS
from jvm.uncoordinated_topic import SETTINGS, UncoordinatedTopic, create_state_topic
from selection import nightly_unless
from waiting import eventually, eventually_equal

pytestmark = [pytest.mark.conformance, pytest.mark.nightly]

RECORDS = 4000
# Value of the records that the test writes behind the tool's records in each partition.
END = RECORDS
RECORDS_PER_S = 500
TRANSACTION_MS = 100
# Numbers of records that each reader gets before the kill, and before the restart. Another broker
# has replaced the killed one when the second number is reached.
BEFORE_KILL, BEFORE_RESTART = 800, 2500
# A tool that is to be killed has long transactions, and batches so small that both partitions get
# some in each of them.
LONG_MS, BATCH_BYTES = 1500, 200
SUCCESSOR_RECORDS = 1000


@pytest.fixture(scope="module", params=nightly_unless("barnabas".__eq__, ["barnabas", "kafka"]))
def cluster(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ClusterProcess]:
    request.getfixturevalue("kafka_jars")
    with three_brokers_of(request, tmp_path_factory, SETTINGS) as started:
        yield started


@pytest.fixture(scope="module")
def client(cluster: ClusterProcess) -> Iterator[Client]:
    with Client(cluster.bootstrap) as made:
        create_state_topic(made)
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
        """Read on; return whether the reader has the record behind the tool's in each partition."""
        self._poll()
        return all(numbers[-1:] == [END] for numbers in self._found.values())

    def _poll(self) -> None:
        for read in self._consumer.poll(1000, 0.05):
            self._found[read.place[1]].append(int(read.value or b""))

    def check(self, count: int) -> None:
        """Check that the reader got the numbers below `count` once, in order in each partition.

        The next call checks the records that follow.
        """
        found = [number for numbers in self._found.values() for number in numbers if number != END]
        assert sorted(found) == list(range(count)), self
        for numbers in self._found.values():
            assert numbers == sorted(numbers), self
            numbers.clear()

    def close(self) -> None:
        self._consumer.close()


class Stage(UncoordinatedTopic):
    """The topic to which the tool writes."""

    @property
    def transactional_id(self) -> str:
        """The tool's id."""
        return f"id-{self.topic}"

    def performance_producer(
        self,
        directory: Path,
        records: int = RECORDS,
        duration_ms: int = TRANSACTION_MS,
        **config: int,
    ) -> JavaApplication:
        """Start the tool; `config` is for its producer, with "_" for "."."""
        words = [
            "--bootstrap-server", self.cluster.bootstrap, "--topic", self.topic,
            "--num-records", str(records), "--payload-monotonic",
            "--throughput", str(RECORDS_PER_S), "--transactional-id", self.transactional_id,
            "--transaction-duration-ms", str(duration_ms), "--command-property", "acks=all",
        ]  # fmt: skip
        words += [f"{key.replace('_', '.')}={value}" for key, value in config.items()]
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
        return states.get(self.transactional_id)

    def open_since(self) -> dict[TopicPartition, int]:
        """Return the offset at which the open transaction begins, of partitions that have one."""
        found = {}
        for place, producers in self.client.admin.describe_producers(self.places).items():
            assert not isinstance(producers, ClientError), producers
            for each in producers:
                if each.current_transaction_start_offset >= 0:
                    found[place] = each.current_transaction_start_offset
        return found

    def count_before(self, ends: dict[TopicPartition, int]) -> int:
        """Return the number of records below these offsets, committed or not."""
        records: list[barnabas.ConsumerRecord] = []
        with barnabas.Consumer(bootstrap_servers=self.cluster.bootstrap) as consumer:
            consumer.assign(self.places)
            consumer.seek_to_beginning()
            while any(consumer.position(place) < end for place, end in ends.items()):
                records += consumer.poll(0.05)
        places = [(TopicPartition(each.topic, each.partition), each.offset) for each in records]
        return sum(offset < ends[place] for place, offset in places)


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
    stage.await_stable()
    check_to_the_end(stage, readings, RECORDS)


def check_to_the_end(stage: Stage, readings: list[Reading], count: int) -> None:
    """Check that the readers get the numbers below `count`, and nothing else behind them."""
    stage.write_ends()
    for reading in readings:
        eventually(reading.has_ends, lambda reading=reading: str(reading))
        reading.check(count)


def kill_in_a_transaction(tool: JavaApplication, stage: Stage) -> None:
    """Kill the tool while it has an open transaction with records in both partitions."""
    while True:
        eventually(lambda: len(stage.open_since()) == len(stage.places), tool.log)
        tool.pause()
        # A request that the tool has sent is handled before the second response.
        if [stage.state() for _ in range(2)] == ["Ongoing", "Ongoing"]:
            break
        tool.resume()
    tool.kill()


@pytest.mark.parametrize("aborted_by", ["its successor", "its timeout"])
def test_the_open_transaction_of_a_killed_tool_is_aborted(
    aborted_by: str, stage: Stage, readings: list[Reading], tmp_path: Path
) -> None:
    timeout_ms = 5000 if aborted_by == "its timeout" else 60_000
    words = {"batch_size": BATCH_BYTES, "transaction_timeout_ms": timeout_ms}
    with stage.performance_producer(tmp_path, duration_ms=LONG_MS, **words) as tool:
        for reading in readings:
            eventually(lambda reading=reading: reading.has(1), tool.log)
        kill_in_a_transaction(tool, stage)
    open_since = stage.open_since()
    committed = stage.count_before(open_since)
    if aborted_by == "its timeout":
        eventually_equal(stage.state, "CompleteAbort")
        check_to_the_end(stage, readings, committed)
    else:
        for reading in readings:
            eventually(
                lambda reading=reading: reading.has(committed), lambda: [*map(str, readings)]
            )
            reading.check(committed)
        assert stage.state() == "Ongoing"
        assert stage.open_since() == open_since
    with stage.performance_producer(tmp_path, SUCCESSOR_RECORDS, **words) as tool:
        assert tool.end_input() == 0, tool.log()
    eventually_equal(stage.state, "CompleteCommit")
    check_to_the_end(stage, readings, SUCCESSOR_RECORDS)
