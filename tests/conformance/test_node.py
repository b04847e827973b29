"""A node of several broker processes: one command, one log, one address of metrics and probes."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
from typing import TYPE_CHECKING

import psutil
import pytest
from click.testing import CliRunner
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from prometheus_client.parser import text_string_to_metric_families

from barnabas.cli.doctor.commands import doctor
from barnabas.cli.group import group
from barnabas.cli.nodes.node_face import TEXTS_MAX
from barnabas.runtime.forked_process import can_fork
from barnabas.testing.barnabas_command import barnabas_command
from barnabas.testing.broker_process import BrokerProcess
from conformance.node_of_brokers import NodeOfBrokers
from group_offsets import commit_offsets
from waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path

WAIT_S = 300.0
PARTITIONS = 8


def write(bootstrap: str, topic: str, partitions: int = PARTITIONS) -> None:
    """Write one record to each partition."""
    failed = []
    producer = Producer({"bootstrap.servers": bootstrap})
    for partition in range(partitions):
        value = b"in %d" % partition
        producer.produce(
            topic,
            value,
            partition=partition,
            on_delivery=lambda error, _: failed.append(error) if error else None,
        )
    assert producer.flush(WAIT_S) == 0
    assert not failed


def read(bootstrap: str, topic: str, partitions: int = PARTITIONS) -> set[bytes]:
    """Read the first record of each partition, in a group."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "readers", "enable.auto.commit": False}
    )
    consumer.assign([TopicPartition(topic, each, 0) for each in range(partitions)])
    values: set[bytes] = set()

    def has_read() -> bool:
        found = consumer.consume(100, 0.5)
        values.update(message.value() for message in found if message.error() is None)
        return len(values) >= partitions

    eventually(has_read, lambda: f"{values}")
    commit_offsets(consumer, TopicPartition(topic, 0, 1))
    consumer.close()
    return values


def leaders(bootstrap: str, topic: str) -> set[int]:
    """Return the brokers that lead partitions of a topic."""
    found = AdminClient({"bootstrap.servers": bootstrap}).list_topics(topic, timeout=WAIT_S)
    return {partition.leader for partition in found.topics[topic].partitions.values()}


def cli(bootstrap: str, *words: str) -> str:
    """Run a command without an error, and return its output."""
    done = CliRunner().invoke(group, [*words, "-b", bootstrap])
    assert done.exit_code == 0, done.output
    return done.output


