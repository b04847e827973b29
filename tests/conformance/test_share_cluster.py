"""Share consumers and leaders that move, with three brokers of Barnabas and Apache Kafka."""

from __future__ import annotations

import pytest

from barnabas.client.facade import Client
from barnabas.client.topic_partition import TopicPartition
from barnabas.protocol.errors import ErrorCode
from barnabas.testing.cluster_process import ClusterProcess
from conformance.leader_moves import move_leaders
from conformance.share_groups import ShareGroup, read

pytestmark = pytest.mark.conformance

PARTITIONS = 3


def test_records_follow_their_leaders(three_brokers: ClusterProcess) -> None:
    group = ShareGroup(three_brokers.bootstrap, PARTITIONS, replicas=3)
    partitions = [TopicPartition(group.topic, number) for number in range(PARTITIONS)]
    for tp in partitions:
        group.produce(b"a", partition=tp.partition)
    with (
        group.consumer(is_explicit=True) as consumer,
        Client(three_brokers.bootstrap) as client,
    ):
        records = []
        while len(records) < PARTITIONS:
            records += read(consumer, 1, consumer.acknowledge)
        # The acknowledgements of the last poll are not sent yet. The former leaders refuse them:
        # in Apache Kafka, they have dropped the share partition, or know that they do not lead.
        move_leaders(client, partitions)
        results = consumer.commit_sync()
        refused = {tp.partition: error.error_code for tp, error in results.items() if error}
        assert set(refused.values()) <= {
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        }
        for tp in partitions:
            group.produce(b"b", partition=tp.partition)
        found: dict[bytes, set[int]] = {b"a": set(), b"b": set()}
        while len(found[b"b"]) < PARTITIONS:
            for record in read(consumer, 1, consumer.acknowledge):
                found[record.value].add(record.partition)
        # Nothing is lost, and only released records are delivered again.
        assert found[b"a"] == set(refused)
