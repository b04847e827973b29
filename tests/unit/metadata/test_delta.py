"""Records change the image; unchanged parts are shared."""

from __future__ import annotations

import pytest

from barnabas.metadata.configs_image import BROKER, TOPIC
from barnabas.metadata.image import ClusterDelta, Provenance
from barnabas.metadata.partition_registration import DIRECTORY_MIGRATING
from barnabas.metadata.topics import MetadataReplayError
from barnabas.protocol.records.metadata_log import NoOpRecord
from barnabas.protocol.records.nodes import (
    BrokerRegistrationChangeRecord,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
)
from barnabas.protocol.records.security import ClientQuotaRecord, EntityData
from barnabas.protocol.records.topics import (
    ClearElrRecord,
    PartitionChangeRecord,
    RemoveTopicRecord,
)
from unit.metadata.clusters import (
    broker,
    config,
    feature,
    image_of,
    partition,
    three_brokers,
    topic,
    topic_id,
)


def test_a_topic_is_found_by_name_and_by_id() -> None:
    image = three_brokers(topic("a", 1), partition(1))
    found = image.topics.by_name("a")
    assert found is not None
    assert image.topics.by_id(topic_id(1)) is found
    assert image.topics.partition_count == 1
    assert image.topics.by_name("b") is None


def test_unchanged_parts_are_the_same_objects() -> None:
    before = three_brokers(topic("a", 1), partition(1))
    after = image_of(config(TOPIC, "a", "retention.ms", "1"), base=before)
    assert after.topics is before.topics
    assert after.brokers is before.brokers
    assert after.features is before.features


def test_a_partition_change_keeps_fields_that_it_does_not_contain() -> None:
    before = three_brokers(topic("a", 1), partition(1, 0, (1, 2, 3)))
    change = PartitionChangeRecord(partition_id=0, topic_id=topic_id(1), isr=[1, 2])
    after = image_of(change, base=before).topics.partition("a", 0)
    assert after is not None
    assert (after.isr, after.replicas) == ((1, 2), (1, 2, 3))
    assert (after.leader, after.leader_epoch, after.partition_epoch) == (1, 0, 1)


def test_a_leader_in_a_partition_change_starts_a_leader_epoch() -> None:
    before = three_brokers(topic("a", 1), partition(1, 0, (1, 2)))
    for leader in (2, 1, -1):
        change = PartitionChangeRecord(partition_id=0, topic_id=topic_id(1), leader=leader)
        after = image_of(change, base=before).topics.partition("a", 0)
        assert after is not None
        assert (after.leader, after.leader_epoch) == (leader, 1)


def test_a_partition_without_directories_is_migrating() -> None:
    record = partition(1)
    record.directories = []
    image = three_brokers(topic("a", 1), record)
    found = image.topics.partition("a", 0)
    assert found is not None
    assert found.directories == (DIRECTORY_MIGRATING,)


def test_a_removed_topic_removes_its_configs() -> None:
    before = three_brokers(topic("a", 1), partition(1), config(TOPIC, "a", "retention.ms", "1"))
    delta = ClusterDelta(before)
    delta.replay(RemoveTopicRecord(topic_id=topic_id(1)))
    after = delta.apply(Provenance())
    assert after.topics.by_name("a") is None
    assert after.topics.partition_count == 0
    assert not after.configs.get(TOPIC, "a")
    assert delta.config_changes == {(TOPIC, "a"): {"retention.ms": None}}


def test_a_topic_recreated_in_one_delta_is_deleted_and_created() -> None:
    delta = ClusterDelta(three_brokers(topic("a", 1), partition(1)))
    for record in (RemoveTopicRecord(topic_id=topic_id(1)), topic("a", 2), partition(2)):
        delta.replay(record)
    after = delta.apply(Provenance())
    found = after.topics.by_name("a")
    assert found is not None
    assert found.id == topic_id(2)
    assert after.topics.by_id(topic_id(1)) is None
    assert list(delta.topics_delta.deleted) == [topic_id(1)]
    assert delta.topics_delta.created == {"a": topic_id(2)}
    assert len(after.topics) == 1


def test_a_topic_created_and_removed_in_one_delta_leaves_no_change() -> None:
    delta = ClusterDelta(three_brokers())
    for record in (topic("a", 1), partition(1), RemoveTopicRecord(topic_id=topic_id(1))):
        delta.replay(record)
    assert not delta.topics_delta.changed
    assert not delta.topics_delta.deleted
    assert len(delta.apply(Provenance()).topics) == 0


