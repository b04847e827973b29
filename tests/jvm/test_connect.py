"""Kafka Connect in distributed mode on Barnabas copies lines from a file to a topic to a file.

Two workers share connectors in a group with Connect's protocol, and store configurations, source
offsets and states in three compacted topics.
"""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition

from barnabas.testing.broker_process import BrokerProcess
from barnabas.testing.free_ports import free_ports
from jvm.java import java_command
from jvm.java_application import JavaApplication
from jvm.kafka_process import KafkaProcess
from jvm.reference import broker_under_test
from jvm.tool_host import ToolHost
from jvm.topics import topic_configs
from waiting import eventually, eventually_equal

GROUP, SINK = "connect-cluster", "connect-sink"
INTERNAL = {name: f"connect-{name}" for name in ("config", "offset", "status")}
STRINGS = "org.apache.kafka.connect.storage.StringConverter"
FILE_CONNECTORS = "org.apache.kafka.connect.file.FileStream{}Connector"
# Longer than the 90 s after which Connect responds in any case.
REST_TIMEOUT_S = 120
SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "500",
    "offsets.topic.num.partitions": "1",
}


class Worker:
    """One Connect process and its REST interface."""

    def __init__(self, name: str, bootstrap: str, directory: Path, **settings: str) -> None:
        """Start a worker; `settings` are its configs, with "_" for "."."""
        (port,) = free_ports(1)
        self.address = f"127.0.0.1:{port}"
        keys = {
            "bootstrap.servers": bootstrap,
            "group.id": GROUP,
            "key.converter": STRINGS,
            "value.converter": STRINGS,
            "listeners": f"http://{self.address}",
            "rest.advertised.host.name": "127.0.0.1",
            "plugin.discovery": "service_load",
            "offset.flush.interval.ms": "100",
            # A worker that pauses for less time keeps its tasks, and repeats no records.
            "session.timeout.ms": "8000",
            "heartbeat.interval.ms": "300",
            "scheduled.rebalance.max.delay.ms": "0",
            "consumer.auto.offset.reset": "earliest",
            **{key.replace("_", "."): value for key, value in settings.items()},
        }
        for kind, topic in INTERNAL.items():
            keys[f"{kind}.storage.topic"] = topic
            keys[f"{kind}.storage.replication.factor"] = "1"
        file = directory / f"{name}.properties"
        file.write_text("".join(f"{key}={value}\n" for key, value in keys.items()))
        command = java_command("kafka-connect", log_level="INFO")
        self.process = JavaApplication(
            [*command, "org.apache.kafka.connect.cli.ConnectDistributed", str(file)],
            directory / f"{name}.log",
        )

    def await_started(self) -> Worker:
        self.process.await_output("Finished starting connectors and tasks")
        return self

    def call_rest(
        self, path: str, put: dict[str, str] | None = None, method: str | None = None
    ) -> Any:
        """Return the response of the REST interface; None for a missing or busy connector."""
        body = None if put is None else json.dumps(put).encode()
        request = urllib.request.Request(
            f"http://{self.address}{path}",
            body,
            {"Content-Type": "application/json"},
            method=method or ("GET" if put is None else "PUT"),
        )
        try:
            with urllib.request.urlopen(request, timeout=REST_TIMEOUT_S) as response:
                return json.loads(response.read() or b"null")
        except urllib.error.HTTPError as error:
            if error.code not in {404, 409, 500}:
                raise
            return None

    def connect(self, name: str, kind: str, **config: str) -> None:
        """Create a connector with one task."""
        words = {"connector.class": FILE_CONNECTORS.format(kind), "tasks.max": "1", **config}
        eventually(lambda: self.call_rest(f"/connectors/{name}/config", words) is not None)

    def task_runs_at(self, name: str) -> str | None:
        """Return the address of the worker that runs a connector's task."""
        tasks = (self.call_rest(f"/connectors/{name}/status") or {"tasks": []})["tasks"]
        return next((each["worker_id"] for each in tasks if each["state"] == "RUNNING"), None)

    def restart_if_failed(self, name: str) -> None:
        """Restart the task of a connector if it has failed, as an operator would."""
        tasks = (self.call_rest(f"/connectors/{name}/status") or {"tasks": []})["tasks"]
        if any(each["state"] == "FAILED" for each in tasks):
            path = f"/connectors/{name}/restart?includeTasks=true&onlyFailed=true"
            self.call_rest(path, method="POST")

    def source_position(self) -> int | None:
        """Return the committed position of the source in its file."""
        found = (self.call_rest("/connectors/source/offsets") or {"offsets": []})["offsets"]
        return next((each["offset"]["position"] for each in found), None)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess | KafkaProcess]:
    with broker_under_test(tmp_path / "broker", SETTINGS) as process:
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
