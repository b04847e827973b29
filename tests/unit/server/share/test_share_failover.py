"""Share state in a cluster: the persister of any broker finds the coordinator, also a new one."""

from __future__ import annotations

from typing import Any

from barnabas.coordinator.share import state_api
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import (
    initialize_share_group_state as initialize,
    read_share_group_state as read,
    write_share_group_state as write,
)
from barnabas.protocol.messages.topics import CreatableTopic, CreateTopicsRequest
from unit.server.simulated_cluster import SimulatedCluster

GROUP, TOPIC, STATE_TOPIC = "g", "t", "__share_group_state"
PARTITIONS = range(4)
SETTINGS = {
    "share_coordinator_state_topic_num_partitions": "2",
    "share_coordinator_state_topic_replication_factor": "3",
    "share_coordinator_state_topic_min_isr": "2",
    "share_coordinator_snapshot_update_records_per_snapshot": "2",
    "broker_session_timeout_ms": "3000",
}


def made_topic(cluster: SimulatedCluster) -> bytes:
    """Create the topic of the share partitions; return its id."""
    topic = CreatableTopic(
        name=TOPIC, num_partitions=len(PARTITIONS), replication_factor=3, assignments=[], configs=[]
    )
    request = CreateTopicsRequest(topics=[topic], timeout_ms=10_000, validate_only=False)
    (created,) = cluster.ask(1, request, 7).topics
    assert created.error_code == ErrorCode.NONE, created
    topic_id: bytes = created.topic_id
    cluster.until(lambda: all(cluster.image(each).topics.by_id(topic_id) for each in cluster.ready))
    return topic_id


def call(
    cluster: SimulatedCluster, node_id: int, method: str, topic_id: bytes, partitions: list[Any]
) -> list[Any]:
    """Call the persister of a broker; return the results of the partitions."""
    found: list[Any] = []
    broker = cluster.nodes[node_id].broker
    assert broker is not None
    api = getattr(state_api, method.upper())
    request = api.make_request(GROUP, {topic_id: partitions})
    getattr(broker.persister, method)(request, found.append)
    cluster.until(lambda: bool(found))
    (topic,) = found[0].results
    results: list[Any] = topic.partitions
    assert {each.error_code for each in results} == {ErrorCode.NONE}, results
    return results


def write_at(cluster: SimulatedCluster, node_id: int, topic_id: bytes, offset: int) -> None:
    batch = write.StateBatch(
        first_offset=offset, last_offset=offset, delivery_state=2, delivery_count=1
    )
    data = [
        write.PartitionData(
            partition=each, state_epoch=0, leader_epoch=0, start_offset=0, state_batches=[batch]
        )
        for each in PARTITIONS
    ]
    call(cluster, node_id, "write", topic_id, data)


def offsets(cluster: SimulatedCluster, node_id: int, topic_id: bytes) -> list[list[int]]:
    """The first offsets of the state batches of each share partition."""
    data = [read.PartitionData(partition=each, leader_epoch=0) for each in PARTITIONS]
    results = call(cluster, node_id, "read", topic_id, data)
    return [[batch.first_offset for batch in each.state_batches] for each in results]


def test_state_survives_the_deaths_of_coordinators() -> None:
    cluster = SimulatedCluster(dict.fromkeys((1, 2, 3), "broker,controller"), **SETTINGS).start()
    topic_id = made_topic(cluster)
    data = [
        initialize.PartitionData(partition=each, state_epoch=0, start_offset=0)
        for each in PARTITIONS
    ]
    # The first call creates the state topic.
    call(cluster, 1, "initialize", topic_id, data)
    expected = []
    for number, writer in enumerate((1, 2, 3, 1)):
        write_at(cluster, writer, topic_id, 10 * number)
        expected.append(10 * number)
    for reader in (1, 2, 3):
        assert offsets(cluster, reader, topic_id) == [expected] * len(PARTITIONS)
    # Kill the coordinator of some share partitions, twice.
    for round_number in (1, 2):
        state_topic = cluster.image(min(cluster.ready)).topics.by_name(STATE_TOPIC)
        victim = state_topic.partitions[0].leader
        cluster.kill(victim)
        survivor = min(cluster.ready)
        offset = 100 * round_number
        write_at(cluster, survivor, topic_id, offset)
        expected.append(offset)
        assert offsets(cluster, survivor, topic_id) == [expected] * len(PARTITIONS)
        cluster.launch(victim)
        cluster.until(lambda: len(cluster.ready) == 3)
        assert offsets(cluster, victim, topic_id) == [expected] * len(PARTITIONS)
