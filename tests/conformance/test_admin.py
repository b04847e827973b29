"""Topics and configs through librdkafka's admin client."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

from conformance.conftest import await_leaders
from waiting import eventually, eventually_equal

if TYPE_CHECKING:
    from collections.abc import Callable

WAIT_S = 60.0


def topic_config(admin: AdminClient, topic: str) -> dict[str, ConfigEntry]:
    resource = ConfigResource(ResourceType.TOPIC, topic)
    return admin.describe_configs([resource])[resource].result(WAIT_S)


def code_of(raised: pytest.ExceptionInfo[KafkaException]) -> int:
    return raised.value.args[0].code()


def partition_count(admin: AdminClient, topic: str) -> int:
    return len(admin.list_topics(topic, WAIT_S).topics[topic].partitions)


def test_topics_are_created_with_partitions_and_configs(
    admin: AdminClient, make_topic: Callable[..., str]
) -> None:
    topic = make_topic(3, retention_ms="1234567")
    assert partition_count(admin, topic) == 3
    assert topic_config(admin, topic)["retention.ms"].value == "1234567"


def test_a_topic_is_created_once(admin: AdminClient, topic: str) -> None:
    with pytest.raises(KafkaException) as raised:
        admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(WAIT_S)
    assert code_of(raised) == KafkaError.TOPIC_ALREADY_EXISTS


@pytest.mark.parametrize(
    ("new", "code"),
    [
        (NewTopic("bad/name", 1, 1), KafkaError.TOPIC_EXCEPTION),
        (NewTopic("ok-name-1", 0, 1), KafkaError.INVALID_PARTITIONS),
        (NewTopic("ok-name-2", 1, 9), KafkaError.INVALID_REPLICATION_FACTOR),
        (NewTopic("ok-name-3", 1, 1, config={"retention.ms": "x"}), KafkaError.INVALID_CONFIG),
        (NewTopic("ok-name-4", 1, 1, config={"no.such": "1"}), KafkaError.INVALID_CONFIG),
    ],
)
def test_an_invalid_topic_is_refused(admin: AdminClient, new: NewTopic, code: int) -> None:
    with pytest.raises(KafkaException) as raised:
        admin.create_topics([new])[new.topic].result(WAIT_S)
    assert code_of(raised) == code


def test_validate_only_creates_nothing(admin: AdminClient) -> None:
    admin.create_topics([NewTopic("only-checked", 1, 1)], validate_only=True)[
        "only-checked"
    ].result(WAIT_S)
    assert "only-checked" not in admin.list_topics(timeout=WAIT_S).topics


def test_the_name_of_a_deleted_topic_can_be_used_again(admin: AdminClient, topic: str) -> None:
    admin.delete_topics([topic])[topic].result(WAIT_S)
    eventually(lambda: topic not in admin.list_topics(timeout=WAIT_S).topics)
    admin.create_topics([NewTopic(topic, 2, 1)])[topic].result(WAIT_S)
    await_leaders(admin, topic, 2)


def test_deleting_an_unknown_topic_is_refused(admin: AdminClient) -> None:
    with pytest.raises(KafkaException) as raised:
        admin.delete_topics(["no-such-topic"])["no-such-topic"].result(WAIT_S)
    assert code_of(raised) == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_partitions_can_be_added_but_not_removed(admin: AdminClient, topic: str) -> None:
    admin.create_partitions([NewPartitions(topic, 4)])[topic].result(WAIT_S)
    await_leaders(admin, topic, 4)
    with pytest.raises(KafkaException) as raised:
        admin.create_partitions([NewPartitions(topic, 2)])[topic].result(WAIT_S)
    assert code_of(raised) == KafkaError.INVALID_PARTITIONS


def test_configs_are_set_and_unset(admin: AdminClient, topic: str) -> None:
    def alter(operation: AlterConfigOpType, name: str, value: str | None) -> None:
        entry = ConfigEntry(name, value, incremental_operation=operation)
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
        admin.incremental_alter_configs([resource])[resource].result(WAIT_S)

    def retention() -> tuple[str, bool]:
        entry = topic_config(admin, topic)["retention.ms"]
        return entry.value, entry.is_default

    default = retention()
    assert default[1]
    alter(AlterConfigOpType.SET, "retention.ms", "60000")
    eventually_equal(retention, ("60000", False))
    alter(AlterConfigOpType.DELETE, "retention.ms", None)
    eventually_equal(retention, default)
    with pytest.raises(KafkaException) as raised:
        alter(AlterConfigOpType.SET, "retention.ms", "soon")
    assert code_of(raised) == KafkaError.INVALID_CONFIG


def test_the_defaults_of_a_topic_equal_kafkas(admin: AdminClient, topic: str) -> None:
    found = topic_config(admin, topic)
    expected = {
        "cleanup.policy": "delete",
        "compression.type": "producer",
        "delete.retention.ms": "86400000",
        "file.delete.delay.ms": "60000",
        "flush.messages": "9223372036854775807",
        "flush.ms": "9223372036854775807",
        "index.interval.bytes": "4096",
        "max.message.bytes": "1048588",
        "message.timestamp.type": "CreateTime",
        "message.timestamp.after.max.ms": "3600000",
        "min.cleanable.dirty.ratio": "0.5",
        "retention.bytes": "-1",
        "retention.ms": "604800000",
        "segment.bytes": "1073741824",
        "segment.index.bytes": "10485760",
        "segment.jitter.ms": "0",
        "segment.ms": "604800000",
        "unclean.leader.election.enable": "false",
    }
    assert {name: found[name].value for name in expected} == expected


def test_configs_of_an_unknown_topic_are_refused(admin: AdminClient) -> None:
    with pytest.raises(KafkaException) as raised:
        topic_config(admin, "no-such-topic")
    assert code_of(raised) == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_the_brokers_configs_are_described(admin: AdminClient) -> None:
    (broker_id,) = admin.list_topics(timeout=WAIT_S).brokers
    resource = ConfigResource(ResourceType.BROKER, str(broker_id))
    found = admin.describe_configs([resource])[resource].result(WAIT_S)
    assert found["log.retention.hours"].value == "168"
    assert found["node.id"].is_read_only
    assert found["message.max.bytes"].value == "1048588"


def test_the_cluster_is_described(admin: AdminClient) -> None:
    described = admin.describe_cluster().result(WAIT_S)
    assert described.cluster_id
    assert [node.id for node in described.nodes] == list(admin.list_topics(timeout=WAIT_S).brokers)


def test_topics_are_described_with_their_ids(admin: AdminClient, topic: str) -> None:
    from confluent_kafka import TopicCollection

    described = admin.describe_topics(TopicCollection([topic]))[topic].result(WAIT_S)
    assert described.name == topic
    assert [partition.id for partition in described.partitions] == [0]
    assert described.partitions[0].leader.id == described.partitions[0].isr[0].id
