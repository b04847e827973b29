"""Barnabas: an event log that speaks the Apache Kafka protocol.

The names below are the public API of the client. The modules that define them are loaded when a
name is first used (PEP 562), so the broker and the commands start without the client.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from barnabas.version import __version__

if TYPE_CHECKING:
    from barnabas import aio, serializers
    from barnabas.client.admin.admin import Admin
    from barnabas.client.admin.cluster.features import UpgradeType
    from barnabas.client.admin.cluster.quorum import VoterEndpoint
    from barnabas.client.admin.configs.configs import ConfigResource, ResourceType
    from barnabas.client.admin.configs.quotas import QuotaEntity
    from barnabas.client.admin.groups.group_members import MemberToRemove
    from barnabas.client.admin.security.acls import (
        Acl,
        AclFilter,
        AclOperation,
        AclPermission,
        AclResourceType,
        PatternType,
    )
    from barnabas.client.admin.security.scram import ScramDeletion, ScramMechanism, ScramUpsertion
    from barnabas.client.admin.topics.partitions import ElectionType
    from barnabas.client.admin.topics.topics import NewPartitions, NewTopic
    from barnabas.client.admin.transactions import TransactionFilter
    from barnabas.client.connections.metadata_cache import PartitionInfo
    from barnabas.client.consumer.assignment.subscription import SubscriptionPattern
    from barnabas.client.consumer.consumer import Consumer
    from barnabas.client.consumer.errors import (
        CommitFailedError,
        ConcurrentUseError,
        InvalidGroupIdError,
        LogTruncationError,
        NoOffsetError,
        SubscriptionError,
        WakeupError,
    )
    from barnabas.client.consumer.rebalance_listener import RebalanceListener
    from barnabas.client.consumer.records.consumer_records import ConsumerRecords
    from barnabas.client.consumer.user_objects import ConsumerInterceptor
    from barnabas.client.errors import (
        AdminResultsError,
        AuthenticationError,
        BrokerError,
        BufferFullError,
        ClientClosedError,
        ClientConfigError,
        ClientError,
        ClientTimeoutError,
        CorruptRecordsError,
        DeliveryTimeoutError,
        DisconnectedError,
        ForkedClientError,
        IllegalTransactionStateError,
        InvalidRecordError,
        NoBrokersError,
        OffsetOutOfRangeError,
        ProducerFencedError,
        RangeStalledError,
        RecordDeserializationError,
        RecordTooLargeError,
        SerializationError,
        TlsFailedError,
        TransactionAbortedError,
        UnfitRecordError,
        UnknownPartitionError,
        UnknownTopicError,
        UnreachableBrokerError,
        UnsendableRequestError,
        UnsupportedVersionError,
        UnusableResponseError,
    )
    from barnabas.client.facade import Client
    from barnabas.client.fetch.list_offsets import ListedOffset
    from barnabas.client.fetch.record_decoding import ConsumerRecord
    from barnabas.client.group.group_offsets import CommittedOffset
    from barnabas.client.group.membership import GroupGeneration
    from barnabas.client.producer.delivery import Delivery
    from barnabas.client.producer.interceptors import ProducerInterceptor, ProducerRecord
    from barnabas.client.producer.producer import Producer
    from barnabas.client.producer.producer_batch import RecordMetadata
    from barnabas.client.share.acknowledge_type import AcknowledgeType
    from barnabas.client.share.errors import IllegalAcknowledgementError
    from barnabas.client.share.share_consumer import ShareConsumer
    from barnabas.client.share.share_records import ShareRecord, ShareRecords
    from barnabas.client.topic_partition import TopicPartition

__all__ = [
    "AcknowledgeType",
    "Acl",
    "AclFilter",
    "AclOperation",
    "AclPermission",
    "AclResourceType",
    "Admin",
    "AdminResultsError",
    "AuthenticationError",
    "BrokerError",
    "BufferFullError",
    "Client",
    "ClientClosedError",
    "ClientConfigError",
    "ClientError",
    "ClientTimeoutError",
    "CommitFailedError",
    "CommittedOffset",
    "ConcurrentUseError",
    "ConfigResource",
    "Consumer",
    "ConsumerInterceptor",
    "ConsumerRecord",
    "ConsumerRecords",
    "CorruptRecordsError",
    "Delivery",
    "DeliveryTimeoutError",
    "DisconnectedError",
    "ElectionType",
    "ForkedClientError",
    "GroupGeneration",
    "IllegalAcknowledgementError",
    "IllegalTransactionStateError",
    "InvalidGroupIdError",
    "InvalidRecordError",
    "ListedOffset",
    "LogTruncationError",
    "MemberToRemove",
    "NewPartitions",
    "NewTopic",
    "NoBrokersError",
    "NoOffsetError",
    "OffsetOutOfRangeError",
    "PartitionInfo",
    "PatternType",
    "Producer",
    "ProducerFencedError",
    "ProducerInterceptor",
    "ProducerRecord",
    "QuotaEntity",
    "RangeStalledError",
    "RebalanceListener",
    "RecordDeserializationError",
    "RecordMetadata",
    "RecordTooLargeError",
    "ResourceType",
    "ScramDeletion",
    "ScramMechanism",
    "ScramUpsertion",
    "SerializationError",
    "ShareConsumer",
    "ShareRecord",
    "ShareRecords",
    "SubscriptionError",
    "SubscriptionPattern",
    "TlsFailedError",
    "TopicPartition",
    "TransactionAbortedError",
    "TransactionFilter",
    "UnfitRecordError",
    "UnknownPartitionError",
    "UnknownTopicError",
    "UnreachableBrokerError",
    "UnsendableRequestError",
    "UnsupportedVersionError",
    "UnusableResponseError",
    "UpgradeType",
    "VoterEndpoint",
    "WakeupError",
    "__version__",
    "aio",
    "serializers",
]

# The public names by the module that defines them.
_DEFINED_IN = {
    "barnabas.client.admin.security.acls": (
        "Acl",
        "AclFilter",
        "AclOperation",
        "AclPermission",
        "AclResourceType",
        "PatternType",
    ),
    "barnabas.client.admin.admin": ("Admin",),
    "barnabas.client.admin.configs.configs": (
        "ConfigResource",
        "ResourceType",
    ),
    "barnabas.client.admin.cluster.features": ("UpgradeType",),
    "barnabas.client.admin.groups.group_members": ("MemberToRemove",),
    "barnabas.client.admin.topics.partitions": ("ElectionType",),
    "barnabas.client.admin.cluster.quorum": ("VoterEndpoint",),
    "barnabas.client.admin.configs.quotas": ("QuotaEntity",),
    "barnabas.client.admin.security.scram": (
        "ScramDeletion",
        "ScramMechanism",
        "ScramUpsertion",
    ),
    "barnabas.client.admin.topics.topics": (
        "NewPartitions",
        "NewTopic",
    ),
    "barnabas.client.admin.transactions": ("TransactionFilter",),
    "barnabas.client.consumer.consumer": ("Consumer",),
    "barnabas.client.consumer.user_objects": ("ConsumerInterceptor",),
    "barnabas.client.consumer.records.consumer_records": ("ConsumerRecords",),
    "barnabas.client.consumer.errors": (
        "CommitFailedError",
        "ConcurrentUseError",
        "InvalidGroupIdError",
        "LogTruncationError",
        "NoOffsetError",
        "SubscriptionError",
        "WakeupError",
    ),
    "barnabas.client.consumer.rebalance_listener": ("RebalanceListener",),
    "barnabas.client.consumer.assignment.subscription": ("SubscriptionPattern",),
    "barnabas.client.errors": (
        "AdminResultsError",
        "AuthenticationError",
        "BrokerError",
        "BufferFullError",
        "ClientClosedError",
        "ClientConfigError",
        "ClientError",
        "ClientTimeoutError",
        "CorruptRecordsError",
        "DeliveryTimeoutError",
        "DisconnectedError",
        "ForkedClientError",
        "IllegalTransactionStateError",
        "InvalidRecordError",
        "NoBrokersError",
        "OffsetOutOfRangeError",
        "ProducerFencedError",
        "RangeStalledError",
        "RecordDeserializationError",
        "RecordTooLargeError",
        "SerializationError",
        "TlsFailedError",
        "TransactionAbortedError",
        "UnfitRecordError",
        "UnknownPartitionError",
        "UnknownTopicError",
        "UnreachableBrokerError",
        "UnsendableRequestError",
        "UnsupportedVersionError",
        "UnusableResponseError",
    ),
    "barnabas.client.facade": ("Client",),
    "barnabas.client.group.membership": ("GroupGeneration",),
    "barnabas.client.group.group_offsets": ("CommittedOffset",),
    "barnabas.client.fetch.list_offsets": ("ListedOffset",),
    "barnabas.client.connections.metadata_cache": ("PartitionInfo",),
    "barnabas.client.producer.delivery": ("Delivery",),
    "barnabas.client.producer.interceptors": (
        "ProducerInterceptor",
        "ProducerRecord",
    ),
    "barnabas.client.producer.producer": ("Producer",),
    "barnabas.client.producer.producer_batch": ("RecordMetadata",),
    "barnabas.client.fetch.record_decoding": ("ConsumerRecord",),
    "barnabas.client.share.acknowledge_type": ("AcknowledgeType",),
    "barnabas.client.share.errors": ("IllegalAcknowledgementError",),
    "barnabas.client.share.share_consumer": ("ShareConsumer",),
    "barnabas.client.share.share_records": (
        "ShareRecord",
        "ShareRecords",
    ),
    "barnabas.client.topic_partition": ("TopicPartition",),
}
_MODULE_OF = {name: module for module, names in _DEFINED_IN.items() for name in names}
_SUBMODULES = ("aio", "serializers")


def __getattr__(name: str) -> Any:
    """Import the module that defines a public name, and return the name's value."""
    if name in _SUBMODULES:
        return import_module(f"{__name__}.{name}")
    if name in _MODULE_OF:
        return getattr(import_module(_MODULE_OF[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """Return the public names, whether or not their modules are loaded yet."""
    return sorted({*__all__, *globals()})
