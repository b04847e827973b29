"""Configurations of a node's processes, which follow from one configuration."""

from __future__ import annotations

import re
from itertools import combinations, count
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from barnabas.server.configs.config import log_directories
from barnabas.server.configs.node_keys import MEMBERS_KEY, NodeDirectories
from barnabas.server.configs.node_layout import NodeProcessPlan, broker_count, node_layout
from barnabas.settings.key import ConfigError
from barnabas.settings.properties import parse_properties

PAGE = Path(__file__).parents[4] / "docs" / "node.md"
EXAMPLE = re.compile(r"```properties\n(.*?)```", re.DOTALL)
NEW_CLUSTER = "MkU3OEVBNTcwNTJENDM2Qg"
SINGLE = NodeDirectories(is_single=True, cluster_id=NEW_CLUSTER)
KAFKA_FILE = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.quorum.bootstrap.servers": "localhost:9093",
    "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
    "inter.broker.listener.name": "PLAINTEXT",
    "advertised.listeners": "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL",
    "log.dirs": "/data",
}
ONE_OF_THREE = {
    "node.id": "2",
    "cluster.id": NEW_CLUSTER,
    "controller.quorum.voters": "1@host1:9093,2@host2:9093,3@host3:9093",
    "listeners": "PLAINTEXT://host2:9092,CONTROLLER://host2:9093",
    "log.dirs": "/disk1,/disk2",
    "broker.rack": "b",
}


def layout(
    keys: dict[str, str], brokers: int = 2, directories: NodeDirectories | None = None
) -> list[NodeProcessPlan]:
    """Return the processes of a node; free ports are counted from 40000 on."""
    ports = count(40_000)
    found = directories or NodeDirectories()
    return list(node_layout(keys, brokers, found, lambda: NEW_CLUSTER, lambda _: next(ports)))


def value(plans: list[NodeProcessPlan], key: str) -> list[str | None]:
    """Return a key of each process."""
    return [plan.properties.get(key) for plan in plans]


def test_a_node_without_settings_is_a_controller_and_brokers_with_ports_that_count_up() -> None:
    plans = layout({"log.dirs": "/data"}, 3)
    assert [plan.name for plan in plans] == [
        "controller 1",
        "broker 101",
        "broker 102",
        "broker 103",
    ]
    assert value(plans, "listeners") == [
        "CONTROLLER://127.0.0.1:9192",
        "PLAINTEXT://127.0.0.1:9092",
        "PLAINTEXT://127.0.0.1:9093",
        "PLAINTEXT://127.0.0.1:9094",
    ]
    assert value(plans, "log.dirs") == [
        "/data/controller.1",
        "/data/broker.101",
        "/data/broker.102",
        "/data/broker.103",
    ]
    assert set(value(plans, "controller.quorum.voters")) == {"1@127.0.0.1:9192"}
    assert set(value(plans, "cluster.id")) == {NEW_CLUSTER}
    assert set(value(plans, "offsets.topic.replication.factor")) == {"1"}


def test_the_ids_of_brokers_of_several_nodes_do_not_meet() -> None:
    ids = [
        plan.node_id
        for node in (1, 2, 3, 10, 11, 20)
        for plan in layout({"node.id": str(node), "log.dirs": "/data"}, 9)
    ]
    assert len(set(ids)) == len(ids)


def test_the_file_that_kafka_ships_becomes_a_node_with_one_dynamic_voter() -> None:
    plans = layout(KAFKA_FILE, 3)
    assert value(plans, "listeners") == [
        "CONTROLLER://:9093",
        "PLAINTEXT://:9092",
        "PLAINTEXT://:9094",
        "PLAINTEXT://:9096",
    ]
    assert value(plans, "advertised.listeners") == [
        "CONTROLLER://localhost:9093",
        "PLAINTEXT://localhost:9092",
        "PLAINTEXT://localhost:9094",
        "PLAINTEXT://localhost:9096",
    ]
    assert value(plans, "cluster.standalone") == ["true", None, None, None]


def test_a_node_of_a_larger_cluster_keeps_its_voters_rack_and_replication() -> None:
    plans = layout(ONE_OF_THREE)
    assert [plan.name for plan in plans] == ["controller 2", "broker 201", "broker 202"]
    assert value(plans, "listeners") == [
        "CONTROLLER://host2:9093",
        "PLAINTEXT://host2:9092",
        "PLAINTEXT://host2:9094",
    ]
    assert value(plans, "log.dirs") == [
        "/disk1/controller.2",
        "/disk1/broker.201,/disk2/broker.201",
        "/disk1/broker.202,/disk2/broker.202",
    ]
    assert set(value(plans, "broker.rack")) == {"b"}
    assert set(value(plans, "controller.quorum.voters")) == {
        ONE_OF_THREE["controller.quorum.voters"]
    }
    assert set(value(plans, "offsets.topic.replication.factor")) == {None}


