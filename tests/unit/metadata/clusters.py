"""Records of small clusters, for tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.metadata.image import ClusterDelta, ClusterImage, Provenance
from barnabas.protocol.records.nodes import (
    BrokerEndpoint,
    BrokerFeature,
    FeatureLevelRecord,
    RegisterBrokerRecord,
)
from barnabas.protocol.records.topics import ConfigRecord, PartitionRecord, TopicRecord

if TYPE_CHECKING:
    from collections.abc import Sequence

    from barnabas.protocol.schema import Record


def topic_id(number: int) -> bytes:
    return bytes(8) + number.to_bytes(8, "big")


def directory(broker_id: int) -> bytes:
    return bytes(12) + b"dir" + bytes([broker_id])


def feature(name: str = "metadata.version", level: int = 33) -> FeatureLevelRecord:
    return FeatureLevelRecord(name=name, feature_level=level)


def broker(broker_id: int, epoch: int = 5, fenced: bool = False) -> RegisterBrokerRecord:
    return RegisterBrokerRecord(
        broker_id=broker_id,
        incarnation_id=bytes(15) + bytes([broker_id]),
        broker_epoch=epoch,
        end_points=[
            BrokerEndpoint(name="PLAINTEXT", host="h", port=9000 + broker_id, security_protocol=0)
        ],
        features=[
            BrokerFeature(
                name="metadata.version", min_supported_version=7, max_supported_version=33
            )
        ],
        rack=None,
        fenced=fenced,
        log_dirs=[directory(broker_id)],
    )


def topic(name: str, number: int) -> TopicRecord:
    return TopicRecord(name=name, topic_id=topic_id(number))


def partition(
    number: int, index: int = 0, replicas: Sequence[int] = (1,), leader: int | None = None
) -> PartitionRecord:
    return PartitionRecord(
        partition_id=index,
        topic_id=topic_id(number),
        replicas=list(replicas),
        isr=list(replicas),
        removing_replicas=[],
        adding_replicas=[],
        leader=replicas[0] if leader is None else leader,
        leader_epoch=0,
        partition_epoch=0,
        directories=[directory(each) for each in replicas],
    )


def config(kind: int, name: str, key: str, value: str | None) -> ConfigRecord:
    return ConfigRecord(resource_type=kind, resource_name=name, name=key, value=value)


def image_of(*records: Record, base: ClusterImage | None = None) -> ClusterImage:
    delta = ClusterDelta(base or ClusterImage())
    for record in records:
        delta.replay(record)
    return delta.apply(Provenance(len(records) - 1, 1, 1000))


def three_brokers(*records: Record, elr: bool = True) -> ClusterImage:
    return image_of(
        feature(),
        *([feature("eligible.leader.replicas.version", 1)] if elr else []),
        broker(1),
        broker(2),
        broker(3),
        *records,
    )