def create_topic(bootstrap: str, topic: str) -> None:
    """Create a topic with partitions on all brokers."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics([NewTopic(topic, PARTITIONS, 1)]).values():
        future.result(WAIT_S)
    eventually(lambda: topic in admin.list_topics(timeout=WAIT_S).topics)


def all_values(partitions: int = PARTITIONS) -> set[bytes]:
    return {b"in %d" % partition for partition in range(partitions)}


def test_a_node_is_a_cluster_for_clients_and_one_process_for_its_operator(tmp_path: Path) -> None:
    with NodeOfBrokers(tmp_path, 2, arguments=["--topic", f"orders:{PARTITIONS}"]) as node:
        assert len(node.bootstrap.split(",")) == 2
        assert leaders(node.bootstrap, "orders") == {101, 102}
        write(node.bootstrap, "orders")
        assert read(node.bootstrap, "orders") == all_values()
        assert node.get("/readyz") == (200, "ok\n")
        assert node.get("/healthz") == (200, "ok\n")
        assert node.get("/elsewhere")[0] == 404
        status, text = node.get("/metrics")
        assert status == 200
        families = list(text_string_to_metric_families(text))
        assert len({family.name for family in families}) == len(families)
        labels = {sample.labels.get("broker") for family in families for sample in family.samples}
        assert labels == {"1", "101", "102"}
        # More responses than may be in memory at once, because these were read.
        assert {node.get("/metrics")[0] for _ in range(2 * TEXTS_MAX)} == {200}
        assert node.stop() == 0
        assert not node.living()
        for folder in ("controller.1", "broker.101", "broker.102"):
            found = CliRunner().invoke(doctor, [str(node.data_directory / folder)])
            assert "not closed cleanly" not in found.output
        node.start()
        assert read(node.bootstrap, "orders") == all_values()
        # Each log was closed cleanly, so none is read again.
        assert "recover" not in node.log().lower()
    for line in node.log().splitlines():
        assert line.startswith(("broker 101 | ", "broker 102 | ", "controller 1 | ", "20"))


def test_a_killed_broker_comes_back_with_its_records(tmp_path: Path) -> None:
    with NodeOfBrokers(tmp_path, 2, arguments=["--topic", f"orders:{PARTITIONS}"]) as node:
        write(node.bootstrap, "orders")
        before = node.process_ids
        # Suspended, the broker is not ready. That can be seen however long it takes.
        os.kill(before[102], signal.SIGSTOP)
        assert eventually(lambda: node.get("/readyz")[1].startswith("broker 102: "))
        os.kill(before[102], signal.SIGKILL)
        eventually(lambda: node.process_ids[102] != before[102], node.log, WAIT_S)
        eventually(
            lambda: node.get("/readyz") == (200, "ok\n"), lambda: node.get("/readyz"), WAIT_S
        )
        assert "ended with signal SIGKILL: broker=102" in node.log()
        after = node.process_ids
        assert (after[1], after[101]) == (before[1], before[101])
        assert read(node.bootstrap, "orders") == all_values()
        text = node.get("/metrics")[1]
        counted = 'barnabas_node_process_restarts_total{broker="102",roles="broker"} 1.0'
        assert counted in text


@pytest.mark.skipif(not can_fork(), reason="this system cannot fork from a template")
def test_all_processes_come_back_after_the_death_of_the_process_that_forks_them(
    tmp_path: Path,
) -> None:
    with NodeOfBrokers(tmp_path, 1) as node:
        before = node.process_ids
        (template,) = {psutil.Process(pid).ppid() for pid in before.values()}
        assert template not in (node.pid, os.getpid())
        os.kill(template, signal.SIGKILL)
        eventually(
            lambda: all(node.process_ids[each] != pid for each, pid in before.items()),
            node.log,
            WAIT_S,
        )
        eventually(lambda: node.get("/readyz") == (200, "ok\n"), node.log, WAIT_S)
        assert "because the process that forks the others has ended: broker=101" in node.log()


def test_the_death_of_the_supervisor_ends_all_processes(tmp_path: Path) -> None:
    with NodeOfBrokers(tmp_path, 2) as node:
        assert sorted(node.living()) == [1, 101, 102]
        node.kill()
        eventually(lambda: not node.living(), node.living, WAIT_S)


@pytest.mark.nightly
def test_a_broker_that_hangs_is_killed_after_the_timeout_of_the_stop(tmp_path: Path) -> None:
    settings = {"barnabas.node.stop.timeout.ms": "3000"}
    with NodeOfBrokers(tmp_path, 1, settings) as node:
        os.kill(node.process_ids[101], signal.SIGSTOP)
        assert node.stop() == 0
        assert "Process killed" in node.log()
        assert not node.living()


def test_the_directory_of_one_process_becomes_a_node_that_shrinks_without_loss(
    tmp_path: Path,
) -> None:
    with BrokerProcess(tmp_path) as broker:
        broker.create_topic("orders", PARTITIONS)
        write(broker.bootstrap, "orders")
        assert broker.stop() == 0
    with NodeOfBrokers(tmp_path, 2) as node:
        assert sorted(node.living()) == [1, 102]
        assert read(node.bootstrap, "orders") == all_values()
        assert leaders(node.bootstrap, "orders") == {1}
        create_topic(node.bootstrap, "new")
        write(node.bootstrap, "new")
        assert leaders(node.bootstrap, "new") == {1, 102}
        empty = ("rebalance", "--exclude-broker", "102", "--measure", "0", "--yes")
        cli(node.bootstrap, *empty)
        cli(node.bootstrap, "brokers", "check", "102", "--remove")
        assert node.stop() == 0
    # Without a broker that has no partition any more.
    with NodeOfBrokers(tmp_path, 1) as node:
        assert sorted(node.living()) == [1]
        assert read(node.bootstrap, "new") == all_values()
        eventually(lambda: "fenced" in cli(node.bootstrap, "brokers", "list"))
        cli(node.bootstrap, "brokers", "unregister", "102", "--yes")
        assert node.stop() == 0
    alone = BrokerProcess(tmp_path)
    alone.launch()
    assert alone.wait(WAIT_S) == 1
    alone.close()
    assert "node of several processes" in alone.log()


def test_a_node_ends_with_the_reason_of_the_process_that_cannot_start(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        settings = {"barnabas.node.broker.2.listeners": f"PLAINTEXT://{address}"}
        node = NodeOfBrokers(tmp_path, 2, settings)
        node.launch()
        assert node.wait(WAIT_S) == 1
        node.close()
    reason = node.log().splitlines()[-1]
    assert reason.startswith("barnabas: broker 102 ended with exit status 1 at its start: ")
    assert address in reason
    assert not node.living()


def test_two_nodes_cannot_share_a_directory(tmp_path: Path) -> None:
    with NodeOfBrokers(tmp_path, 1) as node:
        other = NodeOfBrokers(tmp_path, 1)
        other.launch()
        assert other.wait(WAIT_S) == 1
        other.close()
        assert "is used by another node" in node.log()


@pytest.mark.nightly
def test_options_of_tests_mean_the_whole_node(tmp_path: Path) -> None:
    ready, temporary = tmp_path / "ready", tmp_path / "temporary"
    temporary.mkdir()
    words = [*barnabas_command(), "start", "--temporary", "--port", "0", "--brokers", "2"]
    words += ["--ready-file", str(ready), "--exit-with", str(os.getpid()), "--log-format", "json"]
    process = subprocess.Popen(
        [*words, "--log-level", "info"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "TMPDIR": str(temporary)},
        text=True,
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line == f"ready {ready.read_text()}"
        assert list(temporary.iterdir())
        process.terminate()
        _, log = process.communicate(timeout=WAIT_S)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 0
    assert not ready.exists()
    assert not list(temporary.iterdir())
    rows = [json.loads(line) for line in log.splitlines()]
    assert {row.get("broker") for row in rows} == {None, 101, 102}
    assert {row.get("controller") for row in rows} == {None, 1}


@pytest.fixture
def manager_socket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> socket.socket:
    """The datagram socket of a service manager, which the environment names."""
    path = tmp_path / "notify"
    receiver = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    receiver.bind(str(path))
    receiver.settimeout(WAIT_S)
    monkeypatch.setenv("NOTIFY_SOCKET", str(path))
    monkeypatch.setenv("WATCHDOG_USEC", "1000000")
    return receiver


def test_the_service_manager_learns_the_state_of_the_whole_node(
    manager_socket: socket.socket, tmp_path: Path
) -> None:
    def is_silent() -> bool:
        manager_socket.settimeout(3.0)
        try:
            manager_socket.recv(4096)
        except TimeoutError:
            return True
        return False

    with manager_socket, NodeOfBrokers(tmp_path, 2) as node:
        assert manager_socket.recv(4096).startswith(b"STATUS=starting 3 processes")
        ready = manager_socket.recv(4096).decode().splitlines()
        assert ready == ["READY=1", f"STATUS=ready at {node.bootstrap}"]
        assert manager_socket.recv(4096) == b"WATCHDOG=1"
        broker = node.process_ids[102]
        os.kill(broker, signal.SIGSTOP)
        eventually(is_silent, "the supervisor gives signs of life for a broker that hangs")
        os.kill(broker, signal.SIGCONT)
        manager_socket.settimeout(WAIT_S)
        assert manager_socket.recv(4096) == b"WATCHDOG=1"
        node.terminate()
        while (message := manager_socket.recv(4096)) == b"WATCHDOG=1":
            pass
        assert message.startswith(b"STOPPING=1\nSTATUS=stopping")
        assert node.wait() == 0
