"""Move the leaders of partitions away from a broker."""

from __future__ import annotations

from barnabas.client.admin.partitions import ElectionType
from barnabas.client.facade import Client
from barnabas.client.topic_partition import TopicPartition
from waiting import eventually


def leaders(client: Client, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
    topic = client.describe_topics([partitions[0].topic])[partitions[0].topic]
    return {tp: topic.partitions[tp.partition].leader for tp in partitions}


def move_leaders(client: Client, partitions: list[TopicPartition]) -> None:
    """Make the next replica of each partition its leader."""
    topic = client.describe_topics([partitions[0].topic])[partitions[0].topic]
    targets = {}
    for tp in partitions:
        state = topic.partitions[tp.partition]
        behind = state.replicas.index(state.leader) + 1
        targets[tp] = [*state.replicas[behind:], *state.replicas[:behind]]
    set_replica_order(client, targets)


def set_replica_order(client: Client, replicas: dict[TopicPartition, list[int]]) -> None:
    """Set the order of the replicas of each partition, and make the first replica the leader."""
    assert not any(client.admin.alter_reassignments(replicas).values())
    partitions = list(replicas)
    preferred = {tp: order[0] for tp, order in replicas.items()}

    def are_leading() -> bool:
        client.admin.elect_leaders(ElectionType.PREFERRED, partitions, raise_errors=False)
        return leaders(client, partitions) == preferred

    eventually(are_leading, lambda: leaders(client, partitions))
    # A new leader responds once it has a high watermark. Until then it refuses to delete records.
    client.list_offsets(dict.fromkeys(partitions, "latest"))
