"""The immutable state of the whole cluster at an offset of the metadata log (MetadataImage)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from barnabas.metadata.acls.acls_image import AclsImage
from barnabas.metadata.configs.configs_image import ClientQuotasImage, ConfigsImage
from barnabas.metadata.credentials import NO_TOKENS, RetainedRecords
from barnabas.metadata.metadata_version import (
    METADATA_VERSION,
    FeaturesImage,
    has_delegation_tokens,
)
from barnabas.metadata.topics import TopicsImage
from barnabas.protocol.records.nodes import FeatureLevelRecord, ProducerIdsRecord
from barnabas.protocol.records.topics import ConfigRecord, TopicRecord

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from barnabas.metadata.broker_registration import BrokerRegistration, ControllerRegistration
    from barnabas.metadata.credentials import Tokens
    from barnabas.protocol.schema import Record


class Provenance(NamedTuple):
    """Offset, epoch and time of the last record in an image; all -1 for the empty image."""

    offset: int = -1
    epoch: int = -1
    # Append time of that record's batch, ms.
    timestamp: int = -1


BEFORE_ALL_RECORDS = Provenance()


NO_PRODUCER_ID = -1


class ClusterImage(msgspec.Struct, frozen=True):
    """The state of the cluster. Consecutive images share the parts that did not change."""

    provenance: Provenance = BEFORE_ALL_RECORDS
    features: FeaturesImage = msgspec.field(default_factory=FeaturesImage)
    # Registrations by broker id. Callers must not change the mapping.
    brokers: Mapping[int, BrokerRegistration] = msgspec.field(default_factory=dict)
    # Registrations by controller id. Callers must not change the mapping.
    controllers: Mapping[int, ControllerRegistration] = msgspec.field(default_factory=dict)
    topics: TopicsImage = msgspec.field(default_factory=TopicsImage)
    configs: ConfigsImage = msgspec.field(default_factory=ConfigsImage)
    client_quotas: ClientQuotasImage = msgspec.field(default_factory=ClientQuotasImage)
    acls: AclsImage = msgspec.field(default_factory=AclsImage)
    # First producer id of the next block (KIP-730); -1 before the first block.
    next_producer_id: int = NO_PRODUCER_ID
    retained: RetainedRecords = msgspec.field(default_factory=RetainedRecords)
    # Delegation tokens by token id. Callers must not change the records.
    tokens: Tokens = NO_TOKENS

    def to_records(self) -> Iterator[tuple[Record, int]]:
        """Yield the records of a snapshot, which create this image from an empty one."""
        yield from _feature_records(self.features)
        metadata_version = self.features.metadata_version
        for broker_id in sorted(self.brokers):
            yield self.brokers[broker_id].to_record(metadata_version)
        for controller_id in sorted(self.controllers):
            yield self.controllers[controller_id].to_record()
        for topic in self.topics:
            yield TopicRecord(name=topic.name, topic_id=topic.id), 0
            for partition in sorted(topic.partitions):
                yield topic.partitions[partition].to_record(topic.id, partition, metadata_version)
        for resource_type, name, configs in self.configs:
            for key, value in configs.items():
                yield _config_record(resource_type, name, key, value), 0
        yield from self.client_quotas.to_records()
        yield from self.acls.to_records()
        if self.next_producer_id >= 0:
            yield (
                ProducerIdsRecord(
                    broker_id=-1, broker_epoch=-1, next_producer_id=self.next_producer_id
                ),
                0,
            )
        yield from self.retained
        if has_delegation_tokens(metadata_version):
            for token_id in sorted(self.tokens):
                yield self.tokens[token_id], 0


def _feature_records(features: FeaturesImage) -> Iterator[tuple[Record, int]]:
    # metadata.version comes first, because it determines how later records are read.
    for name in sorted(features.finalized, key=lambda name: (name != METADATA_VERSION, name)):
        yield FeatureLevelRecord(name=name, feature_level=features.finalized[name]), 0


def _config_record(resource_type: int, name: str, key: str, value: str) -> ConfigRecord:
    return ConfigRecord(resource_type=resource_type, resource_name=name, name=key, value=value)
