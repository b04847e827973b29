"""Metadata that cannot be applied to one partition takes this partition offline, and no other."""

from __future__ import annotations

import pytest

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.records.topics import (
    ConfigRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from barnabas.storage.errors import KafkaStorageError
from barnabas.storage.topic_partition import TopicPartition
from unit.replication.replica_set import LEADER, TOPIC, TOPIC_ID, ReplicaSet

NOT_FORESEEN = RuntimeError("not foreseen")


def key(partition: int) -> TopicPartition:
    return TopicPartition(TOPIC, partition)


def made(partition: int, leader: int = LEADER) -> PartitionRecord:
    return PartitionRecord(
        partition_id=partition,
        topic_id=TOPIC_ID,
        replicas=[1, 2],
        isr=[1, 2],
        removing_replicas=[],
        adding_replicas=[],
        leader=leader,
        leader_epoch=0,
        partition_epoch=0,
        directories=[],
    )


def changed(partition: int, leader: int) -> PartitionChangeRecord:
    return PartitionChangeRecord(partition_id=partition, topic_id=TOPIC_ID, leader=leader)


@pytest.fixture
def replicas() -> ReplicaSet:
    return ReplicaSet((1, 2))


def assert_offline_alone(replicas: ReplicaSet, failed: TopicPartition) -> None:
    manager = replicas.manager
    assert manager.offline_partitions == {failed}
    assert manager.partition(failed) is ErrorCode.KAFKA_STORAGE_ERROR
    assert replicas.changes.failed == [failed]
    assert manager.metrics.metadata_apply_errors == 1


@pytest.mark.parametrize("error", [NOT_FORESEEN, KafkaStorageError("no disk")])
@pytest.mark.parametrize("leader", [1, 2])
def test_a_log_that_cannot_be_opened_takes_only_its_partition_offline(
    replicas: ReplicaSet, leader: int, error: Exception
) -> None:
    replicas.logs.broken[key(2)] = error
    replicas.replay(*(made(each, leader) for each in (1, 2, 3)))
    assert_offline_alone(replicas, key(2))
    for each in (1, 3):
        partition = replicas.manager.partition(key(each))
        assert (partition.leader_id, partition.leader_epoch) == (leader, 0)


class RaisingEpochs:
    """An epoch listener that raises an error."""

    def announce(self, *_: object) -> None:
        raise NOT_FORESEEN


class RaisingLog:
    """A log that cannot start an epoch."""

    log_end_offset = high_watermark = 0
    leader_epochs = RaisingEpochs()


def test_a_partition_that_cannot_become_leader_goes_offline(replicas: ReplicaSet, caplog) -> None:
    replicas.replay(*(made(each, 2) for each in (1, 2, 3)))
    replicas.manager.partition(key(2))._state.log = RaisingLog()
    replicas.replay(*(changed(each, LEADER) for each in (1, 2, 3)))
    assert_offline_alone(replicas, key(2))
    assert [each.topic_partition for each in replicas.changes.leaders] == [key(1), key(3)]
    assert all(replicas.manager.partition(key(each)).is_leader for each in (1, 3))
    assert "RuntimeError: not foreseen" in caplog.text
    assert f"partition={key(2)}" in caplog.text


def test_pending_requests_of_an_offline_partition_are_answered(replicas: ReplicaSet) -> None:
    """The error is KAFKA_STORAGE_ERROR, as for an offline directory."""
    replicas.produce(b"a", acks=-1, timeout_ms=10_000)
    assert replicas.answers.produced == []
    replicas.manager.partition(key(0))._state.log = RaisingLog()
    replicas.change(leader=LEADER)
    assert_offline_alone(replicas, key(0))
    assert replicas.last_produce().error is ErrorCode.KAFKA_STORAGE_ERROR


def test_a_log_that_cannot_be_deleted_affects_no_other_partition(replicas: ReplicaSet) -> None:
    """Other partitions and topics of the delta are applied; no request reads the log."""
    other_id = b"another-topic-id"
    replicas.replay(made(1), made(2))
    replicas.logs.broken[key(1)] = NOT_FORESEEN
    other = PartitionRecord(
        partition_id=0,
        topic_id=other_id,
        replicas=[1],
        isr=[1],
        removing_replicas=[],
        adding_replicas=[],
        leader=LEADER,
        leader_epoch=0,
        partition_epoch=0,
        directories=[],
    )
    replicas.replay(
        RemoveTopicRecord(topic_id=TOPIC_ID), TopicRecord(name="other", topic_id=other_id), other
    )
    assert sorted(replicas.logs.deleted) == [key(0), key(2)]
    assert replicas.changes.failed == [key(1)]
    assert replicas.manager.partition(key(1)) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert replicas.manager.partition(TopicPartition("other", 0)).is_leader


def test_the_next_metadata_leaves_a_failed_partition_offline(replicas: ReplicaSet) -> None:
    """Its log may be in an inconsistent state: only a restart of the broker opens it again."""
    replicas.logs.broken[key(1)] = NOT_FORESEEN
    replicas.replay(made(1))
    del replicas.logs.broken[key(1)]
    replicas.replay(changed(1, 2))
    assert replicas.manager.partition(key(1)) is ErrorCode.KAFKA_STORAGE_ERROR


def config(topic: str, name: str, value: str) -> ConfigRecord:
    return ConfigRecord(resource_type=2, resource_name=topic, name=name, value=value)


@pytest.mark.parametrize("value", ["a:b", "1", "1:", "1:2:3", "x"])
def test_an_invalid_list_of_throttled_replicas_affects_only_its_topic(
    replicas: ReplicaSet, value: str
) -> None:
    """The configuration of other topics is applied."""
    name = "leader.replication.throttled.replicas"
    replicas.replay(config("bad", name, value), config(TOPIC, name, "0:1"))
    throttle = replicas.manager.throttles.leader
    assert throttle.is_throttled(key(0))
    assert not throttle.is_throttled(TopicPartition("bad", 0))


def test_an_invalid_topic_config_affects_only_its_topic(replicas: ReplicaSet) -> None:
    replicas.logs.broken["bad"] = NOT_FORESEEN
    name = "leader.replication.throttled.replicas"
    replicas.replay(config("bad", "retention.ms", "1"), config(TOPIC, name, "*"))
    assert replicas.manager.throttles.leader.is_throttled(key(0))
    assert replicas.manager.metrics.metadata_apply_errors == 1