def test_local_changes_list_partitions_to_lead_to_follow_and_to_delete() -> None:
    before = three_brokers(
        topic("gone", 1), partition(1, 0, (1, 2)),
        topic("moved", 2), partition(2, 0, (1, 2)),
        topic("kept", 3), partition(3, 0, (1, 2)),
    )  # fmt: skip
    delta = ClusterDelta(before)
    for record in (
        RemoveTopicRecord(topic_id=topic_id(1)),
        PartitionChangeRecord(
            partition_id=0, topic_id=topic_id(2), replicas=[2, 3], isr=[2], leader=2
        ),
        PartitionChangeRecord(partition_id=0, topic_id=topic_id(3), leader=2),
        topic("new", 4),
        partition(4, 0, (1, 3)),
    ):
        delta.replay(record)
    local = delta.topics_delta.local_changes(1)
    assert [(d.topic, d.topic_deleted) for d in local.deletes] == [("gone", True), ("moved", False)]
    assert [each.topic for each in local.leaders] == ["new"]
    assert [each.topic for each in local.followers] == ["kept"]


def test_a_change_of_a_partition_that_does_not_exist_is_an_error() -> None:
    delta = ClusterDelta(three_brokers(topic("a", 1), partition(1)))
    with pytest.raises(MetadataReplayError):
        delta.replay(PartitionChangeRecord(partition_id=7, topic_id=topic_id(1), leader=1))
    with pytest.raises(MetadataReplayError):
        delta.replay(partition(9))


def test_brokers_are_fenced_unfenced_shut_down_and_unregistered() -> None:
    image = image_of(feature(), broker(1, fenced=True))
    image = image_of(UnfenceBrokerRecord(id=1, epoch=5), base=image)
    assert not image.brokers[1].fenced
    image = image_of(
        BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=5, in_controlled_shutdown=1),
        base=image,
    )
    assert image.brokers[1].in_controlled_shutdown
    image = image_of(
        BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=5, fenced=1), base=image
    )
    assert image.brokers[1].fenced
    image = image_of(UnregisterBrokerRecord(broker_id=1, broker_epoch=5), base=image)
    assert 1 not in image.brokers


def test_a_record_with_an_earlier_broker_epoch_is_an_error() -> None:
    delta = ClusterDelta(image_of(broker(1, epoch=7)))
    with pytest.raises(MetadataReplayError):
        delta.replay(UnfenceBrokerRecord(id=1, epoch=6))


def test_configs_are_set_overwritten_and_removed() -> None:
    image = image_of(config(BROKER, "", "a", "1"), config(BROKER, "", "b", "2"))
    image = image_of(config(BROKER, "", "a", None), config(BROKER, "", "b", "3"), base=image)
    assert dict(image.configs.get(BROKER, "")) == {"b": "3"}
    image = image_of(config(BROKER, "", "b", None), base=image)
    assert list(image.configs) == []


def test_a_feature_at_level_zero_is_removed() -> None:
    image = image_of(feature("x", 1), feature("x", 0))
    assert image.features.finalized == {}


def test_records_without_effect_are_accepted() -> None:
    delta = ClusterDelta(three_brokers())
    delta.replay(NoOpRecord())
    assert delta.is_empty


def test_a_quota_is_kept_until_it_is_removed() -> None:
    def quota(remove: bool) -> ClientQuotaRecord:
        entity = [EntityData(entity_type="user", entity_name="u")]
        return ClientQuotaRecord(entity=entity, key="k", value=1.0, remove=remove)

    image = image_of(quota(False))
    assert len(image.client_quotas) == 1
    assert len(image_of(quota(True), base=image).client_quotas) == 0


def test_eligible_leader_replicas_are_cleared_for_one_topic_or_all() -> None:
    elr = [
        PartitionChangeRecord(
            partition_id=0, topic_id=topic_id(n), isr=[1], eligible_leader_replicas=[2]
        )
        for n in (1, 2)
    ]
    image = three_brokers(
        topic("a", 1), partition(1, 0, (1, 2)), topic("b", 2), partition(2, 0, (1, 2)), *elr
    )
    one = image_of(ClearElrRecord(topic_name="a"), base=image).topics
    found = [one.partition(name, 0) for name in "ab"]
    assert [each.elr for each in found if each] == [(), (2,)]
    both = image_of(ClearElrRecord(topic_name=""), base=image).topics
    assert [each.elr for each in (both.partition("a", 0), both.partition("b", 0)) if each] == [
        (),
        (),
    ]


def test_a_snapshot_removes_objects_that_it_does_not_contain() -> None:
    old = three_brokers(
        topic("a", 1), partition(1), topic("b", 2), partition(2), config(TOPIC, "a", "x", "1")
    )
    new = three_brokers(topic("b", 2), partition(2), topic("c", 3), partition(3))
    delta = ClusterDelta(old)
    for record, _ in new.to_records():
        delta.replay(record)
    delta.finish_snapshot()
    after = delta.apply(Provenance())
    assert sorted(after.topics.names()) == ["b", "c"]
    assert list(delta.topics_delta.deleted) == [topic_id(1)]
    assert [each.name for each in delta.topics_delta.changed.values()] == ["c"]
    assert list(after.configs) == []
    assert after.brokers == new.brokers
