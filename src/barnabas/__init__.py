"""Barnabas: an event log that speaks the Apache Kafka protocol.

The names below are the public API: the client, and the interfaces of a cluster's policies. The
modules that define them are loaded when a name is first used (PEP 562), so the broker and the
commands start without the client.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from barnabas.version import __version__ as __version__

# Type checkers read the names here: `as` marks a name as public. A test compares both lists.
if TYPE_CHECKING:
    from barnabas import (
        aio as aio,
        serializers as serializers,
    )
    from barnabas.client.admin.acls import (
        Acl as Acl,
        AclFilter as AclFilter,
        AclOperation as AclOperation,
        AclPermission as AclPermission,
        AclResourceType as AclResourceType,
        PatternType as PatternType,
    )
    from barnabas.client.admin.admin import Admin as Admin
    from barnabas.client.admin.cluster import (
        UpgradeType as UpgradeType,
        VoterEndpoint as VoterEndpoint,
    )
    from barnabas.client.admin.configs import QuotaEntity as QuotaEntity
    from barnabas.client.admin.credentials import (
        ScramDeletion as ScramDeletion,
        ScramMechanism as ScramMechanism,
        ScramUpsertion as ScramUpsertion,
    )
    from barnabas.client.admin.groups import MemberToRemove as MemberToRemove
    from barnabas.client.admin.partitions import ElectionType as ElectionType
    from barnabas.client.admin.topics import NewPartitions as NewPartitions, NewTopic as NewTopic
    from barnabas.client.admin.transactions import TransactionFilter as TransactionFilter
    from barnabas.client.connections.metadata_cache import PartitionInfo as PartitionInfo
    from barnabas.client.consumer.assignment.subscription import (
        RebalanceListener as RebalanceListener,
        SubscriptionPattern as SubscriptionPattern,
    )
    from barnabas.client.consumer.consumer import Consumer as Consumer
    from barnabas.client.consumer.consumer_records import ConsumerRecords as ConsumerRecords
    from barnabas.client.consumer.errors import (
        CommitFailedError as CommitFailedError,
        ConcurrentUseError as ConcurrentUseError,
        InvalidGroupIdError as InvalidGroupIdError,
        LogTruncationError as LogTruncationError,
        NoOffsetError as NoOffsetError,
        SubscriptionError as SubscriptionError,
        WakeupError as WakeupError,
    )
    from barnabas.client.consumer.user_objects import ConsumerInterceptor as ConsumerInterceptor
    from barnabas.client.errors import (
        AdminResultsError as AdminResultsError,
        AuthenticationError as AuthenticationError,
        BrokerError as BrokerError,
        BufferFullError as BufferFullError,
        ClientClosedError as ClientClosedError,
        ClientConfigError as ClientConfigError,
        ClientError as ClientError,
        ClientTimeoutError as ClientTimeoutError,
        CorruptRecordsError as CorruptRecordsError,
        DeliveryTimeoutError as DeliveryTimeoutError,
        DisconnectedError as DisconnectedError,
        ForkedClientError as ForkedClientError,
        IllegalTransactionStateError as IllegalTransactionStateError,
        InvalidRecordError as InvalidRecordError,
        NoBrokersError as NoBrokersError,
        OffsetOutOfRangeError as OffsetOutOfRangeError,
        ProducerFencedError as ProducerFencedError,
        RangeStalledError as RangeStalledError,
        RecordDeserializationError as RecordDeserializationError,
        RecordTooLargeError as RecordTooLargeError,
        SerializationError as SerializationError,
        TlsFailedError as TlsFailedError,
        TransactionAbortedError as TransactionAbortedError,
        UnfitRecordError as UnfitRecordError,
        UnknownPartitionError as UnknownPartitionError,
        UnknownTopicError as UnknownTopicError,
        UnreachableBrokerError as UnreachableBrokerError,
        UnsendableRequestError as UnsendableRequestError,
        UnsupportedVersionError as UnsupportedVersionError,
        UnusableResponseError as UnusableResponseError,
    )
    from barnabas.client.facade import Client as Client
    from barnabas.client.fetch.offset_lookups import ListedOffset as ListedOffset
    from barnabas.client.fetch.record_set import ConsumerRecord as ConsumerRecord
    from barnabas.client.group.group_offsets import CommittedOffset as CommittedOffset
    from barnabas.client.group.membership import GroupGeneration as GroupGeneration
    from barnabas.client.producer.producer import Producer as Producer
    from barnabas.client.producer.producer_batch import (
        Delivery as Delivery,
        RecordMetadata as RecordMetadata,
    )
    from barnabas.client.producer.user_objects import (
        ProducerInterceptor as ProducerInterceptor,
        ProducerRecord as ProducerRecord,
    )
    from barnabas.client.share.acknowledgements import (
        AcknowledgeType as AcknowledgeType,
        IllegalAcknowledgementError as IllegalAcknowledgementError,
    )
    from barnabas.client.share.acquired_records import (
        ShareRecord as ShareRecord,
        ShareRecords as ShareRecords,
    )
    from barnabas.client.share.share_consumer import ShareConsumer as ShareConsumer
    from barnabas.client.topic_partition import TopicPartition as TopicPartition
    from barnabas.policies import (
        AlterConfigMetadata as AlterConfigMetadata,
        AlterConfigPolicy as AlterConfigPolicy,
        CreateTopicMetadata as CreateTopicMetadata,
        CreateTopicPolicy as CreateTopicPolicy,
        PolicyViolationError as PolicyViolationError,
    )
    from barnabas.protocol.resources import (
        ConfigResource as ConfigResource,
        ResourceType as ResourceType,
    )

# The public names by the module that defines them.
_DEFINED_IN = {
    "barnabas.client.admin.acls": (
        "Acl",
        "AclFilter",
        "AclOperation",
        "AclPermission",
        "AclResourceType",
        "PatternType",
    ),
    "barnabas.client.admin.admin": ("Admin",),
    "barnabas.client.admin.cluster": (
        "UpgradeType",
        "VoterEndpoint",
    ),
    "barnabas.client.admin.groups": ("MemberToRemove",),
    "barnabas.client.admin.partitions": ("ElectionType",),
    "barnabas.client.admin.configs": ("QuotaEntity",),
    "barnabas.client.admin.credentials": (
        "ScramDeletion",
        "ScramMechanism",
        "ScramUpsertion",
    ),
    "barnabas.client.admin.topics": (
        "NewPartitions",
        "NewTopic",
    ),
    "barnabas.client.admin.transactions": ("TransactionFilter",),
    "barnabas.client.consumer.consumer": ("Consumer",),
    "barnabas.client.consumer.user_objects": ("ConsumerInterceptor",),
    "barnabas.client.consumer.consumer_records": ("ConsumerRecords",),
    "barnabas.client.consumer.errors": (
        "CommitFailedError",
        "ConcurrentUseError",
        "InvalidGroupIdError",
        "LogTruncationError",
        "NoOffsetError",
        "SubscriptionError",
        "WakeupError",
    ),
    "barnabas.client.consumer.assignment.subscription": (
        "RebalanceListener",
        "SubscriptionPattern",
    ),
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
    "barnabas.client.fetch.offset_lookups": ("ListedOffset",),
    "barnabas.client.connections.metadata_cache": ("PartitionInfo",),
    "barnabas.client.producer.producer_batch": (
        "Delivery",
        "RecordMetadata",
    ),
    "barnabas.client.producer.user_objects": (
        "ProducerInterceptor",
        "ProducerRecord",
    ),
    "barnabas.client.producer.producer": ("Producer",),
    "barnabas.client.fetch.record_set": ("ConsumerRecord",),
    "barnabas.client.share.acknowledgements": (
        "AcknowledgeType",
        "IllegalAcknowledgementError",
    ),
    "barnabas.client.share.share_consumer": ("ShareConsumer",),
    "barnabas.client.share.acquired_records": (
        "ShareRecord",
        "ShareRecords",
    ),
    "barnabas.client.topic_partition": ("TopicPartition",),
    "barnabas.policies": (
        "AlterConfigMetadata",
        "AlterConfigPolicy",
        "CreateTopicMetadata",
        "CreateTopicPolicy",
        "PolicyViolationError",
    ),
    "barnabas.protocol.resources": (
        "ConfigResource",
        "ResourceType",
    ),
}
_MODULE_OF = {name: module for module, names in _DEFINED_IN.items() for name in names}
_SUBMODULES = ("aio", "serializers")

__all__ = list(_MODULE_OF)
__all__ += ["__version__", "aio", "serializers"]


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
