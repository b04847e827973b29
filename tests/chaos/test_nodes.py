"""Whole nodes of `barnabas start --brokers` die under load: the supervisor and all its processes.

Each node has a voter of the metadata quorum and two brokers, and is a machine for the placement of
replicas. So every partition stays writable while one node is down, and no acknowledged record is
lost.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from barnabas.client.admin.topics import NewTopic
from barnabas.client.facade import Client
from chaos.checker import check
from chaos.load import Load, LoadOptions
from conformance.node_of_brokers import three_nodes
from machines import needs_loopback_addresses
from waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path

    from conformance.node_of_brokers import NodeOfBrokers

pytestmark = [pytest.mark.conformance, pytest.mark.slow, needs_loopback_addresses]
WAIT_S = 300.0
TOPIC = "chaos"
PARTITIONS = 6
RATE = 100


def await_in_sync(bootstrap: str) -> None:
    """Wait until all replicas of the topic are in sync."""
    with Client(bootstrap) as client:

        def counts() -> list[int]:
            found = client.describe_topics([TOPIC])[TOPIC].partitions
            return [len(each.isr) for each in found.values()]

        eventually(lambda: counts() == [3] * PARTITIONS, counts, WAIT_S)


def await_progress(load: Load) -> None:
    """Wait until each partition has an acknowledged record, and each reader a later record."""
    load.mark()
    eventually(lambda: not load.waiting(), load.waiting, WAIT_S)
    load.check_alive()


def active_node(bootstrap: str, nodes: list[NodeOfBrokers]) -> NodeOfBrokers:
    """Return the node with the active controller."""
    with Client(bootstrap) as client:
        return nodes[client.admin.describe_quorum().leader_id - 1]


def test_nodes_die_whole_under_load_and_nothing_is_lost(tmp_path: Path) -> None:
    nodes = three_nodes(tmp_path)
    load: Load | None = None
    try:
        for node in nodes:
            node.launch()
        for node in nodes:
            node.await_ready(WAIT_S)
        bootstrap = ",".join(node.bootstrap for node in nodes)
        with Client(bootstrap) as client:
            client.create_topics([NewTopic(TOPIC, PARTITIONS, 3)])
        await_in_sync(bootstrap)
        load = Load(bootstrap, LoadOptions(TOPIC, PARTITIONS, rate=RATE))
        load.start()
        await_progress(load)
        first = active_node(bootstrap, nodes)
        for node in (first, next(each for each in nodes if each is not first)):
            node.kill_machine()
            await_progress(load)
            node.start(WAIT_S)
            await_in_sync(bootstrap)
        verdict = check(load.finish())
        assert verdict.is_clean, str(verdict)
    finally:
        if load is not None:
            load.abandon()
        for node in nodes:
            node.close()
