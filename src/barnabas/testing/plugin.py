"""Fixtures with short names for this project's own tests; users have `pytest_plugin`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from barnabas.testing.broker_process import BROKER_SETTINGS, CLUSTER_SETTINGS, BrokerProcess
from barnabas.testing.cluster_process import ClusterProcess

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path


@pytest.fixture(scope="session")
def broker() -> Iterator[BrokerProcess]:
    """A running broker for the whole session; tests share it and use their own topics."""
    with BrokerProcess(settings=BROKER_SETTINGS) as process:
        yield process


@pytest.fixture
def broker_process(tmp_path: Path) -> Iterator[BrokerProcess]:
    """A running broker for one test, which may kill and restart it."""
    with BrokerProcess(tmp_path, BROKER_SETTINGS) as process:
        yield process


@pytest.fixture
def make_broker(tmp_path: Path) -> Iterator[Callable[[Mapping[str, str]], BrokerProcess]]:
    """Create brokers with given settings, not yet started; they are closed after the test."""
    made: list[BrokerProcess] = []

    def make(settings: Mapping[str, str]) -> BrokerProcess:
        directory = tmp_path / f"broker-{len(made)}"
        process = BrokerProcess(directory, {**BROKER_SETTINGS, **settings})
        made.append(process)
        return process

    yield make
    for process in made:
        process.close()


@pytest.fixture
def make_cluster(tmp_path: Path) -> Iterator[Callable[..., ClusterProcess]]:
    """Create clusters, not yet started: make_cluster(brokers=3, controllers=0, settings={...})."""
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
    """Three running brokers, also controllers, for one test, which may kill them."""
    return make_cluster().start()
