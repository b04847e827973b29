"""Fixtures of this project's own tests, with short names; users have those of `pytest_plugin`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from barnabas.testing.broker_process import BrokerProcess
from barnabas.testing.cluster_process import ClusterProcess

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

# A test does not want its first consumer to wait three seconds for others.
TEST_SETTINGS = {"group.initial.rebalance.delay.ms": "0"}
CLUSTER_SETTINGS = {**TEST_SETTINGS, "offsets.topic.num.partitions": "3"}


@pytest.fixture(scope="session")
def broker() -> Iterator[BrokerProcess]:
    """One running broker for the whole session; tests share it and use topics of their own."""
    with BrokerProcess(settings=TEST_SETTINGS) as process:
        yield process


@pytest.fixture
def broker_process(tmp_path: Path) -> Iterator[BrokerProcess]:
    """A running broker for this test alone: it may be killed and restarted."""
    with BrokerProcess(tmp_path, TEST_SETTINGS) as process:
        yield process


@pytest.fixture
def make_broker(tmp_path: Path) -> Iterator[Callable[[Mapping[str, str]], BrokerProcess]]:
    """Makes brokers with settings of their own, not yet started; all are ended after the test."""
    made: list[BrokerProcess] = []

    def make(settings: Mapping[str, str]) -> BrokerProcess:
        directory = tmp_path / f"broker-{len(made)}"
        process = BrokerProcess(directory, {**TEST_SETTINGS, **settings})
        made.append(process)
        return process

    yield make
    for process in made:
        process.close()


@pytest.fixture
def make_cluster(tmp_path: Path) -> Iterator[Callable[..., ClusterProcess]]:
    """Makes clusters, not yet started: make_cluster(brokers=3, controllers=0, settings={...})."""
    made: list[ClusterProcess] = []

    def make(
        brokers: int = 3, controllers: int = 0, settings: Mapping[str, str] | None = None
    ) -> ClusterProcess:
        directory = tmp_path / f"cluster-{len(made)}"
        keys = {**CLUSTER_SETTINGS, **(settings or {})}
        cluster = ClusterProcess(brokers, controllers, directory, keys)
        made.append(cluster)
        return cluster

    yield make
    for cluster in made:
        cluster.close()


@pytest.fixture
def cluster_process(make_cluster: Callable[..., ClusterProcess]) -> ClusterProcess:
    """Three running brokers for this test alone, controllers too: any may be killed."""
    return make_cluster().start()
