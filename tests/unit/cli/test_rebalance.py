"""The brokers that `barnabas rebalance` uses, and the plan that it prints."""

from __future__ import annotations

import json
from typing import Any

import click
import pytest

from barnabas.cli.partitions.balancing import PartitionLoad
from barnabas.cli.partitions.planning import moves
from barnabas.cli.partitions.reassign import read_file
from barnabas.cli.partitions.rebalance import Balance, balance_json, used_brokers
from barnabas.client.admin.cluster import ClusterDescription
from barnabas.client.connections.metadata_cache import NodeInfo
from barnabas.client.topic_partition import TopicPartition


def node(broker: int) -> NodeInfo:
    return NodeInfo(broker, "host1" if broker < 3 else "host2", 9092, f"rack-{broker}")


class Cluster:
    """A client that knows brokers 1 and 2, and broker 3, which does not serve."""

    def describe_cluster(self) -> ClusterDescription:
        return ClusterDescription("id", 1, (node(1), node(2)), (node(3),))


CLIENT: Any = Cluster()


@pytest.mark.parametrize(
    ("brokers", "excluded", "used"),
    [
        (None, ["3"], [1, 2]),
        (None, ["2,3"], [1]),
        (None, ["2", "3"], [1]),
        ("1", [], [1]),
        ("1, 2", ["3"], [1, 2]),
    ],
)
def test_brokers_are_chosen_or_left_out(
    brokers: str | None, excluded: list[str], used: list[int]
) -> None:
    assert used_brokers(CLIENT, brokers, excluded) == {each: node(each) for each in used}


@pytest.mark.parametrize(
    ("brokers", "excluded", "message"),
    [
        (None, [], "broker 3 does not serve: start it, or give --exclude-broker 3"),
        ("1,3", [], "broker 3 does not serve"),
        (None, ["9"], "there is no broker 9; the brokers are [1, 2, 3]"),
        (None, ["1,2,3"], "no broker is left"),
    ],
)
def test_a_broker_that_cannot_be_used_is_named(
    brokers: str | None, excluded: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        used_brokers(CLIENT, brokers, excluded)
    assert message in capsys.readouterr().err


def test_a_broker_is_not_both_chosen_and_left_out() -> None:
    with pytest.raises(click.UsageError, match="broker 2 is in --brokers and is also excluded"):
        used_brokers(CLIENT, "1,2", ["2"])


def test_all_brokers_of_a_machine_are_left_out() -> None:
    assert used_brokers(CLIENT, None, [], ["HOST2"]) == {1: node(1), 2: node(2)}


def test_a_machine_without_brokers_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        used_brokers(CLIENT, None, [], ["host3"])
    assert "no broker has the host host3; the hosts are host1, host2" in capsys.readouterr().err


def test_the_json_of_a_plan_has_loads_and_is_a_file_of_reassignments(tmp_path: Any) -> None:
    first, second = TopicPartition("t", 0), TopicPartition("t", 1)
    current, wanted = {first: [1], second: [1]}, {first: [1], second: [2]}
    loads = dict.fromkeys(current, PartitionLoad(100, 2.5))
    balance = Balance(
        {each: node(each) for each in (1, 2, 3)}, current, wanted, loads, moves(current, wanted)
    )
    shown = balance_json(balance)
    assert shown["bytes_to_copy"] == 100
    assert shown["brokers"][1] == {
        "broker": 2,
        "rack": "rack-2",
        "machine": "host1",
        "before": {"replicas": 0, "preferred_leaders": 0, "bytes": 0, "bytes_per_second": 0.0},
        "after": {"replicas": 1, "preferred_leaders": 1, "bytes": 100, "bytes_per_second": 2.5},
    }
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(shown))
    assert read_file(str(path)) == {second: [2]}
