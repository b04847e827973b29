"""An image is converted to records, and the records to the same image."""

from __future__ import annotations

from barnabas.metadata.configs_image import BROKER, TOPIC
from barnabas.metadata.image import ClusterImage
from barnabas.protocol.codec import decode, encode_bytes
from barnabas.protocol.record_frame import decode_metadata_record, encode_metadata_record
from barnabas.protocol.records.nodes import ProducerIdsRecord, RegisterControllerRecord
from barnabas.protocol.records.security import (
    AccessControlEntryRecord,
    ClientQuotaRecord,
    EntityData,
)
from barnabas.protocol.records.topics import PartitionChangeRecord
from unit.metadata.clusters import broker, config, feature, image_of, partition, topic, topic_id


def everything() -> ClusterImage:
    return image_of(
        feature(),
        feature("eligible.leader.replicas.version", 1),
        broker(1),
        broker(2, fenced=True),
        RegisterControllerRecord(
            controller_id=1,
            incarnation_id=bytes(16),
            zk_migration_ready=False,
            end_points=[],
            features=[],
        ),
        topic("a", 1),
        partition(1, 0, (1, 2)),
        partition(1, 1, (2, 1)),
        topic("b", 2),
        partition(2),
        PartitionChangeRecord(
            partition_id=0,
            topic_id=topic_id(2),
            isr=[],
            leader=-1,
            eligible_leader_replicas=[1],
            last_known_elr=[1],
        ),
        config(TOPIC, "a", "retention.ms", "5"),
        config(BROKER, "", "min.insync.replicas", "1"),
        ProducerIdsRecord(broker_id=1, broker_epoch=5, next_producer_id=1000),
        AccessControlEntryRecord(
            id=topic_id(9),
            resource_type=2,
            resource_name="a",
            pattern_type=3,
            principal="User:x",
            host="*",
            operation=3,
            permission_type=3,
        ),
        ClientQuotaRecord(
            entity=[EntityData(entity_type="user", entity_name=None)],
            key="producer_byte_rate",
            value=1.5,
            remove=False,
        ),
    )


def flattened(image: ClusterImage) -> list[tuple[str, bytes]]:
    return [
        (type(record).__name__, encode_metadata_record(record, version))
        for record, version in image.to_records()
    ]


def test_an_image_survives_a_round_trip_through_its_records() -> None:
    image = everything()
    decoded = [
        decode_metadata_record(encode_metadata_record(record, version))[0]
        for record, version in image.to_records()
    ]
    again = image_of(*decoded)
    assert flattened(again) == flattened(image)
    assert again.brokers == image.brokers
    assert again.controllers == image.controllers
    assert {t.name: t for t in again.topics} == {t.name: t for t in image.topics}
    assert again.next_producer_id == 1000


def test_a_snapshot_begins_with_the_metadata_version() -> None:
    record, version = next(iter(everything().to_records()))
    assert (type(record).__name__, version) == ("FeatureLevelRecord", 0)
    assert getattr(record, "name", None) == "metadata.version"


def test_records_have_the_version_of_the_metadata_version() -> None:
    def versions(level: int) -> dict[str, int]:
        image = image_of(feature(level=level), broker(1), topic("a", 1), partition(1))
        return {type(record).__name__: version for record, version in image.to_records()}

    assert versions(33)["PartitionRecord"] == 2
    assert versions(33)["RegisterBrokerRecord"] == 4
    assert versions(17)["PartitionRecord"] == 1
    assert versions(17)["RegisterBrokerRecord"] == 3
    assert versions(7)["PartitionRecord"] == 0
    assert versions(7)["RegisterBrokerRecord"] == 1


def test_a_partition_record_can_be_written_at_each_of_its_versions() -> None:
    for level in (7, 17, 33):
        image = image_of(feature(level=level), broker(1), topic("a", 1), partition(1))
        for record, version in image.to_records():
            assert decode(type(record), version, encode_bytes(record, version)) is not None
