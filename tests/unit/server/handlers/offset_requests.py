"""A simulated broker with groups, and requests for committed offsets."""

from __future__ import annotations

from barnabas.protocol.messages.committed_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
)
from barnabas.protocol.messages.metadata import FindCoordinatorRequest
from unit.server.simulated_broker import SimulatedBroker


def broker_with_groups(**settings: str) -> SimulatedBroker:
    broker = SimulatedBroker(offsets_topic_num_partitions="5", **settings)
    request = FindCoordinatorRequest(key="g")
    for _ in range(100):
        if broker.ask(request, 1).error_code == 0:
            break
        broker.world.run_for(10)
    broker.world.run_for(100)
    return broker


def commit(broker: SimulatedBroker, offset: int) -> int:
    partition = OffsetCommitRequestPartition(
        partition_index=0, committed_offset=offset, committed_metadata=None
    )
    topics = [OffsetCommitRequestTopic(name="t", partitions=[partition])]
    response = broker.ask(OffsetCommitRequest(group_id="g", topics=topics), 7)
    error: int = response.topics[0].partitions[0].error_code
    return error


def committed(broker: SimulatedBroker) -> int:
    topics = [OffsetFetchRequestTopic(name="t", partition_indexes=[0])]
    response = broker.ask(OffsetFetchRequest(group_id="g", topics=topics), 5)
    assert response.error_code == 0
    offset: int = response.topics[0].partitions[0].committed_offset
    return offset
