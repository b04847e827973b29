"""Three brokers whose links are cut, stalled and slowed down under a client."""

from __future__ import annotations

import socket
import time
from typing import TYPE_CHECKING

import pytest

from barnabas import Admin, Consumer, Producer
from barnabas.client.admin.topics import NewTopic
from barnabas.testing.relayed_cluster import CLIENTS, RelayedCluster
from waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "3",
    # Until a broker that is cut off leaves the in-sync replicas.
    "replica.lag.time.max.ms": "2000",
}
# A limit for what hangs.
TIMEOUT_S = 90.0


@pytest.fixture(scope="module")
def started() -> Iterator[RelayedCluster]:
    with RelayedCluster(settings=SETTINGS) as cluster:
        yield cluster


@pytest.fixture
def cluster(started: RelayedCluster) -> Iterator[RelayedCluster]:
    yield started
    started.restore()


def connect(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    made = socket.create_connection((host, int(port)), TIMEOUT_S)
    made.settimeout(TIMEOUT_S)
    return made


def address_of(cluster: RelayedCluster, node_id: int) -> str:
    """Where clients reach a broker: through its relay."""
    return cluster.bootstrap.split(",")[node_id - 1]


def is_refused(address: str) -> bool:
    with connect(address) as connection:
        try:
            connection.sendall(b"\0\0\0\0")
            return connection.recv(1) == b""
        except ConnectionError:
            return True


def isr(cluster: RelayedCluster, topic: str) -> list[int]:
    with Admin(cluster.bootstrap) as admin:
        described = admin.describe_topics([topic])[topic]
        return sorted(described.partitions[0].isr)


def test_the_addresses_of_the_relays_are_advertised(cluster: RelayedCluster) -> None:
    with Admin(cluster.bootstrap) as admin:
        # A broker that is still fenced is not described.
        eventually(lambda: len(admin.describe_cluster().brokers) == 3)
        brokers = admin.describe_cluster().brokers
    told = sorted(f"{broker.host}:{broker.port}" for broker in brokers)
    assert told == sorted(cluster.bootstrap.split(","))
    assert not set(told) & {node.address for node in cluster.nodes.values()}


def test_a_broker_that_is_cut_off_leaves_the_isr_and_returns(cluster: RelayedCluster) -> None:
    with Producer(cluster.bootstrap, acks="all") as producer:
        with Admin(cluster.bootstrap) as admin:
            # A client would wait for the leader until its request times out.
            admin.create_topics([NewTopic("cut", assignments={0: [1, 2, 3]})])
        producer.send("cut", b"before").result()
        cluster.isolate(3)
        eventually(lambda: 3 not in isr(cluster, "cut"))
        producer.send("cut", b"without").result()
        cluster.heal()
        eventually(lambda: 3 in isr(cluster, "cut"))


def test_clients_cannot_reach_a_broker_whose_link_to_them_is_cut(cluster: RelayedCluster) -> None:
    with connect(address_of(cluster, 2)) as before:
        cluster.cut((CLIENTS, 2))
        assert before.recv(1) == b""
        assert is_refused(address_of(cluster, 2))
    cluster.heal()
    with Producer(address_of(cluster, 2)) as producer:
        producer.send("reached", b"again").result()


def test_a_slow_link_delays_answers(cluster: RelayedCluster) -> None:
    with Consumer(bootstrap_servers=address_of(cluster, 1)) as consumer:
        cluster.slow((1, CLIENTS), 150)
        started = time.monotonic()
        consumer.list_topics()
        # The request and the answer are both delayed; clocks are rounded.
        assert time.monotonic() - started > 0.29


def test_restore_restarts_killed_and_resumes_paused_brokers(cluster: RelayedCluster) -> None:
    cluster.node(1).kill()
    cluster.node(2).pause()
    cluster.restore()
    with Producer(cluster.bootstrap, acks="all") as producer:
        producer.send("restored", b"value").result()
    assert all(node.is_running for node in cluster.nodes.values())


@pytest.mark.parametrize("link", [(1, 1), (1, 4), (CLIENTS, 9)])
def test_a_link_that_does_not_exist_is_refused(
    cluster: RelayedCluster, link: tuple[int, int]
) -> None:
    with pytest.raises(ValueError, match="is not a link"):
        cluster.cut(link)
