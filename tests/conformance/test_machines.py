"""Two brokers and a controller on each of three machines: 127.0.0.1, 127.0.0.2 and 127.0.0.3."""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas import Consumer
from barnabas.client.admin.topics import NewTopic
from barnabas.client.facade import Client
from conformance.cli_shell import Shell
from conformance.java_tools import Tools
from jvm.tool_host import ToolHost
from machines import MACHINES, ClusterOnMachines, needs_loopback_addresses
from waiting import eventually, eventually_equal

pytestmark = [pytest.mark.conformance, pytest.mark.slow, needs_loopback_addresses]

BROKERS = 6
START_TIMEOUT_S = 300.0
SETTINGS = {
    "offsets.topic.num.partitions": "6",
    "auto.leader.rebalance.enable": "false",
    "num.partitions": "6",
    "default.replication.factor": "3",
}
REBALANCE = ("rebalance", "--measure", "0", "--no-header", "--yes")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterOnMachines]:
    directory: Path = tmp_path_factory.mktemp("machines")
    made = ClusterOnMachines(BROKERS, MACHINES, directory, SETTINGS)
    made.start(START_TIMEOUT_S)
    try:
        with Client(made.bootstrap) as client:
            eventually_equal(lambda: len(client.describe_cluster().brokers), BROKERS)
        yield made
    finally:
        made.close()


@pytest.fixture
def client(cluster: ClusterOnMachines) -> Iterator[Client]:
    with Client(cluster.bootstrap) as made:
        yield made


@pytest.fixture
def shell(cluster: ClusterOnMachines) -> Shell:
    return Shell(cluster.bootstrap)


def replicas(client: Client, topic: str, partitions: int) -> list[tuple[int, ...]]:
    """Return the replicas of a topic, as soon as a broker knows all its partitions."""

    def placed() -> list[tuple[int, ...]]:
        found = client.describe_topics([topic])[topic].partitions
        if len(found) < partitions:
            return []
        return [found[number].replicas for number in sorted(found)]

    return eventually(placed)


def machine_counts(cluster: ClusterOnMachines, placed: list[tuple[int, ...]]) -> set[int]:
    """Return the numbers of machines that the partitions are on."""
    return {len({cluster.host_of(node) for node in nodes}) for nodes in placed}


def test_new_topics_and_partitions_and_internal_topics_are_on_all_machines(
    cluster: ClusterOnMachines, client: Client
) -> None:
    client.create_topics([NewTopic("spread", 6, 3)])
    placed = replicas(client, "spread", 6)
    assert machine_counts(cluster, placed) == {MACHINES}
    assert Counter(nodes[0] for nodes in placed) == dict.fromkeys(range(1, BROKERS + 1), 1)
    client.admin.create_partitions({"spread": 12})
    assert machine_counts(cluster, replicas(client, "spread", 12)) == {MACHINES}
    with Consumer("spread", bootstrap_servers=cluster.bootstrap, group_id="readers") as consumer:
        eventually(
            lambda: (
                consumer.poll(0.1),
                "__consumer_offsets" in client.topics(internal=True),
            )[1]
        )
    assert machine_counts(cluster, replicas(client, "__consumer_offsets", 6)) == {MACHINES}


def test_the_topic_tool_of_kafka_shows_replicas_on_all_machines(
    cluster: ClusterOnMachines, tool_host: ToolHost
) -> None:
    tools = Tools(tool_host, cluster.bootstrap, is_kafka=False)
    words = ("--partitions", "6", "--replication-factor", "3")
    tools.run("TopicCommand", "--create", "--topic", "by-tool", *words)
    tools.await_output(r"Partition: 5\t", "TopicCommand", "--describe", "--topic", "by-tool")
    printed = tools.run("TopicCommand", "--describe", "--topic", "by-tool")
    listed = re.findall(r"Replicas: ([\d,]+)", printed)
    placed = [tuple(map(int, each.split(","))) for each in listed]
    assert len(placed) == 6
    assert machine_counts(cluster, placed) == {MACHINES}


