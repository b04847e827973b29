"""What depends on brokers that are to stop or to be removed."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from barnabas.cli.admin import broker_removal
from barnabas.cli.admin.broker_removal import Dependence, check_brokers, dependence
from barnabas.client.admin.cluster import ClusterDescription
from barnabas.client.connections.metadata_cache import NodeInfo, PartitionInfo, TopicInfo


def topic(*partitions: tuple[tuple[int, ...], tuple[int, ...]]) -> dict[str, TopicInfo]:
    """Return a topic whose partitions have these replicas and in-sync replicas."""
    found = {
        number: PartitionInfo(number, isr[0] if isr else -1, 3, replicas, isr)
        for number, (replicas, isr) in enumerate(partitions)
    }
    return {"t": TopicInfo("t", bytes(16), False, found)}


def test_a_partition_depends_on_the_brokers_that_have_all_its_replicas_in_sync() -> None:
    topics = topic(((10, 20), (10,)), ((10, 11, 20), (10, 11, 20)), ((10, 11), (10, 11)))
    assert dependence(topics, {}, [10]) == Dependence(["t-0"], [], ["t-0", "t-1", "t-2"])
    assert dependence(topics, {}, [10, 11]).offline == ["t-0", "t-2"]
    assert dependence(topics, {}, [20]).offline == []


def test_a_partition_whose_replicas_in_sync_are_all_down_depends_on_each_of_its_replicas() -> None:
    topics = topic(((10,), ()), ((10, 20), ()), ((20,), ()))
    assert dependence(topics, {}, [10]).offline == ["t-0", "t-1"]


def test_a_partition_below_its_minimum_of_replicas_in_sync_is_named() -> None:
    topics = topic(((10, 20, 30), (10, 20, 30)), ((10, 20, 30), (20, 30)))
    assert dependence(topics, {"t": 2}, [20]).below_min_isr == ["t-1"]
    assert dependence(topics, {"t": 2}, [10]).may_stop()
    # Replicas that are already out of sync change nothing when their broker stops.
    assert dependence(topic(((10, 20), (20,))), {"t": 2}, [10]).may_stop()


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A client of brokers 10 and 11 on host1, and 20 on host2, which the command gets."""
    nodes = (NodeInfo(10, "host1", 1), NodeInfo(11, "host1", 2), NodeInfo(20, "host2", 1))
    found = SimpleNamespace(
        describe_cluster=lambda: ClusterDescription("c", 1, nodes, ()),
        describe_topics=lambda: topic(((10, 11), (10, 11)), ((20, 10), (20, 10))),
    )
    monkeypatch.setattr(broker_removal, "minimum_isrs", lambda client, names: {})

    class Connected:
        def __enter__(self) -> Any:
            return found

        def __exit__(self, *error: object) -> None:
            pass

    monkeypatch.setattr(broker_removal, "connected", lambda options: Connected())
    return found


@pytest.mark.parametrize(
    ("arguments", "status", "text"),
    [
        (["10"], 0, "broker 10 may stop"),
        (["20"], 0, "broker 20 may stop"),
        (["10,11"], 1, "1 partition without another in-sync replica: t-0"),
        (["--machine", "HOST1"], 1, "brokers 10, 11 may not stop"),
        (["10", "--remove"], 1, "broker 10 may not be removed: 2 partitions with replicas there"),
    ],
)
def test_brokers_are_checked_by_id_or_by_machine(
    client: Any, arguments: list[str], status: int, text: str
) -> None:
    done = CliRunner().invoke(check_brokers, arguments)
    assert (done.exit_code, text in done.output) == (status, True), done.output


def test_the_check_lists_all_partitions_as_json(client: Any) -> None:
    done = CliRunner().invoke(check_brokers, ["--machine", "host1", "--json"])
    assert json.loads(done.output) == {
        "brokers": [10, 11],
        "may_stop": False,
        "may_be_removed": False,
        "offline": ["t-0"],
        "below_min_isr": [],
        "replicas": ["t-0", "t-1"],
    }
