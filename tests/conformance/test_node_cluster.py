"""Three nodes of two brokers each, with static voters, on three addresses of this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from conformance.kcat_command import kcat
from conformance.node_of_brokers import three_nodes
from waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path

WAIT_S = 300.0
PARTITIONS = 6


def write(bootstrap: str, topic: str) -> None:
    """Write one record to each partition, to all replicas in sync."""
    failed = []
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all"})
    for partition in range(PARTITIONS):
        producer.produce(
            topic,
            b"value",
            partition=partition,
            on_delivery=lambda error, _: failed.append(error) if error else None,
        )
    assert producer.flush(WAIT_S) == 0
    assert not failed


def test_three_nodes_of_two_brokers_are_a_cluster_that_survives_the_stop_of_a_node(
    tmp_path: Path,
) -> None:
    nodes = three_nodes(tmp_path)
    try:
        for node in nodes:
            node.launch()
        for node in nodes:
            node.await_ready(WAIT_S)
        bootstrap = ",".join(node.bootstrap for node in nodes)
        admin = AdminClient({"bootstrap.servers": bootstrap})
        brokers = {101, 102, 201, 202, 301, 302}
        assert eventually(lambda: set(admin.list_topics(timeout=WAIT_S).brokers) == brokers)
        # A replica on each node, so that two stay in sync without one of the nodes.
        replicas = [[first + 100 * node for node in range(3)] for first in (101, 102)]
        topic = NewTopic("orders", PARTITIONS, replica_assignment=replicas * (PARTITIONS // 2))
        for future in admin.create_topics([topic]).values():
            future.result(WAIT_S)
        write(bootstrap, "orders")
        assert "6 brokers" in kcat(bootstrap, "-L")
        kcat(bootstrap, "-P", "-t", "orders", text="by kcat\n")
        read = kcat(bootstrap, "-C", "-t", "orders", "-o", "beginning", "-e", "-q").splitlines()
        assert sorted(read) == sorted(["by kcat", *["value"] * PARTITIONS])
        # A clean stop hands over, so no write fails while two of three replicas are in sync.
        assert nodes[0].stop() == 0
        write(bootstrap, "orders")
        nodes[0].start(WAIT_S)
        assert eventually(lambda: nodes[0].get("/readyz") == (200, "ok\n"))
        assert eventually(
            lambda: all(
                len(partition.isrs) == 3
                for partition in admin.list_topics("orders", timeout=WAIT_S)
                .topics["orders"]
                .partitions.values()
            )
        )
        for node in nodes:
            node.terminate()
        assert [node.stop() for node in nodes] == [0, 0, 0]
    finally:
        for node in nodes:
            node.close()
