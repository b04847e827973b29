"""Kafka Connect in distributed mode on Barnabas copies lines from a file to a topic to a file.

Two workers share connectors in a group with Connect's protocol, and store configurations, source
offsets and states in three compacted topics.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition

from barnabas.testing.broker_process import BrokerProcess
from jvm.connect_worker import BROKER_SETTINGS, GROUP, INTERNAL, Worker
from jvm.kafka_process import KafkaProcess
from jvm.reference import broker_under_test
from jvm.tool_host import ToolHost
from jvm.topics import topic_configs
from waiting import eventually, eventually_equal

SINK = "connect-sink"


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess | KafkaProcess]:
    with broker_under_test(tmp_path / "broker", BROKER_SETTINGS) as process:
        yield process


class Files:
    """The file that is read and the file that is written."""

    def __init__(self, directory: Path) -> None:
        self.source = directory / "source.txt"
        self.sink = directory / "sink.txt"
        self.source.touch()
        self._count = 0

    def write(self, count: int) -> None:
        with self.source.open("a") as file:
            for _ in range(count):
                file.write(f"line {self._count}\n")
                self._count += 1

    def await_copied(self) -> None:
        """Wait until the sink has every line once, in order."""
        eventually_equal(
            lambda: self.sink.exists() and self.sink.read_text(), self.source.read_text()
        )


@pytest.mark.nightly
def test_lines_are_copied_through_a_topic_despite_kills_and_restarts(
    broker: BrokerProcess | KafkaProcess, tmp_path: Path, tool_host: ToolHost
) -> None:
    def printed(tool: str, *words: str) -> list[list[str]]:
        done = tool_host.run(tool, "--bootstrap-server", broker.bootstrap, *words)
        assert done.returncode == 0, done.stderr
        return [line.split() for line in done.stdout.splitlines()]

    def lag() -> str:
        rows = printed("consumer.group.ConsumerGroupCommand", "--describe", "--group", SINK)
        return next((row[5] for row in rows if row[:1] == [SINK]), "")

    files = Files(tmp_path)
    workers = [Worker(f"worker-{number}", broker.bootstrap, tmp_path) for number in range(2)]
    with workers[0].process, workers[1].process:
        for worker in workers:
            worker.await_started()
        first = workers[0]
        first.connect("source", "Source", file=str(files.source), topic="lines")
        first.connect("sink", "Sink", file=str(files.sink), topics="lines")
        files.write(500)
        files.await_copied()
        # The leader of the group has given each worker a task.
        eventually_equal(
            lambda: {first.task_runs_at("source"), first.task_runs_at("sink")},
            {worker.address for worker in workers},
        )
        groups = printed("GroupsCommand", "--list")
        assert [GROUP, "Classic", "connect"] in groups
        assert [SINK, "Classic", "consumer"] in groups
        for topic in INTERNAL.values():
            assert topic_configs(broker.bootstrap, topic)["cleanup.policy"] == "compact"

        # After all offsets are committed, the death of a worker neither repeats nor loses records.
        eventually_equal(first.source_position, files.source.stat().st_size)
        eventually_equal(lag, "0")
        owner = eventually(lambda: first.task_runs_at("source"))
        dead, living = sorted(workers, key=lambda worker: worker.address != owner)
        dead.process.kill()
        files.write(500)
        files.await_copied()
        eventually_equal(lambda: living.task_runs_at("source"), living.address)
        eventually_equal(living.source_position, files.source.stat().st_size)
        eventually_equal(lag, "0")
        assert living.process.terminate() in {0, 143}

    # A new worker reads connectors and offsets from the topics.
    broker.restart()
    files.write(500)
    last = Worker("worker-2", broker.bootstrap, tmp_path)
    with last.process:
        last.await_started()
        files.await_copied()
        eventually_equal(lambda: sorted(last.call_rest("/connectors") or ()), ["sink", "source"])


def committed_lines(bootstrap: str) -> list[str]:
    """Return all committed records of the topic, in order."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
        }
    )
    consumer.assign([TopicPartition("lines", 0, 0)])
    found = []
    while True:
        for record in consumer.consume(1000, 0.2):
            if record.error() is not None:
                assert record.error().code() == KafkaError._PARTITION_EOF, record.error()
                consumer.close()
                return found
            found.append(record.value().decode())


def test_lines_are_written_exactly_once_despite_kills_of_worker_and_broker(
    broker: BrokerProcess | KafkaProcess, tmp_path: Path
) -> None:
    files = Files(tmp_path)
    exactly_once = {
        "exactly_once_source_support": "enabled",
        # The transaction of a killed task ends during the test.
        "producer_transaction_timeout_ms": "10000",
    }
    first = Worker("worker-0", broker.bootstrap, tmp_path, **exactly_once)
    files.write(2_000)
    with first.process:
        first.await_started()
        config = {"topic": "lines", "batch.size": "50", "transaction.boundary": "interval"}
        first.connect("source", "Source", file=str(files.source), **config)
        eventually(lambda: committed_lines(broker.bootstrap), "no line is committed")
        files.write(2_000)
        first.process.kill()
    second = Worker("worker-1", broker.bootstrap, tmp_path, **exactly_once)
    with second.process:
        second.await_started()
        eventually(
            lambda: len(committed_lines(broker.bootstrap)) > 2_000, "the task is not resumed"
        )
        files.write(2_000)
        broker.kill()
        broker.start()
        files.write(2_000)
        count = len(files.source.read_text().splitlines())

        def are_committed() -> bool:
            second.restart_if_failed("source")
            # A task commits its last batch when it reads the next one.
            files.write(50)
            return len(committed_lines(broker.bootstrap)) >= count

        eventually(are_committed, "the lines are not complete")
        found = committed_lines(broker.bootstrap)
        assert found == files.source.read_text().splitlines()[: len(found)]
