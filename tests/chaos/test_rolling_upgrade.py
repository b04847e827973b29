"""A cluster of an earlier version is upgraded node by node under load, and no send fails."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from barnabas.testing.cluster_process import ClusterProcess
from chaos.campaign import SETTINGS
from chaos.checker import check
from chaos.cluster_view import await_that
from chaos.earlier_version import UpgradedNode, earliest_commit, extract
from chaos.judgment import compare_replicas, unexpected_errors
from chaos.load import Load, LoadOptions
from chaos.stress import HEAL_TIMEOUT_S, TOPIC, Stress, make_topic

PARTITIONS = 6


@pytest.mark.conformance
def test_no_send_fails_while_brokers_of_an_earlier_version_are_upgraded(tmp_path: Path) -> None:
    commit = earliest_commit()
    print(f"upgraded from commit {commit}")
    earlier = extract(tmp_path / "earlier", commit)
    cluster = ClusterProcess(
        3, directory=tmp_path / "cluster", settings=SETTINGS, node_type=UpgradedNode
    )
    nodes = [node for node in cluster.nodes.values() if isinstance(node, UpgradedNode)]
    for node in nodes:
        node.sources = earlier
    with cluster:
        assert [node.running_from() for node in nodes] == [str(earlier)] * 3
        make_topic(cluster, PARTITIONS)
        load = Load(cluster.bootstrap, LoadOptions(TOPIC, PARTITIONS))
        try:
            stress = Stress(cluster, None, load, random.Random(1), PARTITIONS)
            stress.await_full_isr()
            load.start()
            load.mark()
            await_that(load.waiting, lambda found: not found, HEAL_TIMEOUT_S, "the load")
            for node in nodes:
                stress.may_end.add(node.node_id)
                assert node.stop() == 0
                node.sources = None
                node.start()
                assert node.running_from() == ""
                stress.may_end.clear()
                stress.await_full_isr()
                stress.check_alive()
            load.mark()
            await_that(load.waiting, lambda found: not found, HEAL_TIMEOUT_S, "the load")
            history = load.finish()
        finally:
            load.abandon()
        assert load.failures() == 0, load.errors.counts
        verdict = check(history)
        assert verdict.is_clean, verdict
        assert compare_replicas(cluster, PARTITIONS) == []
        assert unexpected_errors(cluster) == []
        print(f"{load.records()} records; {dict(load.errors.counts)}")