def test_replicas_that_share_a_machine_are_reported_and_moved_apart(
    cluster: ClusterOnMachines, client: Client, shell: Shell
) -> None:
    # Brokers 1 and 4 are on one machine, brokers 2 and 5 on another.
    client.create_topics([NewTopic(shell.topic, assignments={0: [1, 4], 1: [5, 2], 2: [3, 1]})])
    replicas(client, shell.topic, 3)
    found = shell.run_in_process("doctor", cluster.bootstrap.split(",")[0])
    assert "2 partitions with replicas that share a machine" in found.stdout
    plan = shell.json("rebalance", "--measure", "0", shell.topic)
    assert {each["broker"]: each["machine"] for each in plan["brokers"]} == {
        broker: cluster.host_of(broker) for broker in range(1, BROKERS + 1)
    }
    done = shell.run_in_process(*REBALANCE, shell.topic)
    assert done.returncode == 0, done.stderr
    assert "2 partitions will no longer have two replicas on a machine" in done.stderr
    eventually_equal(
        lambda: machine_counts(cluster, replicas(client, shell.topic, 3)), {MACHINES - 1}
    )


def test_a_machine_is_emptied_and_then_its_brokers_may_be_removed(
    cluster: ClusterOnMachines, client: Client, shell: Shell
) -> None:
    client.create_topics([NewTopic(shell.topic, assignments={0: [3, 1], 1: [6, 2], 2: [3, 6]})])
    replicas(client, shell.topic, 3)
    refused = shell.run_in_process("brokers", "check", "--machine", "127.0.0.3")
    assert refused.returncode == 1
    assert f"without another in-sync replica: {shell.topic}-2" in refused.stdout
    done = shell.run_in_process(*REBALANCE, "--exclude-machine", "127.0.0.3", shell.topic)
    assert done.returncode == 0, done.stderr
    emptied = replicas(client, shell.topic, 3)
    assert not {3, 6}.intersection(node for nodes in emptied for node in nodes)
    assert machine_counts(cluster, emptied[:2]) == {MACHINES - 1}
    left = shell.json("brokers", "check", "--machine", "127.0.0.1")
    assert left["brokers"] == [1, 4]


def check_that_commands_name_the_dead_broker(shell: Shell) -> None:
    """Check what `top`, `doctor` and `why` report while broker 6 of machine 127.0.0.3 is down."""
    for words in (("top", "--once", "--interval", "0.2"), ("doctor",)):
        done = shell.run_in_process(*words, "--json")
        machines = json.loads(done.stdout)["machines"]
        assert [(each["machine"], each["controllers"], each["serving"]) for each in machines] == [
            ("127.0.0.1", [103], [1, 4]),
            ("127.0.0.2", [101], [2, 5]),
            ("127.0.0.3", [102], [3]),
        ]
        [down] = machines[2]["down"]
        assert down["broker"] == 6
        assert down["since_ms"] <= time.time() * 1000
    found = shell.run_in_process("why").stdout
    [line] = [each for each in found.splitlines() if "machine 127.0.0." in each]
    assert "machine 127.0.0.3: brokers 3, 6 · controller 102 · 1 of 2 brokers serves" in line
    assert "broker 6 is down since " in line


def test_a_dead_broker_with_the_only_replica_in_sync_stays_registered(
    cluster: ClusterOnMachines, client: Client, shell: Shell
) -> None:
    client.create_topics([NewTopic(shell.topic, assignments={0: [6]})])
    replicas(client, shell.topic, 1)
    cluster.node(6).kill()
    try:
        eventually(lambda: [node.id for node in client.describe_cluster().fenced] == [6])
        check_that_commands_name_the_dead_broker(shell)
        done = shell.run_in_process("brokers", "unregister", "6", "--yes")
        assert done.returncode == 1
        assert "broker 6 has the only in-sync replica of" in done.stderr
        assert [node.id for node in client.describe_cluster().fenced] == [6]
    finally:
        cluster.node(6).start(START_TIMEOUT_S)
