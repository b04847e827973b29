"""The immutable state of the cluster at an offset of the metadata log, and changes of it.

They are Kafka's MetadataImage and MetadataDelta. A delta collects changes record by record.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import msgspec

from barnabas.metadata.acls import Acl, AclsImage
from barnabas.metadata.broker_registration import BrokerRegistration, ControllerRegistration
from barnabas.metadata.configs_image import (
    TOPIC,
    ClientQuotasImage,
    ConfigChanges,
    ConfigsImage,
    QuotaChanges,
    entity_of,
)
from barnabas.metadata.credentials import (
    NO_CREDENTIALS,
    NO_TOKENS,
    credential_key,
)
from barnabas.metadata.metadata_version import (
    METADATA_VERSION,
    FeaturesImage,
    has_delegation_tokens,
)
from barnabas.metadata.partition_registration import NO_LEADER
from barnabas.metadata.topics import MetadataReplayError, TopicsDelta, TopicsImage
from barnabas.protocol.records.nodes import FeatureLevelRecord, ProducerIdsRecord
from barnabas.protocol.records.topics import ConfigRecord, TopicRecord

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from barnabas.metadata.acls import AclChanges
    from barnabas.metadata.credentials import CredentialChanges, Credentials, TokenChanges, Tokens
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
    # SCRAM credentials by `credential_key`. Callers must not change the records.
    credentials: Credentials = NO_CREDENTIALS
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
        for key in sorted(self.credentials):
            yield self.credentials[key], 0
        if has_delegation_tokens(metadata_version):
            for token_id in sorted(self.tokens):
                yield self.tokens[token_id], 0


def _feature_records(features: FeaturesImage) -> Iterator[tuple[Record, int]]:
    # metadata.version comes first, because it determines how later records are read.
    for name in sorted(features.finalized, key=lambda name: (name != METADATA_VERSION, name)):
        yield FeatureLevelRecord(name=name, feature_level=features.finalized[name]), 0


def _config_record(resource_type: int, name: str, key: str, value: str) -> ConfigRecord:
    return ConfigRecord(resource_type=resource_type, resource_name=name, name=key, value=value)


class ClusterDelta:
    """Applies records in log order, and then creates the next image.

    The delta always shows the cluster as of the last applied record.
    """

    def __init__(self, image: ClusterImage) -> None:
        # The image before the changes; never changed itself.
        self.image = image
        self.topics_delta = TopicsDelta(image.topics)
        # New registration of each changed broker; None for a removed broker.
        self.broker_changes: dict[int, BrokerRegistration | None] = {}
        self.controller_changes: dict[int, ControllerRegistration | None] = {}
        # The new value of each changed key; None for a removed key.
        self.config_changes: ConfigChanges = {}
        self.client_quota_changes: QuotaChanges = {}
        self.acl_changes: AclChanges = {}
        self.feature_changes: dict[str, int] = {}
        self.next_producer_id: int | None = None
        # The new record of each changed SCRAM credential or delegation token; None for a removed
        # one.
        self.credential_changes: CredentialChanges = {}
        self.token_changes: TokenChanges = {}

    def replay(self, record: Record) -> None:
        """Apply one record.

        Args:
            record: any metadata record. NoOp records and transaction markers have no effect here.

        Raises:
            MetadataReplayError: the record is unknown, or contradicts the previous records.
        """
        take = _REPLAY.get(record.__record_type__)
        if take is not None:
            take(self, record)
        elif record.__record_type__ not in _WITHOUT_EFFECT:
            raise MetadataReplayError(f"metadata record type {record.__record_type__} is unknown")

    @property
    def is_empty(self) -> bool:
        """Whether no record has changed anything."""
        return not (
            self.topics_delta.changed
            or self.topics_delta.deleted
            or self.broker_changes
            or self.controller_changes
            or self.config_changes
            or self.client_quota_changes
            or self.acl_changes
            or self.feature_changes
            or self.next_producer_id is not None
            or self.credential_changes
            or self.token_changes
        )

    def finish_snapshot(self) -> None:
        """Remove everything that the records do not mention, because they are a full snapshot."""
        image = self.image
        self.topics_delta.finish_snapshot()
        for broker_id in image.brokers:
            self.broker_changes.setdefault(broker_id, None)
        for controller_id in image.controllers:
            self.controller_changes.setdefault(controller_id, None)
        for resource_type, name, configs in image.configs:
            changes = self.config_changes.setdefault((resource_type, name), {})
            for key in configs:
                changes.setdefault(key, None)
        for entity, limits in image.client_quotas:
            values = self.client_quota_changes.setdefault(entity, {})
            for key in limits:
                values.setdefault(key, None)
        for acl_id, _ in image.acls:
            self.acl_changes.setdefault(acl_id, None)
        for feature in image.features.finalized:
            self.feature_changes.setdefault(feature, 0)
        for key in image.credentials:
            self.credential_changes.setdefault(key, None)
        for token_id in image.tokens:
            self.token_changes.setdefault(token_id, None)
        if self.next_producer_id is None:
            self.next_producer_id = NO_PRODUCER_ID

    def apply(self, provenance: Provenance) -> ClusterImage:
        """Return the new image. Unchanged parts are shared with the old image."""
        image = self.image
        return ClusterImage(
            provenance=provenance,
            features=image.features.evolve(self.feature_changes),
            brokers=_evolved(image.brokers, self.broker_changes),
            controllers=_evolved(image.controllers, self.controller_changes),
            topics=self.topics_delta.apply(),
            configs=image.configs.evolve(self.config_changes),
            client_quotas=image.client_quotas.evolve(self.client_quota_changes),
            acls=image.acls.evolve(self.acl_changes),
            next_producer_id=(
                image.next_producer_id if self.next_producer_id is None else self.next_producer_id
            ),
            credentials=image.credentials.with_changes(self.credential_changes),
            tokens=image.tokens.with_changes(self.token_changes),
        )

    def broker(self, broker_id: int) -> BrokerRegistration | None:
        """Return the current registration of a broker; None if it is not registered."""
        if broker_id in self.broker_changes:
            return self.broker_changes[broker_id]
        return self.image.brokers.get(broker_id)

    def _remove_topic(self, record: Any) -> None:
        name = self.topics_delta.replay_remove_topic(record)
        # The configs of a topic are removed with the topic.
        key = (TOPIC, name)
        removed: dict[str, str | None] = dict.fromkeys(self.image.configs.get(TOPIC, name))
        removed.update(dict.fromkeys(self.config_changes.get(key, {})))
        if removed:
            self.config_changes[key] = removed

    def _register_broker(self, record: Any) -> None:
        self.broker_changes[record.broker_id] = BrokerRegistration.from_record(record)

    def _unregister_broker(self, record: Any) -> None:
        self._known_broker(record.broker_id, record.broker_epoch)
        self.broker_changes[record.broker_id] = None

    def _change_broker(self, record: Any) -> None:
        before = self._known_broker(record.broker_id, record.broker_epoch)
        self.broker_changes[record.broker_id] = before.merge(record)

    def _fence_broker(self, record: Any) -> None:
        before = self._known_broker(record.id, record.epoch)
        self.broker_changes[record.id] = before.with_fenced(True)

    def _unfence_broker(self, record: Any) -> None:
        before = self._known_broker(record.id, record.epoch)
        self.broker_changes[record.id] = before.with_fenced(False)

    def _register_controller(self, record: Any) -> None:
        self.controller_changes[record.controller_id] = ControllerRegistration.from_record(record)

    def _unregister_controller(self, record: Any) -> None:
        self.controller_changes[record.controller_id] = None

    def _config(self, record: Any) -> None:
        key = (record.resource_type, record.resource_name)
        self.config_changes.setdefault(key, {})[record.name] = record.value

    def _client_quota(self, record: Any) -> None:
        changes = self.client_quota_changes.setdefault(entity_of(record.entity), {})
        changes[record.key] = None if record.remove else record.value

    def _add_acl(self, record: Any) -> None:
        self.acl_changes[record.id] = Acl.from_record(record)

    def _remove_acl(self, record: Any) -> None:
        if record.id in self.acl_changes:
            known = self.acl_changes[record.id]
        else:
            known = self.image.acls.get(record.id)
        if known is None:
            raise MetadataReplayError(f"record removes the unknown ACL {record.id.hex()}")
        self.acl_changes[record.id] = None

    def _token(self, record: Any) -> None:
        self.token_changes[record.token_id] = record

    def _remove_token(self, record: Any) -> None:
        self.token_changes[record.token_id] = None

    def _credential(self, record: Any) -> None:
        self.credential_changes[credential_key(record.mechanism, record.name)] = record

    def _remove_credential(self, record: Any) -> None:
        self.credential_changes[credential_key(record.mechanism, record.name)] = None

    def _feature_level(self, record: Any) -> None:
        self.feature_changes[record.name] = record.feature_level

    def _producer_ids(self, record: Any) -> None:
        self.next_producer_id = record.next_producer_id

    def _known_broker(self, broker_id: int, epoch: int) -> BrokerRegistration:
        broker = self.broker(broker_id)
        if broker is None or broker.epoch != epoch:
            raise MetadataReplayError(f"record of broker {broker_id} epoch {epoch}: {broker}")
        return broker


_REPLAY: dict[int, Callable[[ClusterDelta, Any], object]] = {
    0: ClusterDelta._register_broker,
    1: ClusterDelta._unregister_broker,
    2: lambda delta, record: delta.topics_delta.replay_topic(record),
    3: lambda delta, record: delta.topics_delta.replay_partition(record),
    4: ClusterDelta._config,
    5: lambda delta, record: delta.topics_delta.replay_partition_change(record),
    7: ClusterDelta._fence_broker,
    8: ClusterDelta._unfence_broker,
    9: ClusterDelta._remove_topic,
    10: ClusterDelta._token,
    11: ClusterDelta._credential,
    12: ClusterDelta._feature_level,
    14: ClusterDelta._client_quota,
    15: ClusterDelta._producer_ids,
    17: ClusterDelta._change_broker,
    18: ClusterDelta._add_acl,
    19: ClusterDelta._remove_acl,
    22: ClusterDelta._remove_credential,
    26: ClusterDelta._remove_token,
    27: ClusterDelta._register_controller,
    28: lambda delta, record: delta.topics_delta.replay_clear_elr(record),
    29: ClusterDelta._unregister_controller,
}

# NoOp, ZkMigrationState, BeginTransaction, EndTransaction, AbortTransaction.
_WITHOUT_EFFECT = frozenset({20, 21, 23, 24, 25})


_R = TypeVar("_R", BrokerRegistration, ControllerRegistration)


def _evolved(before: Mapping[int, _R], changes: Mapping[int, _R | None]) -> Mapping[int, _R]:
    if not changes:
        return before
    merged: dict[int, _R | None] = {**before, **changes}
    return {each: kept for each, kept in sorted(merged.items()) if kept is not None}


class ElectionCounts:
    """Counts elections as a listener of the metadata publisher."""

    def __init__(self) -> None:
        # Elections of a replica outside ISR and ELR, which may lack records; since the process
        # started.
        self.unclean = 0
        # Elections of a replica in the ELR, which has all committed records; since the process
        # started.
        self.from_eligible = 0

    def on_image(self, delta: ClusterDelta, _image: ClusterImage) -> None:
        """Count the elections of a delta."""
        for _, _, before, after in delta.topics_delta.changed_partitions():
            leader = after.leader
            if before is None or leader in (before.leader, NO_LEADER) or leader in before.isr:
                continue
            if leader in before.elr:
                self.from_eligible += 1
            else:
                self.unclean += 1
