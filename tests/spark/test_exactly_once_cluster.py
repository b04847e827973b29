"""Exactly once from topic to topic, on three brokers: coordinators' brokers are killed."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from barnabas.client.facade import Client
from barnabas.testing.cluster_process import ClusterProcess
from jvm.kafka_process import QUICK_FENCING
from jvm.three_brokers import three_brokers_of
from selection import nightly_rows_unless
from spark.copies import Copy, await_end, copy_of, each_row_once, write_records
from spark.stopping_sink import STEPS

pytestmark = pytest.mark.spark

SETTINGS = {
    **QUICK_FENCING,
    # One coordinator of transactions, and one of groups.
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "auto.leader.rebalance.enable": "false",
}
COORDINATORS = {"transactions": "__transaction_state", "groups": "__consumer_offsets"}


@pytest.fixture(scope="module", params=["barnabas", "kafka"])
def cluster(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ClusterProcess]:
    with three_brokers_of(request, tmp_path_factory, SETTINGS) as started:
        yield started


@pytest.fixture(scope="module")
def bootstrap(cluster: ClusterProcess) -> str:
    return cluster.bootstrap


@pytest.fixture(scope="module")
def client(bootstrap: str) -> Iterator[Client]:
    with Client(bootstrap, isolation_level="read_committed") as made:
        yield made


@pytest.fixture
def topic(client: Client, tmp_path: Path) -> str:
    name = f"spark-{tmp_path.name}"
    client.create_topic(name, 3, 3)
    write_records(client, name, replicas=3)
    return name


@pytest.fixture
def copy(spark: SparkSession, stopping: str, bootstrap: str, topic: str, tmp_path: Path) -> Copy:
    return copy_of(spark, bootstrap, topic, tmp_path)


@pytest.fixture(scope="module")
def coordinators(client: Client) -> None:
    """The topics of the coordinators, which the first requests to coordinators create."""
    with client.producer(transactional_id="first") as producer:
        producer.init_transactions()
    client.committed("first")


def leader_of(client: Client, topic: str) -> int:
    """Return the broker that leads the only partition of a topic."""
    return client.describe_topics([topic])[topic].partitions[0].leader


# What `make check` runs: the most delicate step.
SELECTED = [
    ("between the ends", "transactions"),
]


@pytest.mark.usefixtures("coordinators")
@pytest.mark.parametrize(
    ("step", "coordinator"),
    nightly_rows_unless(SELECTED.__contains__, itertools.product(STEPS, COORDINATORS)),
)
def test_each_row_is_seen_once_after_a_coordinators_broker_is_killed(
    step: str,
    coordinator: str,
    cluster: ClusterProcess,
    client: Client,
    copy: Copy,
    copied: Callable[[], Counter[bytes]],
) -> None:
    query = copy.stop_at(step)
    killed = cluster.node(leader_of(client, COORDINATORS[coordinator]))
    killed.kill()
    try:
        copy.point.release()
        await_end(query)
        # The brokers that are left finish the copy.
        copy.finish()
        assert copied() == each_row_once()
    finally:
        killed.start()