def test_brokers_without_the_controller_role_get_no_controller_process() -> None:
    keys = ONE_OF_THREE | {
        "node.id": "4",
        "process.roles": "broker",
        "listeners": "PLAINTEXT://host4:9092",
    }
    plans = layout(keys)
    assert [plan.name for plan in plans] == ["broker 401", "broker 402"]
    assert value(plans, "listeners") == ["PLAINTEXT://host4:9092", "PLAINTEXT://host4:9093"]


def test_a_directory_of_one_process_stays_that_of_the_first_broker_with_its_roles() -> None:
    plans = layout({"log.dirs": "/data"}, 2, SINGLE)
    assert [plan.name for plan in plans] == ["broker 1", "broker 102"]
    assert value(plans, "log.dirs") == ["/data", "/data/broker.102"]
    assert value(plans, "listeners") == [
        "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9192",
        "PLAINTEXT://127.0.0.1:9093",
    ]
    assert [plan.configuration.cluster.roles for plan in plans] == [
        ["broker", "controller"],
        ["broker"],
    ]


def test_a_directory_of_metadata_has_a_folder_for_each_process() -> None:
    plans = layout({"log.dirs": "/data", "metadata.log.dir": "/fast"})
    assert value(plans, "metadata.log.dir") == [None, "/fast/broker.101", "/fast/broker.102"]
    assert value(plans, "log.dirs")[0] == "/fast/controller.1"


def test_port_0_becomes_a_free_port_for_each_process() -> None:
    plans = layout({"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": "/data"})
    ports = {plan.properties["listeners"].rpartition(":")[2] for plan in plans}
    assert len(ports) == 3
    assert "0" not in ports
    controller = plans[0].properties["listeners"].rpartition("://")[2]
    assert set(value(plans, "controller.quorum.voters")) == {f"1@{controller}"}


def test_the_controller_of_a_protected_node_is_protected_likewise() -> None:
    plain = '"User:admin"'
    keys = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:9092",
        "security.inter.broker.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
            "org.apache.kafka.common.security.plain.PlainLoginModule required "
            f'username="admin" password={plain} user_admin={plain};'
        ),
        "log.dirs": "/data",
    }
    plans = layout(keys)
    assert value(plans, "listeners")[0] == "CONTROLLER://127.0.0.1:9192"
    for plan in plans:
        assert plan.configuration.protocols["CONTROLLER"].name == "SASL_PLAINTEXT"
    assert "CONTROLLER" in plans[0].configuration.sasl
    assert "CONTROLLER" in plans[1].configuration.logins


def test_keys_of_one_process_override_what_follows() -> None:
    keys = {
        "log.dirs": "/data",
        "barnabas.node.broker.2.log.dirs": "/other",
        "barnabas.node.broker.2.listeners": "PLAINTEXT://127.0.0.1:19092",
        "barnabas.node.broker.2.node.id": "7",
        "barnabas.node.broker.5.log.dirs": "/only/with/five",
        "barnabas.node.controller.metadata.log.segment.bytes": "8388608",
    }
    plans = layout(keys)
    assert plans[2].node_id == 7
    assert value(plans, "log.dirs")[2] == "/other"
    assert value(plans, "listeners")[2] == "PLAINTEXT://127.0.0.1:19092"
    assert value(plans, "metadata.log.segment.bytes") == ["8388608", None, None]
    assert not any(key.startswith("barnabas.node.broker") for key in plans[2].properties)


def test_the_processes_learn_the_brokers_of_their_node() -> None:
    assert set(value(layout({"log.dirs": "/data"}), MEMBERS_KEY)) == {"101,102"}


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"process.roles": "controller"}, ["barnabas.node.brokers", "process.roles has no broker"]),
        (
            {"barnabas.node.broker.2.listeners": "PLAINTEXT://127.0.0.1:9092"},
            ["broker 101 already uses 9092", "barnabas.node.broker.2.listeners for broker 102"],
        ),
        (
            {"barnabas.node.broker.2.node.id": "101"},
            ["different ids", "barnabas.node.broker.2.node.id"],
        ),
        (
            {"barnabas.node.broker.2.log.dirs": "/data/broker.101/"},
            ["/data/broker.101", "barnabas.node.broker.2.log.dirs"],
        ),
        ({"barnabas.node.broker.0.node.id": "5"}, ["barnabas.node.broker.NUMBER.KEY"]),
        ({"barnabas.node.brokres": "5"}, ["barnabas.node.brokres"]),
        ({"barnabas.node.broker.1.process.roles": "broker"}, ["belongs to the whole node"]),
        ({"listeners": "PLAINTEXT://127.0.0.1:65535"}, ["65536"]),
    ],
)
def test_what_cannot_be_a_node_is_refused_with_a_reason(
    keys: dict[str, str], words: list[str]
) -> None:
    roles = {"controller.quorum.voters": "1@h:9093", "listeners": "CONTROLLER://h:9093"}
    base = roles if keys.get("process.roles") == "controller" else {}
    with pytest.raises(ConfigError) as refused:
        layout({"log.dirs": "/data", **base, **keys})
    for word in words:
        assert word in str(refused.value)


