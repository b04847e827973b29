"""Combined nodes die together; one of them returns with an empty disk."""

from __future__ import annotations

from itertools import permutations, product

import pytest

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from barnabas.record.builder import BatchBuilder
from barnabas.record.legacy import read_records
from unit.server.process.topic_creation import creation
from unit.server.process.wiped_disk import wipe
from unit.server.simulated_broker import produce_request
from unit.server.simulated_cluster import SimulatedCluster, three_nodes

NODES = (1, 2, 3)
RECORDS = [b"%d" % number for number in range(5)]
PARTITIONS = (0, 1, 2)


def leader_of(cluster: SimulatedCluster, partition: int) -> int:
    found = cluster.image(min(cluster.ready)).topics.partition("t", partition)
    return -1 if found is None else found.leader


def settled_leader(cluster: SimulatedCluster, partition: int) -> int:
    cluster.until(lambda: leader_of(cluster, partition) in cluster.ready)
    return leader_of(cluster, partition)


def fill(cluster: SimulatedCluster) -> None:
    """Create a topic on all nodes, with acknowledged records in every partition."""
    answer = cluster.ask(1, creation("t", replicas=3), 7)
    assert answer.topics[0].error_code == ErrorCode.NONE
    for partition in PARTITIONS:
        cluster.until(
            lambda partition=partition: all(
                cluster.image(each).topics.partition("t", partition) is not None for each in NODES
            )
        )
        builder = BatchBuilder()
        for value in RECORDS:
            builder.append(0, None, value)
        request = produce_request("t", bytes(builder.build()))
        request.topic_data[0].partition_data[0].index = partition
        answer = cluster.ask(settled_leader(cluster, partition), request, 9)
        assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE


def records(cluster: SimulatedCluster, partition: int) -> list[bytes | None]:
    """Return the records of a partition; empty until the leader has applied its election."""
    asked = FetchPartition(partition=partition, fetch_offset=0, partition_max_bytes=1 << 20)
    request = FetchRequest(
        max_wait_ms=0, min_bytes=0, topics=[FetchTopic(topic="t", partitions=[asked])]
    )
    answer = cluster.ask(settled_leader(cluster, partition), request, 11)
    found = answer.responses[0].partitions[0]
    if found.error_code != ErrorCode.NONE:
        return []
    return [each.value for each in read_records(bytes(found.records))]


def read_all(cluster: SimulatedCluster, partition: int) -> list[bytes | None]:
    """Return the records when the expected number is committed, or after a second."""
    for _ in range(100):
        found = records(cluster, partition)
        if len(found) >= len(RECORDS):
            break
        cluster.world.run_for(10)
    return found


ORDERS = list(product(permutations(NODES), permutations(NODES), NODES, (0, 150)))


@pytest.mark.parametrize(("deaths", "starts", "wiped", "gap_ms"), ORDERS[::9])
def test_no_acknowledged_record_is_lost(
    deaths: tuple[int, ...], starts: tuple[int, ...], wiped: int, gap_ms: int
) -> None:
    cluster = three_nodes(sum(starts[:2]))
    fill(cluster)
    for node_id in deaths:
        cluster.kill(node_id)
    wipe(cluster, wiped)
    for node_id in starts:
        cluster.launch(node_id)
        cluster.world.run_for(gap_ms)
    cluster.until(lambda: cluster.ready == set(NODES))
    for partition in PARTITIONS:
        assert read_all(cluster, partition) == RECORDS
