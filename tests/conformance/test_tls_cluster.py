"""Three nodes with TLS between brokers, controllers and clients."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import confluent_kafka
import confluent_kafka.admin
import pytest

import barnabas
from barnabas.testing.cluster_process import CLIENT_LISTENER, CONTROLLER_LISTENER, ClusterProcess
from conformance.tls_cluster import TlsFiles, tls_cluster
from waiting import PATIENCE_S, eventually

REQUIRED = {"ssl.client.auth": "required"}


def admin_of(cluster: ClusterProcess, files: TlsFiles) -> confluent_kafka.admin.AdminClient:
    return confluent_kafka.admin.AdminClient(
        {"bootstrap.servers": cluster.bootstrap, **files.librdkafka()}
    )


def create(cluster: ClusterProcess, files: TlsFiles, topic: str) -> None:
    new = confluent_kafka.admin.NewTopic(topic, 3, 3, config={"min.insync.replicas": "2"})
    admin = admin_of(cluster, files)
    admin.create_topics([new])[topic].result(PATIENCE_S)


def write_and_read(cluster: ClusterProcess, files: TlsFiles, topic: str, count: int) -> None:
    """Write with acks=all and read all back."""
    keys = {key.replace(".", "_"): value for key, value in files.librdkafka().items()}
    with barnabas.Producer(cluster.bootstrap, acks="all", **keys) as producer:
        sent = [producer.send(topic, b"x") for _ in range(count)]
        producer.flush()
        assert all(each.result().offset >= 0 for each in sent)
    found = 0
    with barnabas.Consumer(
        topic,
        bootstrap_servers=cluster.bootstrap,
        group_id=topic,
        auto_offset_reset="earliest",
        **keys,
    ) as consumer:
        while found < count:
            found += len(consumer.poll(PATIENCE_S))
    assert found == count


@pytest.fixture(scope="module", params=[0, 1], ids=["combined", "separate controller"])
def running(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[ClusterProcess, TlsFiles]]:
    folder = tmp_path_factory.mktemp("cluster")
    cluster, files = tls_cluster(folder, "barnabas", 3, request.param, **REQUIRED)
    with cluster:
        yield cluster, files


def test_records_are_replicated(running: tuple[ClusterProcess, TlsFiles]) -> None:
    cluster, files = running
    create(cluster, files, "replicated")
    write_and_read(cluster, files, "replicated", 500)


def test_every_listener_requires_tls(running: tuple[ClusterProcess, TlsFiles]) -> None:
    cluster, _ = running
    for node in cluster.nodes.values():
        for name in (CLIENT_LISTENER, CONTROLLER_LISTENER):
            if name not in node.options.listeners:
                continue
            with socket.create_connection(node.options.listeners[name], PATIENCE_S) as plain:
                # ApiVersions 0 in plaintext.
                plain.sendall(b"\0\0\0\x0a\0\x12\0\0\0\0\0\1\xff\xff")
                # The broker sends a TLS alert.
                assert plain.recv(2) == b"\x15\x03"


def test_a_broker_that_is_killed_returns(running: tuple[ClusterProcess, TlsFiles]) -> None:
    cluster, files = running
    create(cluster, files, "killed")
    node = cluster.node(2)
    node.kill()
    write_and_read(cluster, files, "killed", 200)
    node.restart()

    admin = admin_of(cluster, files)

    def all_in_sync() -> bool:
        topic = admin.list_topics("killed", PATIENCE_S).topics["killed"]
        return all(len(each.isrs) == 3 for each in topic.partitions.values())

    eventually(all_in_sync)


def test_an_admin_client_of_the_controllers_works(
    running: tuple[ClusterProcess, TlsFiles],
) -> None:
    cluster, files = running
    keys = {key.replace(".", "_"): value for key, value in files.java().items()}
    with barnabas.Admin(cluster.bootstrap, **keys) as admin:
        quorum = admin.describe_quorum()
    assert quorum.leader_id in cluster.nodes