def test_a_broker_with_the_id_of_a_voter_is_refused() -> None:
    keys = ONE_OF_THREE | {
        "process.roles": "broker",
        "node.id": "4",
        "listeners": "PLAINTEXT://host4:9092",
        "barnabas.node.broker.1.node.id": "3",
    }
    with pytest.raises(ConfigError, match="node 3 is no controller"):
        layout(keys)


PORT = st.integers(1, 60_000)


@given(PORT, PORT, st.integers(1, 12), st.integers(0, 1000), st.booleans(), st.sampled_from("abc"))
def test_no_two_processes_share_an_id_a_port_or_a_directory(
    clients: int, controllers: int, brokers: int, node_id: int, is_single: bool, host: str
) -> None:
    if clients == controllers:
        controllers += 1
    keys = {
        "node.id": str(node_id),
        "listeners": f"INTERNAL://{host}:{clients},CONTROLLER://{host}:{controllers}",
        "controller.quorum.voters": f"{node_id}@{host}:{controllers}",
        "cluster.id": NEW_CLUSTER,
        "listener.security.protocol.map": "INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "log.dirs": "/one,/two",
    }
    plans = layout(keys, brokers, SINGLE if is_single else None)
    for one, other in combinations(plans, 2):
        assert one.node_id != other.node_id
        mine = {each.port for each in _opened(one)}
        assert not mine & {each.port for each in _opened(other)}
        assert not set(_directories(one)) & set(_directories(other))


def test_a_larger_node_keeps_the_ports_of_its_first_brokers() -> None:
    keys = {"listeners": "A://:9092,B://:9094,SSL://:9100", "log.dirs": "/data"}
    keys |= {
        "listener.security.protocol.map": "A:PLAINTEXT,B:PLAINTEXT,SSL:PLAINTEXT",
        "advertised.listeners": "A://h:9092,B://h:9094,SSL://h:9100",
        "inter.broker.listener.name": "A",
    }
    small, large = layout(keys, 2), layout(keys, 20)
    assert value(small, "listeners") == value(large, "listeners")[:3]


@pytest.mark.parametrize(
    ("text", "cores", "existing", "expected"),
    [("auto", 4, [], 4), ("auto", 1, [], 1), ("auto", 2, [101, 104], 4), ("3", 1, [101, 103], 3)],
)
def test_auto_counts_cores_and_never_leaves_a_broker_out(
    text: str, cores: int, existing: list[int], expected: int
) -> None:
    found = NodeDirectories(broker_ids=frozenset(existing))
    assert broker_count(text, cores, 1, found) == expected


def test_fewer_brokers_than_have_data_are_refused() -> None:
    found = NodeDirectories(broker_ids=frozenset([101, 102, 103]))
    with pytest.raises(ConfigError, match=r"at least 3.*broker\.103.*exclude-broker 103"):
        broker_count("2", 8, 1, found)


def page_examples() -> list[dict[str, str]]:
    """Return the configurations that the page shows."""
    return [parse_properties(text) for text in EXAMPLE.findall(PAGE.read_text())]


def test_the_configurations_of_the_page_are_nodes() -> None:
    overriding, one_of_three, secured = page_examples()
    plans = layout(overriding)
    assert value(plans, "log.dirs") == [
        "/data/disk1/controller.1",
        "/data/disk1/broker.101",
        "/data/disk2",
    ]
    assert value(plans, "listeners")[2] == "PLAINTEXT://127.0.0.1:9292"
    assert [plan.name for plan in layout(one_of_three)] == [
        "controller 1",
        "broker 101",
        "broker 102",
    ]
    # The controller has the protocol of the brokers' listener for each other.
    protocols = {
        each.security_protocol.name
        for plan in layout(secured)
        for each in (*plan.configuration.endpoints, *plan.configuration.controller_endpoints)
    }
    assert protocols == {"SASL_SSL"}


def _opened(plan: NodeProcessPlan) -> list[object]:
    return [*plan.configuration.endpoints, *plan.configuration.controller_endpoints]


def _directories(plan: NodeProcessPlan) -> list[str]:
    return log_directories(plan.configuration.parsed)
