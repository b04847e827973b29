"""Nodes of an earlier version are upgraded and downgraded one by one under load; no send fails."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from barnabas.testing.cluster_process import ClusterProcess
from chaos.campaign import SETTINGS
from chaos.checker import check
from chaos.cluster_view import await_that
from chaos.earlier_version import UpgradedNode, earliest_commit, extract, release_commit
from chaos.judgment import compare_replicas, unexpected_errors
from chaos.load import Load, LoadOptions
from chaos.stress import HEAL_TIMEOUT_S, TOPIC, Stress, make_topic
from conformance.kept_directory import kept_releases

PARTITIONS = 6
RELEASES = [each.release for each in kept_releases()]


@pytest.mark.nightly
@pytest.mark.conformance
def test_no_send_fails_while_brokers_of_an_earlier_version_are_upgraded(tmp_path: Path) -> None:
    commit = earliest_commit()
    print(f"upgraded from commit {commit}")
    earlier = extract(tmp_path / "earlier", commit)
    with stressed(tmp_path, earlier) as (stress, nodes):
        for node in nodes:
            run_from(stress, node, None)


@pytest.mark.conformance
@pytest.mark.parametrize("release", RELEASES)
def test_no_send_fails_while_brokers_are_upgraded_from_a_release_and_go_back(
    release: str, tmp_path: Path
) -> None:
    earlier = extract(tmp_path / "earlier", release_commit(release))
    with stressed(tmp_path, earlier) as (stress, nodes):
        for node in nodes:
            run_from(stress, node, None)
        for node in reversed(nodes):
            run_from(stress, node, earlier)


@contextmanager
def stressed(directory: Path, sources: Path) -> Iterator[tuple[Stress, Sequence[UpgradedNode]]]:
    """Run three nodes from sources under load; at the end, judge all that the clients saw."""
    cluster = ClusterProcess(
        3, directory=directory / "cluster", settings=SETTINGS, node_type=UpgradedNode
    )
    nodes = [node for node in cluster.nodes.values() if isinstance(node, UpgradedNode)]
    for node in nodes:
        node.sources = sources
    with cluster:
        assert [node.running_from() for node in nodes] == [str(sources)] * 3
        make_topic(cluster, PARTITIONS)
        load = Load(cluster.bootstrap, LoadOptions(TOPIC, PARTITIONS))
        try:
            stress = Stress(cluster, None, load, random.Random(1), PARTITIONS)
            stress.await_full_isr()
            load.start()
            await_load(load)
            yield stress, nodes
            await_load(load)
            history = load.finish()
        finally:
            load.abandon()
        assert load.failures() == 0, load.errors.counts
        verdict = check(history)
        assert verdict.is_clean, verdict
        assert compare_replicas(cluster, PARTITIONS) == []
        assert unexpected_errors(cluster) == []
        print(f"{load.records()} records; {dict(load.errors.counts)}")


def await_load(load: Load) -> None:
    load.mark()
    await_that(load.waiting, lambda found: not found, HEAL_TIMEOUT_S, "the load")


def run_from(stress: Stress, node: UpgradedNode, sources: Path | None) -> None:
    """Restart a node from other sources, and wait until all replicas are in sync."""
    stress.may_end.add(node.node_id)
    assert node.stop() == 0
    node.sources = sources
    node.start()
    assert node.running_from() == ("" if sources is None else str(sources))
    stress.may_end.clear()
    stress.await_full_isr()
    stress.check_alive()
